//! The other files that flags name: the manifest of `--like`, the peers file, the egress selector file, a
//! kubeconfig.

use super::config::one_sentence;
use crate::target::Target;

const READERS: [fn(&[u8]) -> Result<(), String>; 4] = [
    mvp::fuzzing::like,
    mvp::fuzzing::peers_file,
    mvp::fuzzing::egress_file,
    mvp::fuzzing::kubeconfig,
];

pub const TARGET: Target = Target {
    name: "files",
    run,
    seeds,
    words: &[
        "kind: Pod\n",
        "spec:\n",
        "containers:\n",
        "- name: kube-apiserver\n",
        "command:\n",
        "- kube-apiserver\n",
        "- --",
        "secure-port=",
        "advertise-address=",
        "bind-address=",
        "$(IP)",
        "env:\n",
        "valueFrom: {}",
        "volumeMounts:\n",
        "mountPath: ",
        "hostPath:\n",
        "path: /etc",
        "peers:\n",
        "- {id: b, address: 'https://b:1'}",
        "kind: bare",
        "proxy-url: ",
        "unix:///x",
        "kind: EgressSelectorConfiguration\n",
        "egressSelections:\n",
        "- name: controlplane\n",
        "proxyProtocol: HTTPConnect",
        "transport:",
        "tcp: {url: 'http://p:1'}",
        "uds: {udsName: /x}",
        "tlsConfig: {caBundle: /c, clientCert: /d, clientKey: /e}",
        "current-context: ",
        "clusters:\n",
        "users:\n",
        "contexts:\n",
        "&a ",
        "*a",
        "<<: ",
        "---\n",
        "!!binary ",
        "|\n  ",
        ": ",
        "\t",
    ],
};

fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    if let Err(sentence) = READERS[usize::from(*first) % READERS.len()](rest) {
        one_sentence(&sentence);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let texts: [(u8, &str); 6] = [
        (
            0,
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: kube-apiserver\nspec:\n  containers:\n  - name: kube-apiserver\n    command:\n    - kube-apiserver\n    - --advertise-address=10.0.0.1\n    - --secure-port=6443\n    - --client-ca-file=/etc/kubernetes/pki/ca.crt\n    - --tls-cert-file=/pki/apiserver.crt\n    - --requestheader-allowed-names=front-proxy-client\n    - --tls-sni-cert-key=/pki/a.crt,/pki/a.key:a,b\n    volumeMounts:\n    - {mountPath: /pki, name: pki, readOnly: true}\n  volumes:\n  - name: pki\n    hostPath: {path: /etc/kubernetes/pki}\n",
        ),
        (
            0,
            "kind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    command: [kube-apiserver]\n    args: ['--etcd-servers', 'https://a:2379,https://b:2379', --bind_address, $(IP)]\n    env:\n    - {name: A, value: 10.0.0.1}\n    - {name: IP, value: $(A)}\n    - {name: B, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}\n",
        ),
        (
            1,
            "peers:\n- {id: apiserver-b, address: \"https://10.0.0.2:6443\"}\n- {id: apiserver-c, address: \"https://10.0.0.3:6443\", kind: bare, proxy-url: \"http://proxy:3128\"}\n",
        ),
        (
            2,
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: controlplane\n  connection:\n    proxyProtocol: HTTPConnect\n    transport:\n      tcp:\n        url: https://proxy:8131\n        tlsConfig: {caBundle: /ca, clientCert: /cert, clientKey: /key}\n- name: cluster\n  connection: {proxyProtocol: Direct}\n",
        ),
        (
            2,
            "kind: EgressSelectorConfiguration\negressSelections:\n- name: ControlPlane\n  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /run/x}}}\n",
        ),
        (
            3,
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {cluster: c, user: u}\nclusters:\n- name: c\n  cluster: {server: 'https://a:6443', certificate-authority-data: QQ==}\nusers:\n- name: u\n  user: {token: t, exec: {command: x, apiVersion: client.authentication.k8s.io/v1}}\n",
        ),
    ];
    texts.iter().map(|(reader, text)| [&[*reader][..], text.as_bytes()].concat()).collect()
}
