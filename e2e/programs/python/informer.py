"""An informer of the official Python client.

It prints each event as a line of JSON, and its store when its input ends:

    informer.py KUBECONFIG CONTEXT NAMESPACE
"""

import json
import logging
import sys

from kubernetes import client, config, informer


def main(kubeconfig, context, namespace):
    # It logs every connection that fails, with a trace.
    logging.disable(logging.CRITICAL)
    api = client.BatchV1Api(config.new_client_from_config(kubeconfig, context))
    jobs = informer.SharedInformer(api.list_namespaced_job, namespace=namespace)

    def show(event):
        def handler(job):
            version = job.metadata.resource_version
            show_line({"type": event, "name": job.metadata.name, "version": version})

        return handler

    for event in ["ADDED", "MODIFIED", "DELETED"]:
        jobs.add_event_handler(event, show(event))
    jobs.start()
    sys.stdin.read()
    store = {job.metadata.name: job.metadata.resource_version for job in jobs.cache.list()}
    show_line({"store": store})


def show_line(value):
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
