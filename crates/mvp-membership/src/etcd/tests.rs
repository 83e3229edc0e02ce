//! Gateways on an etcd in this process, and on etcd members that do not answer.

mod double;

use std::sync::Arc;
use std::time::Duration;

use mvp_core::member::MemberKind;
use mvp_proxy::control::Clock;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use testkit::certificates::{Ca, Pair, cn};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::claim::{Claims, Source};
use crate::leases::Announcement;
use double::Double;

const FOLDER: &str = "/registry/mixed-version-proxy/";

/// A gateway: its own key, and what it reads.
struct Gateway {
    source: Source,
    servers: Source,
    reads: watch::Receiver<Trouble>,
    keeps: watch::Receiver<Trouble>,
    leaving: CancellationToken,
    keeping: JoinHandle<()>,
    reading: JoinHandle<()>,
}

impl Gateway {
    fn start(etcd: &Etcd, id: &str, address: &str) -> Gateway {
        let announcement = Announcement {
            id: id.to_owned(),
            address: address.parse().unwrap(),
            instance: "1".to_owned(),
        };
        let ((gateways, source), (claims, servers)) = (Source::new("etcd"), Source::new("etcd"));
        let (reading, reads) = watch::channel(Trouble::default());
        let (keeping, keeps) = watch::channel(Trouble::default());
        let leaving = CancellationToken::new();
        let read = read(etcd.clone(), Clock::start(), true, gateways, claims, reading);
        let keep = announce(etcd.clone(), announcement, keeping, leaving.clone());
        let (reading, keeping) = (tokio::spawn(read), tokio::spawn(keep));
        Gateway { source, servers, reads, keeps, leaving, keeping, reading }
    }

    /// Waits until it has read these members, as `ID ADDRESS`.
    async fn until_it_knows(&mut self, expected: &[&str]) {
        let is = |claims: &Claims| claims.read && known(claims) == expected;
        let waited = tokio::time::timeout(SOON, self.source.claims.wait_for(is)).await.map(drop);
        let known = known(&self.source.claims.borrow());
        let why = (self.reads.borrow().clone(), self.keeps.borrow().clone());
        assert!(waited.is_ok(), "{known:?}, not {expected:?}: {why:?}");
    }

    async fn leave(mut self) {
        self.leaving.cancel();
        (&mut self.keeping).await.unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.reading.abort();
        self.keeping.abort();
    }
}

/// The deadline of a wait. The event comes at once, except on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn known(claims: &Claims) -> Vec<String> {
    let shown = |claim: &crate::Claim| {
        format!("{} {}", claim.id.as_deref().unwrap(), claim.address.as_deref().unwrap())
    };
    claims.claims.iter().map(shown).collect()
}

fn plain(urls: &[&str]) -> Etcd {
    let servers = urls.iter().map(|url| url.parse().unwrap()).collect();
    Etcd::new(servers, "registry", watch::channel(None).1)
}

/// Accepts connections, and never responds.
async fn hangs() -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    (url, task)
}

#[tokio::test]
async fn gateways_find_each_other_and_see_a_shutdown() {
    let double = Double::start().await;
    let etcd = plain(&[&double.url]);
    let mut a = Gateway::start(&etcd, "a", "10.0.0.1:6443");
    let b = Gateway::start(&etcd, "b", "[fd00::2]:6443");
    a.until_it_knows(&["a 10.0.0.1:6443", "b [fd00::2]:6443"]).await;
    b.leave().await;
    assert_eq!(double.keys(), [format!("{FOLDER}a@10.0.0.1:6443")], "withdrawn before the end");
    a.until_it_knows(&["a 10.0.0.1:6443"]).await;
    // A key of kube-apiserver.
    let endpoints = r#"{"subsets":[{"addresses":[{"ip":"10.0.0.3"}],"ports":[{"port":6443}]}]}"#;
    double.put("/registry/peerserverleases/apiserver-c", endpoints);
    let is = |claims: &Claims| known(claims) == ["apiserver-c 10.0.0.3:6443"];
    let claims = a.servers.claims.wait_for(is).await.unwrap().clone();
    assert_eq!(claims.claims.first().unwrap().kind, MemberKind::Bare);
}

/// A client that may write to etcd invents keys. Those that cannot be members are ignored, the others are
/// claims that the members must prove.
#[tokio::test]
async fn forged_and_malformed_keys_are_ignored() {
    let double = Double::start().await;
    let etcd = plain(&[&double.url]);
    let mut a = Gateway::start(&etcd, "a", "10.0.0.1:6443");
    a.until_it_knows(&["a 10.0.0.1:6443"]).await;
    let gateway = |id: &str, address: &str| {
        serde_json::json!({ "id": id, "address": address, "instance": "1" }).to_string()
    };
    let long = "x".repeat(1 << 20);
    let bad = [
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "{".to_owned(),
        "\0\u{1}".to_owned(),
        "[".repeat(1 << 20),
        r#"{"id":["#.to_owned() + &"[".repeat(100_000),
        r#"{"id":"b","address":"10.0.0.2:6443"}"#.to_owned(),
        r#"{"id":1,"address":"10.0.0.2:6443","instance":"1"}"#.to_owned(),
        gateway("", "10.0.0.2:6443"),
        gateway("../b", "10.0.0.2:6443"),
        gateway("b\nc", "10.0.0.2:6443"),
        gateway("b c", "10.0.0.2:6443"),
        gateway("\u{202e}b", "10.0.0.2:6443"),
        gateway(&long, "10.0.0.2:6443"),
        gateway("b", ""),
        gateway("b", "10.0.0.2"),
        gateway("b", "10.0.0.2:0"),
        gateway("b", "0.0.0.0:6443"),
        gateway("b", "[::]:6443"),
        gateway("b", "[::ffff:0.0.0.0]:6443"),
        gateway("b", "224.0.0.1:6443"),
        gateway("b", "evil.example:6443"),
        gateway("b", "https://10.0.0.2:6443"),
        gateway("b", "10.0.0.2:6443\r\nx"),
        gateway("b", &long),
    ];
    let servers = "/registry/peerserverleases/";
    let protobuf = ["k8s\0", "k8s\0\u{12}\u{7f}", "k8s\0\n\0\u{12}\u{7f}\u{7f}\u{7f}\u{7f}"];
    for (number, value) in bad.iter().map(String::as_str).chain(protobuf).enumerate() {
        double.put(&format!("{FOLDER}{number}"), value);
        double.put(&format!("{servers}apiserver-{number}"), value);
    }
    let endpoints = r#"{"subsets":[{"addresses":[{"ip":"10.0.0.3"}],"ports":[{"port":6443}]}]}"#;
    for name in ["../a", "a\nb", "", &long] {
        double.put(&format!("{servers}{name}"), endpoints);
    }
    // Another member's ID, at another address: a claim, and its certificate decides.
    double.put(&format!("{FOLDER}forged"), &gateway("a", "10.6.6.6:6443"));
    double.put(&format!("{servers}apiserver-c"), endpoints);
    a.until_it_knows(&["a 10.0.0.1:6443", "a 10.6.6.6:6443"]).await;
    let is = |claims: &Claims| known(claims) == ["apiserver-c 10.0.0.3:6443"];
    assert!(tokio::time::timeout(SOON, a.servers.claims.wait_for(is)).await.is_ok());
    // Those who read them all at once see the same.
    let mut late = Gateway::start(&etcd, "z", "10.0.0.9:6443");
    late.until_it_knows(&["a 10.0.0.1:6443", "a 10.6.6.6:6443", "z 10.0.0.9:6443"]).await;
}

#[test]
fn errors_quote_the_start_of_a_long_text() {
    let long = "é".repeat(1 << 20);
    for error in [crate::leases::is_id(&long), crate::leases::dialable(&long, true)] {
        let error = error.unwrap_err();
        assert!(error.contains("\"éé") && error.len() < 300, "{} bytes", error.len());
    }
}

#[tokio::test]
async fn a_key_that_somebody_deletes_is_repaired() {
    let double = Double::start().await;
    let etcd = plain(&[&double.url]);
    let mut a = Gateway::start(&etcd, "a", "10.0.0.1:6443");
    let _b = Gateway::start(&etcd, "b", "10.0.0.2:6443");
    let both = ["a 10.0.0.1:6443", "b 10.0.0.2:6443"];
    a.until_it_knows(&both).await;
    double.delete(&format!("{FOLDER}b@10.0.0.2:6443"));
    a.until_it_knows(&["a 10.0.0.1:6443"]).await;
    a.until_it_knows(&both).await;
    assert_eq!(double.leases().len(), 2, "under the same leases");
}

#[tokio::test]
async fn an_expired_lease_is_replaced() {
    let double = Double::start().await;
    let mut a = Gateway::start(&plain(&[&double.url]), "a", "10.0.0.1:6443");
    a.until_it_knows(&["a 10.0.0.1:6443"]).await;
    let before = double.leases();
    double.end_leases();
    a.until_it_knows(&[]).await;
    a.until_it_knows(&["a 10.0.0.1:6443"]).await;
    assert_ne!(double.leases(), before);
}

#[tokio::test]
async fn after_a_compaction_all_keys_are_read_again() {
    let double = Double::start().await;
    let mut a = Gateway::start(&plain(&[&double.url]), "a", "10.0.0.1:6443");
    let x = r#"{"id":"x","address":"10.0.0.9:6443","instance":"1"}"#;
    double.put(&format!("{FOLDER}x@10.0.0.9:6443"), x);
    a.until_it_knows(&["a 10.0.0.1:6443", "x 10.0.0.9:6443"]).await;
    double.delete_and_compact(&format!("{FOLDER}x@10.0.0.9:6443"));
    a.until_it_knows(&["a 10.0.0.1:6443"]).await;
    // Later changes are seen, too.
    double.put(&format!("{FOLDER}x@10.0.0.9:6443"), x);
    a.until_it_knows(&["a 10.0.0.1:6443", "x 10.0.0.9:6443"]).await;
}

#[tokio::test]
async fn a_gateway_that_may_not_write_reports_it_and_still_reads() {
    let double = Double::start().await;
    double.forbid(true);
    let mut a = Gateway::start(&plain(&[&double.url]), "a", "10.0.0.1:6443");
    let trouble = a.keeps.wait_for(|trouble| trouble.problem.is_some()).await.unwrap().clone();
    let problem = trouble.problem.unwrap();
    assert!(problem.contains("permission denied") && problem.contains("--etcd-certfile"));
    double.put(&format!("{FOLDER}x@y"), r#"{"id":"x","address":"10.0.0.9:1","instance":"1"}"#);
    a.until_it_knows(&["x 10.0.0.9:1"]).await;
    assert_eq!(*a.reads.borrow(), Trouble::default(), "reading works");
    double.forbid(false);
    a.until_it_knows(&["a 10.0.0.1:6443", "x 10.0.0.9:1"]).await;
    a.keeps.wait_for(|trouble| *trouble == Trouble::default()).await.unwrap();
}

/// A withdrawal goes to all etcd members, so that one that hangs costs no time.
#[tokio::test]
async fn one_etcd_member_that_hangs_delays_nothing() {
    let (double, (silent, _hangs)) = (Double::start().await, hangs().await);
    let etcd = plain(&[&silent, &double.url, &silent]);
    let mut a = Gateway::start(&etcd, "a", "10.0.0.1:6443");
    a.until_it_knows(&["a 10.0.0.1:6443"]).await;
    a.leave().await;
    assert_eq!(double.keys(), [""; 0]);
}

/// On a paused clock.
#[tokio::test(start_paused = true)]
async fn a_failure_that_lasts_is_reported() {
    let (silent, _hangs) = hangs().await;
    let begun = tokio::time::Instant::now();
    let mut a = Gateway::start(&plain(&[&silent]), "a", "10.0.0.1:6443");
    for (troubles, says) in
        [(&mut a.keeps, "renewing our key"), (&mut a.reads, "reading members from etcd fails")]
    {
        let trouble = troubles.wait_for(|trouble| trouble.lasting.is_some()).await.unwrap().clone();
        assert_eq!(trouble.problem, None, "the cause is unknown");
        let lasting = trouble.lasting.unwrap();
        assert!(lasting.starts_with(says), "{lasting}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(15), "a short failure is not reported");
    assert!(!a.source.claims.borrow().read);
}

/// A server over TLS that wants client certificates, and is no etcd.
async fn wary(ca: &Ca) -> (String, JoinHandle<()>) {
    let server = ca.server(&["127.0.0.1"]);
    let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::clone(&provider),
    );
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(server.chain(), key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The alert tells the client why.
            let _ = acceptor.accept(stream).await;
        }
    });
    (url, task)
}

#[tokio::test]
async fn certificate_errors_are_reported_and_new_certificates_take_effect() {
    let (good, other) = (Ca::new("good"), Ca::new("other"));
    let tls = |ca: &Ca, pair: Option<Pair>| {
        let pair = pair.as_ref().map(Pair::pem);
        let tls = mvp_net::ClientTls::new(ca.pem().as_bytes(), pair).unwrap();
        Some(tls.config(&[b"h2"]))
    };
    let (url, _task) = wary(&good).await;
    let in_force = watch::Sender::new(tls(&other, None));
    let etcd = Etcd::new(vec![url.parse().unwrap()], "registry", in_force.subscribe());
    let mut a = Gateway::start(&etcd, "a", "10.0.0.1:6443");
    for (new, says) in [
        (tls(&other, None), "etcd's certificate cannot be verified"),
        (tls(&good, None), "etcd requires a client certificate; set --etcd-certfile"),
        (tls(&good, Some(other.client(&[cn("gateway")]))), "etcd rejects the client certificate"),
    ] {
        in_force.send_replace(new);
        for troubles in [&mut a.keeps, &mut a.reads] {
            let is = |trouble: &Trouble| {
                trouble.problem.as_ref().is_some_and(|problem| problem.starts_with(says))
            };
            let waited = tokio::time::timeout(SOON, troubles.wait_for(is)).await;
            drop(waited.unwrap_or_else(|_| panic!("{says}: never reported")));
        }
    }
}
