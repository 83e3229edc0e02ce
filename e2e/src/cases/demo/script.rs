//! The commands, and how their results are compared. Entry item: [`STEPS`].

/// A command of kubectl.
pub(super) struct Step {
    /// Its arguments. Single quotes group words.
    pub(super) command: &'static str,
    pub(super) input: Option<&'static str>,
    pub(super) compare: Compare,
}

/// What must be alike at both servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    /// Success or failure, and what is printed, except for times and random values.
    Output,
    /// Success or failure alone.
    Outcome,
}

const fn same(command: &'static str) -> Step {
    Step { command, input: None, compare: Compare::Output }
}

const fn ends(command: &'static str) -> Step {
    Step { command, input: None, compare: Compare::Outcome }
}

const fn with(command: &'static str, input: &'static str) -> Step {
    Step { command, input: Some(input), compare: Compare::Output }
}

/// The commands in their order: each may depend on those before it.
pub(super) const STEPS: &[Step] = &[
    same("create namespace script"),
    same("get namespace script"),
    same(
        "get namespace script -o 'jsonpath={.status.phase} {.spec.finalizers} {.metadata.labels}'",
    ),
    same("create namespace script"),
    same("-n script create configmap one --from-literal=a=1"),
    same("-n script create configmap one --from-literal=a=1"),
    same("-n script get configmap one"),
    same("-n script get configmap one -o 'jsonpath={.data} {.kind} {.apiVersion}'"),
    same("-n script get configmaps"),
    same("-n script get cm --no-headers"),
    same("-n script label cm one x=y"),
    same("-n script label cm one x=z"),
    same("-n script label cm one x=z --overwrite"),
    same("-n script get cm -l x=z -o name"),
    same("-n script get cm -l x=other -o name"),
    same("-n script get cm -l 'x in (z,w)' --show-labels"),
    same("-n script annotate cm one note=hi"),
    same("-n script label cm one x-"),
    same("-n script patch cm one -p '{\"data\":{\"b\":\"2\"}}'"),
    same("-n script patch cm one --type=merge -p '{\"data\":{\"a\":null}}'"),
    same(
        "-n script patch cm one --type=json -p '[{\"op\":\"add\",\"path\":\"/data/c\",\"value\":\"3\"}]'",
    ),
    same("-n script patch cm one --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/nope\"}]'"),
    same("-n script get cm one -o 'jsonpath={.data}'"),
    same("-n script create configmap two --from-literal=a=1 --dry-run=server"),
    same("-n script get cm two"),
    same("-n script get cm --field-selector metadata.name=one -o name"),
    same("-n script get cm --field-selector data.a=1"),
    ends("-n script describe cm one"),
    with("-n script apply -f -", DEPLOYMENT),
    with("-n script apply -f -", DEPLOYMENT),
    with("-n script apply -f -", DEPLOYMENT_OF_TWO),
    same("-n script get deployment web"),
    same("-n script get deployment web -o wide"),
    same(
        "-n script get deploy web -o 'jsonpath={.spec.replicas} {.spec.template.spec.containers[*].image} {.metadata.generation}'",
    ),
    same("-n script scale deployment web --replicas=3"),
    same("-n script get deploy web -o 'jsonpath={.spec.replicas}'"),
    same("-n script set image deployment/web web=example/web:2"),
    same("-n script set env deployment/web MODE=test"),
    same(
        "-n script get deploy web -o 'jsonpath={.spec.template.spec.containers[0].env} {.spec.template.spec.containers[0].image}'",
    ),
    ends("-n script rollout restart deployment web"),
    ends("-n script describe deployment web"),
    same("-n script create job one --image=example/job -- true"),
    same("-n script get jobs"),
    same(
        "-n script get job one -o 'jsonpath={.spec.template.spec.containers[0].command} {.spec.template.spec.restartPolicy}'",
    ),
    same("-n script create cronjob daily --image=example/job --schedule='0 0 * * *' -- true"),
    same("-n script get cronjobs"),
    same("-n script create secret generic password --from-literal=p=1"),
    same("-n script get secret password"),
    same("-n script get secret password -o 'jsonpath={.data.p} {.type}'"),
    same("-n script create serviceaccount robot"),
    same("-n script get serviceaccount robot"),
    same("-n script create role reader --verb=get,list --resource=pods"),
    same("-n script create rolebinding readers --role=reader --serviceaccount=script:robot"),
    same("-n script get role,rolebinding -o name"),
    same("create clusterrole script-reader --verb=get --resource=nodes"),
    ends("-n script create service clusterip web --tcp=80:8080"),
    same("-n script get service web -o 'jsonpath={.spec.ports} {.spec.selector} {.spec.type}'"),
    same("-n script create ingress web --rule=example.com/=web:80"),
    same("-n script create poddisruptionbudget web --selector=app=web --min-available=1"),
    same("-n script create quota limits --hard=pods=10"),
    same("create priorityclass script-high --value=1000"),
    ends("-n script get all"),
    // A real server may report events of its own, such as of its repair of cluster addresses.
    ends("-n script get events"),
    with("create -f -", NODE),
    same("get node script-node -o 'jsonpath={.metadata.name}'"),
    same("cordon script-node"),
    same("get node script-node -o 'jsonpath={.spec.unschedulable}'"),
    same("taint node script-node dedicated=test:NoSchedule"),
    same("delete node script-node"),
    with("apply -f -", DEFINITION),
    same("wait --for=condition=established --timeout=20s crd/gadgets.script.example"),
    with("-n script apply -f -", GADGET),
    same("-n script get gadgets"),
    same("-n script get gd one -o 'jsonpath={.spec} {.kind}'"),
    with("-n script apply -f -", WRONG_GADGET),
    same("-n script patch gadget one --type=merge -p '{\"spec\":{\"size\":5}}'"),
    same("-n script get gadget one"),
    ends("explain gadgets.spec"),
    same("-n script delete gadget one"),
    same("delete crd gadgets.script.example"),
    with("-n script apply --server-side --field-manager=first -f -", SETTINGS),
    with("-n script apply --server-side --field-manager=second -f -", OTHER_SETTINGS),
    with(
        "-n script apply --server-side --field-manager=second --force-conflicts -f -",
        OTHER_SETTINGS,
    ),
    same("-n script get cm settings -o 'jsonpath={.data}'"),
    with("-n script replace -f -", SETTINGS),
    same("-n script get cm settings -o 'jsonpath={.data}'"),
    same("auth can-i create pods -n script"),
    ends("auth can-i --list -n script"),
    ends("auth whoami"),
    ends("api-resources"),
    ends("api-versions"),
    ends("explain jobs.spec.template"),
    ends("explain deployment --recursive"),
    ends("version"),
    same("get --raw /healthz"),
    same("get nonsense"),
    same("-n script get cm nope"),
    same("-n script delete cm nope"),
    same("-n script delete deployment web --cascade=orphan --wait=false"),
    same("-n script delete job one"),
    same("-n script delete cm --all"),
    same("-n script get cm"),
    same("-n nowhere create configmap one --from-literal=a=1"),
    ends("get leases -n kube-system"),
    same("-n script delete cronjob daily --wait=false"),
    same("delete clusterrole script-reader"),
    same("delete priorityclass script-high"),
];

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: 'example/web:1', ports: [{containerPort: 8080}]}]
";

const DEPLOYMENT_OF_TWO: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: 'example/web:1', ports: [{containerPort: 8080}]}]
";

const NODE: &str = r"
apiVersion: v1
kind: Node
metadata: {name: script-node}
";

const DEFINITION: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.script.example}
spec:
  group: script.example
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1}
              colour: {type: string, default: red}
";

const GADGET: &str = r"
apiVersion: script.example/v1
kind: Gadget
metadata: {name: one}
spec: {size: 3}
";

const WRONG_GADGET: &str = r"
apiVersion: script.example/v1
kind: Gadget
metadata: {name: two}
spec: {size: 0}
";

const SETTINGS: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: first}
";

const OTHER_SETTINGS: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: second}
";

/// The words of a command. Single quotes group words.
pub(super) fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for character in command.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// The text without what differs from server to server: ages and the width of columns.
pub(super) fn plain(text: &str) -> String {
    let line = |line: &str| -> String {
        let words = line.split_whitespace().map(|word| if is_age(word) { "AGE" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Whether this is an age of under an hour, such as `5s` or `1m2s`.
fn is_age(word: &str) -> bool {
    let digits = word.trim_end_matches(['s', 'm']);
    digits.len() < word.len()
        && digits.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
        && word.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b's' | b'm'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_group_words() {
        assert_eq!(words("get cm -l 'x in (a, b)'"), ["get", "cm", "-l", "x in (a, b)"]);
        assert_eq!(words("create --schedule='0 0 * * *' -- true").len(), 4);
    }

    #[test]
    fn ages_and_widths_are_no_difference() {
        assert_eq!(plain("NAME   AGE\none    1m3s\n"), "NAME AGE\none AGE");
        assert_eq!(plain("one  2 web:1 items sm"), "one 2 web:1 items sm");
    }
}
