//! The config file of `mvp serve`: each key becomes a flag, and the flags in force make the same settings
//! again.

use crate::target::Target;

pub const TARGET: Target = Target {
    name: "config",
    run,
    seeds,
    words: &[
        "secure-port: ",
        "bind-address: ",
        "peer: ",
        "peers-file: ",
        "membership: ",
        "- ",
        "\n",
        "server-id: ",
        "refresh-interval: ",
        "forget-after: ",
        "1h30m",
        "1s",
        "tls-min-version: ",
        "VersionTLS13",
        "feature-gates: ",
        "UnknownVersionInteroperabilityProxy=false",
        "'",
        "\"",
        "|\n  ",
        "etcd-servers: ",
        "https://a:1",
        "b=https://b:1,kind=bare",
        "requestheader-allowed-names: ",
        "log-format: ",
        "json",
        "tls-sni-cert-key: ",
        "workers: ",
        "true",
        "[",
        "]",
        "{",
        "}",
        "&a",
        "*a",
        "---\n",
        "!!str ",
        "? ",
        ": ",
        "# ",
        "goaway-chance: ",
        "0.02",
        "local-server: ",
        "servers: ",
    ],
};

fn run(data: &[u8]) {
    if let Err(sentence) = mvp::fuzzing::config(data) {
        one_sentence(&sentence);
    }
}

/// An error is one line, without control characters, and not endless.
pub fn one_sentence(sentence: &str) {
    assert!(!sentence.is_empty() && !sentence.chars().any(char::is_control), "{sentence:?}");
}

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "# a comment\nsecure-port: 7443\npeer: # more\n  - b=https://10.0.0.2:6443\n  - 'c=https://c:1,kind=bare'\nserver-id: \"a\"\n",
        "bind-address: 10.0.0.1\nadvertise-address: 10.0.0.1\ntls-cert-file: /etc/kubernetes/pki/apiserver.crt\ntls-private-key-file: /etc/kubernetes/pki/apiserver.key\nclient-ca-file: /etc/kubernetes/pki/ca.crt\n",
        "membership: [leases, etcd]\netcd-servers: [https://127.0.0.1:2379]\nrefresh-interval: 2s\nforget-after: 1h30m\nfeature-gates: UnknownVersionInteroperabilityProxy=true\n",
        "requestheader-allowed-names: [front-proxy-client, x]\nrequestheader-username-headers: X-Remote-User\nlog-format: json\nworkers: 2\nmax-client-connections: 100\n",
        "servers: [https://a:6443, https://b:6443]\ntls-min-version: VersionTLS13\ngoaway-chance: 0.01\npermit-port-sharing: true\n",
        "---\n{}\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
