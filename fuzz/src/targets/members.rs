//! What membership reads: Leases, EndpointSlices, their lists and watches, and the values of etcd keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use mvp_membership::{Claims, Source, endpoints, etcd, leases};
use mvp_proxy::Body;
use mvp_proxy::control::{Ask, AskError, Clock};

use super::fetch::block_on;
use crate::input::{Input, joined};
use crate::target::Target;

pub const TARGET: Target = Target {
    name: "members",
    run,
    seeds,
    words: &[
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[",
        "\"name\":\"",
        "\"annotations\":{",
        "\"mixed-version-proxy/id\":\"b\"",
        "\"mixed-version-proxy/address\":\"10.0.0.2:6443\"",
        "\"kubernetes.io/peer-advertise-address\":\"",
        "\"spec\":{\"renewTime\":\"",
        "\"continue\":\"x\"",
        "{\"type\":\"ADDED\",\"object\":",
        "{\"type\":\"DELETED\",\"object\":",
        "\"BOOKMARK\"",
        "\"ERROR\"",
        "\"code\":410",
        "\"endpoints\":[{\"addresses\":[\"10.0.0.3\"]}]",
        "\"ports\":[{\"name\":\"https\",\"port\":6443}]",
        "\"conditions\":{\"ready\":false}",
        "k8s\0",
        "[fd00::2]:1",
        "127.0.0.1",
        "0.0.0.0",
        "\n",
        "\0",
        "{\"subsets\":[{\"addresses\":[{\"ip\":\"",
    ],
};

/// Answers a list, a watch, and then nothing any more.
struct Server {
    answers: [Bytes; 2],
    asked: AtomicUsize,
}

impl Ask for Server {
    async fn ask(&self, _: Request<Body>) -> Result<Response<Body>, AskError> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        match self.answers.get(number) {
            Some(body) => Ok(Response::new(Body::from(body.clone()))),
            None => Err(AskError::new("it is gone")),
        }
    }
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let one_host = input.byte() & 1 == 1;
    if let [b'e', rest @ ..] = input.rest() {
        return values(rest);
    }
    let answers = [input.part(), input.part()].map(Bytes::copy_from_slice);
    let _ =
        endpoints::addresses(&answers[0], one_host).map(|all| all.iter().for_each(|a| dialable(a)));
    let server = || Server { answers: answers.clone(), asked: AtomicUsize::new(0) };
    let said = block_on(async {
        let (clock, mut said) = (Clock::start(), Vec::new());
        let (sender, source) = Source::new("identities");
        until_silent(leases::read_identities(server(), clock, one_host, sender)).await;
        said.push(source);
        let (sender, source) = Source::new("leases");
        let own = leases::OwnLease::new(leases::Announcement {
            id: "a".to_owned(),
            address: ([10, 0, 0, 1], 6443).into(),
            instance: "a-1".to_owned(),
        });
        let board = leases::Board::default();
        until_silent(leases::read(server(), clock, Arc::new(own), board, sender)).await;
        said.push(source);
        let (sender, source) = Source::new("endpoints");
        let options = endpoints::Options { one_host, ..endpoints::Options::default() };
        until_silent(endpoints::read(server(), clock, options, sender)).await;
        said.push(source);
        said
    });
    for source in said {
        let claims: Claims = source.claims.borrow().clone();
        for claim in claims.claims {
            claim.address.iter().for_each(|address| dialable(address));
            assert!(claim.id.is_none_or(|id| id.len() <= data.len()));
        }
    }
}

/// Runs a reader until its server is gone.
async fn until_silent(reader: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(Duration::from_secs(3), reader).await;
}

/// An address of a member is one that can be dialled.
fn dialable(address: &str) {
    let address: std::net::SocketAddr = address.parse().expect("an address");
    assert!(!address.ip().is_unspecified() && address.port() != 0, "{address}");
}

fn values(value: &[u8]) {
    if let Some((id, address)) = etcd::fuzzing::gateway(value) {
        assert!(!id.is_empty() && id.len() <= 253);
        dialable(&address);
    }
    if let Some((_, address)) = etcd::fuzzing::server("apiserver-a", value) {
        dialable(&address);
    }
    let _ = etcd::fuzzing::server(&String::from_utf8_lossy(value), value);
}

fn seeds() -> Vec<Vec<u8>> {
    let lease = r#"{"metadata":{"namespace":"kube-system","name":"mvp-b-1","uid":"u","resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"mixed-version-proxy/id":"b","mixed-version-proxy/address":"10.0.0.2:6443"}},"spec":{"holderIdentity":"b-2","renewTime":"2026-01-01T00:00:05.000000Z"}}"#;
    let identity = r#"{"metadata":{"name":"apiserver-b","uid":"u","resourceVersion":"8","annotations":{"kubernetes.io/peer-advertise-address":"10.0.0.2:6443"}},"spec":{"renewTime":"x"}}"#;
    let slice = r#"{"metadata":{"name":"kubernetes","resourceVersion":"9"},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}},{"addresses":["fd00::1"],"conditions":null}],"ports":[{"name":"https","port":6443,"protocol":"TCP"}]}"#;
    let seed = |object: &str| {
        let list = format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{object}]}}"#);
        let bookmark = r#"{"metadata":{"resourceVersion":"12"}}"#;
        let watch = [
            format!(r#"{{"type":"MODIFIED","object":{object}}}"#),
            format!(r#"{{"type":"BOOKMARK","object":{bookmark}}}"#),
            format!(r#"{{"type":"DELETED","object":{object}}}"#),
            r#"{"type":"ERROR","object":{"code":410,"message":"too old"}}"#.to_owned(),
        ];
        let watch = watch.join("\n") + "\n";
        [&[0][..], &joined(&[list.as_bytes(), watch.as_bytes()])].concat()
    };
    let mut all: Vec<Vec<u8>> = [lease, identity, slice].map(seed).into();
    let stored = b"k8s\0\x0a\x04\x0a\x02v1\x12\x21\x0a\x03\x0a\x01x\x12\x1a\x0a\x0a\x0a\x0810.0.0.2\x1a\x0c\x0a\x05https\x10\xab\x32\x18\x00";
    for value in [
        &br#"{"id":"b","address":"10.0.0.2:6443","instance":"b-1"}"#[..],
        br#"{"kind":"Endpoints","subsets":[{"addresses":[{"ip":"fd00::2"}],"ports":[{"port":6443}]}]}"#,
        stored,
    ] {
        all.push([&[0, b'e'][..], value].concat());
    }
    all
}
