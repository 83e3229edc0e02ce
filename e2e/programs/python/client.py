"""A client on the official Python client: dynamic discovery, CRUD, watch.

It makes the object that it reads from standard input, and follows it to its end:

    client.py KUBECONFIG NAMESPACE < object.json
"""

import json
import queue
import sys
import tempfile
import threading

from kubernetes import __version__, config, dynamic
from kubernetes.dynamic.exceptions import NotFoundError

PATIENCE = 20


def main(kubeconfig, namespace):
    wanted = json.load(sys.stdin)
    name = wanted["metadata"]["name"]
    where = {"namespace": namespace} if namespace else {}
    with tempfile.TemporaryDirectory() as cache:
        # Its own cache: one that is shared by all clients of a host name would hide what we ask.
        client = dynamic.DynamicClient(
            config.new_client_from_config(kubeconfig), cache_file=cache + "/discovery.json"
        )
        resource = client.resources.get(api_version=wanted["apiVersion"], kind=wanted["kind"])

    seen = queue.Queue()

    def watch(version):
        events = resource.watch(resource_version=version, timeout=3 * PATIENCE, **where)
        for event in events:
            if event["object"].metadata.name == name:
                seen.put(event["type"])

    def expect(what):
        said = seen.get(timeout=PATIENCE)
        if said != what:
            raise SystemExit(f"the watch says {said} instead of {what}")

    version = resource.get(**where).metadata.resourceVersion
    threading.Thread(target=watch, args=(version,), daemon=True).start()

    resource.create(body=wanted, **where)
    expect("ADDED")
    if resource.get(name=name, **where).metadata.name != name:
        raise SystemExit("get gives another object")
    patch = {"metadata": {"labels": {"by": "python"}}}
    resource.patch(
        name=name, body=patch, content_type="application/merge-patch+json", **where
    )
    expect("MODIFIED")
    labelled = resource.get(label_selector="by=python", **where)
    if [item.metadata.name for item in labelled.items] != [name]:
        raise SystemExit(f"listed by label: {labelled}")
    resource.server_side_apply(
        body={
            "apiVersion": wanted["apiVersion"],
            "kind": wanted["kind"],
            "metadata": {"name": name, "annotations": {"by": "python"}},
        },
        field_manager="python",
        **where,
    )
    expect("MODIFIED")
    resource.delete(name=name, body={"propagationPolicy": "Background"}, **where)
    expect("DELETED")
    try:
        resource.get(name=name, **where)
        raise SystemExit("it is there after it was deleted")
    except NotFoundError:
        pass
    print(f"kubernetes {__version__}: found, watched, made, changed and deleted {wanted['kind']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
