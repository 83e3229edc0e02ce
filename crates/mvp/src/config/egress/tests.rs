//! Egress selector files, as kube-apiserver takes or refuses them.

use std::time::SystemTime;

use testkit::certificates::{Ca, Leaf};

use super::*;
use crate::cli::Origins;
use crate::files;

fn check(text: &str) -> Result<String, String> {
    let origins = Origins::default();
    let mut files = Files::new(&origins, SystemTime::now(), &files::read);
    let checked = EgressFile::check(&mut files, "e.yaml".into(), Ok(text.as_bytes().to_vec()));
    checked.map_err(|mistake| mistake.to_string()).map(|file| match file.proxy {
        None => "direct".to_owned(),
        Some(proxy) => proxy.connect().unwrap().to_string(),
    })
}

fn selections(text: &str) -> Result<String, String> {
    let head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n";
    check(&format!("{head}egressSelections: {text}\n"))
}

fn controlplane(connection: &str) -> Result<String, String> {
    selections(&format!("[{{name: controlplane, connection: {connection}}}]"))
}

#[test]
fn the_controlplane_selection_is_the_way_to_members() {
    for (connection, way) in [
        ("{proxyProtocol: Direct}", "direct"),
        (
            "{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://proxy:3128'}}}",
            "proxy http://proxy:3128",
        ),
        (
            "{proxyProtocol: HTTPConnect, transport: {TCP: {URL: 'http://proxy'}}}",
            "proxy http://proxy:80",
        ),
        (
            "{proxyProtocol: HTTPConnect, transport: {uds: {udsName: /run/p.sock}}}",
            "proxy at the Unix socket /run/p.sock",
        ),
    ] {
        assert_eq!(controlplane(connection).unwrap(), way, "{connection}");
    }
}

#[test]
fn selections_for_others_do_not_matter() {
    let grpc = "{proxyProtocol: GRPC, transport: {uds: {udsName: /etc/kubernetes/k.socket}}}";
    for text in [
        format!("[{{name: cluster, connection: {grpc}}}]"),
        format!(
            "[{{name: Cluster, connection: {grpc}}}, {{name: ControlPlane, connection: \
             {{proxyProtocol: Direct}}}}]"
        ),
        "[]".to_owned(),
        "null".to_owned(),
    ] {
        assert_eq!(selections(&text).unwrap(), "direct", "{text}");
    }
    for version in ["apiserver.k8s.io/v1alpha1", "apiserver.config.k8s.io/v1"] {
        let text = format!("apiVersion: {version}\nkind: EgressSelectorConfiguration");
        assert_eq!(check(&text).unwrap(), "direct");
    }
}

#[test]
fn a_proxy_over_tls_needs_a_ca_and_a_client_certificate() {
    let directory = std::env::temp_dir().join(format!("mvp-egress-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let ca = Ca::new("ca");
    std::fs::write(directory.join("ca.crt"), ca.pem()).unwrap();
    ca.issue(Leaf::named("client")).write(&directory, "client").unwrap();
    let shown = directory.display();
    let tls = |ca: &str, cert: &str, key: &str| {
        controlplane(&format!(
            "{{proxyProtocol: HTTPConnect, transport: {{tcp: {{url: 'https://proxy:1', tlsConfig: \
             {{caBundle: {ca}, clientCert: {shown}/{cert}, clientKey: {shown}/{key}}}}}}}}}"
        ))
    };
    let bundle = format!("{shown}/ca.crt");
    assert_eq!(tls(&bundle, "client.crt", "client.key").unwrap(), "proxy https://proxy:1");
    for (outcome, what) in [
        (tls("''", "client.crt", "client.key"), "has no caBundle"),
        (tls(&bundle, "none.crt", "client.key"), "none.crt"),
        (tls(&bundle, "client.crt", "ca.crt"), "no private key"),
    ] {
        let sentence = outcome.unwrap_err();
        assert!(sentence.starts_with("--egress-selector-config-file: "), "{sentence}");
        assert!(sentence.contains(what), "{sentence}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn mistakes_are_named() {
    let connect = |transport: &str| {
        controlplane(&format!("{{proxyProtocol: HTTPConnect, transport: {transport}}}"))
    };
    for (outcome, what) in [
        (controlplane("{proxyProtocol: GRPC}"), "GRPC is not supported"),
        (controlplane("{proxyProtocol: SOCKS}"), "\"SOCKS\" is unknown"),
        (controlplane("{}"), "\"\" is unknown"),
        (controlplane("{proxyProtocol: Direct, transport: {}}"), "Direct has no transport"),
        (controlplane("{proxyProtocol: HTTPConnect}"), "needs transport.tcp or transport.uds"),
        (connect("{}"), "needs transport.tcp or transport.uds"),
        (connect("{tcp: {url: 'http://a'}, uds: {udsName: /x}}"), "cannot be used together"),
        (connect("{uds: {}}"), "has no udsName"),
        (connect("{tcp: {url: 'ftp://a'}}"), "transport.tcp.url: \"ftp://a\""),
        (connect("{tcp: {url: 'https://a'}}"), "needs transport.tcp.tlsConfig"),
        (connect("{tcp: {url: 'http://a', tlsConfig: {}}}"), "needs an https:// URL"),
        (connect("{tcp: {uri: 'http://a'}}"), "uri"),
        (selections("[{name: nodes, connection: {proxyProtocol: Direct}}]"), "selects \"nodes\""),
        (
            selections(
                "[{name: etcd, connection: {proxyProtocol: Direct}}, {name: ETCD, connection: \
                 {proxyProtocol: Direct}}]",
            ),
            "selects etcd twice",
        ),
        (check("kind: Pod"), "has the kind \"Pod\""),
        (check("kind: EgressSelectorConfiguration\napiVersion: v1"), "has the apiVersion \"v1\""),
        (check("["), "is not YAML"),
        (check(""), "e.yaml"),
    ] {
        let sentence = outcome.unwrap_err();
        assert!(
            sentence.starts_with("--egress-selector-config-file: e.yaml")
                && sentence.contains(what),
            "{what}: {sentence}"
        );
        assert!(!sentence.contains('\n'), "{sentence}");
    }
}

#[test]
fn the_proxy_of_a_single_peer() {
    let url = ServerUrl { host: "proxy".into(), port: 3128 };
    assert_eq!(ProxyUrl::parse("http://proxy:3128").unwrap(), ProxyUrl::Http(url));
    assert_eq!(ProxyUrl::parse("unix:///run/p").unwrap(), ProxyUrl::Unix("/run/p".into()));
    assert_eq!(ProxyUrl::parse("direct").unwrap(), ProxyUrl::Direct);
    for text in ["https://proxy:1", "unix://run/p", "proxy:3128", "", "socks5://a:1"] {
        let sentence = ProxyUrl::parse(text).unwrap_err().to_string();
        assert!(sentence.starts_with("proxy-url ") && sentence.ends_with(FORM_END), "{sentence}");
    }
}

const FORM_END: &str = "write it as http://HOST:PORT, unix:///PATH or direct";
