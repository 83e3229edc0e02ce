// An informer of the official JavaScript client. It prints each event as a line of JSON, and its
// store when its input ends:
//
//     node informer.js KUBECONFIG CONTEXT NAMESPACE

import { KubeConfig, BatchV1Api, makeInformer } from "@kubernetes/client-node";

const [kubeconfig, context, namespace] = process.argv.slice(2);
const config = new KubeConfig();
config.loadFromFile(kubeconfig);
config.setCurrentContext(context);
const api = config.makeApiClient(BatchV1Api);
const list = () => api.listNamespacedJob({ namespace });
const informer = makeInformer(config, `/apis/batch/v1/namespaces/${namespace}/jobs`, list);

const print = (value) => process.stdout.write(JSON.stringify(value) + "\n");
for (const [verb, type] of [["add", "ADDED"], ["update", "MODIFIED"], ["delete", "DELETED"]]) {
  informer.on(verb, ({ metadata }) =>
    print({ type, name: metadata.name, version: metadata.resourceVersion }));
}
// As its documentation says: an informer whose connection fails is started again.
informer.on("error", () => setTimeout(() => informer.start(), 100));
informer.start();

process.stdin.resume().on("end", () => {
  const store = informer.list().map(({ metadata }) => [metadata.name, metadata.resourceVersion]);
  print({ store: Object.fromEntries(store) });
  process.exit(0);
});
