//! Leases in `kube-system`, with the operations that gateways use: list, watch, apply. Entry item:
//! [`Leases`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::backend::{Body, JSON, answer, response};

pub(super) const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// The label of gateway Leases, as it appears in a query.
const LABEL: &str = "mixed-version-proxy%2Fmember";

/// All Leases and their history. The resource version is the length of the history.
#[derive(Default)]
pub(super) struct Leases {
    all: Arc<Mutex<All>>,
    version: watch::Sender<usize>,
}

#[derive(Default)]
struct All {
    leases: BTreeMap<String, Value>,
    /// One line for each event.
    events: Vec<Bytes>,
}

impl Leases {
    /// Renews the Lease of a member at this address.
    pub(super) fn renew(&self, member: usize, address: SocketAddr) {
        self.put(name(address), |count, lease| {
            json!({
                "metadata": {
                    "labels": {"mixed-version-proxy/member": "true"},
                    "annotations": {
                        "mixed-version-proxy/id": id(member),
                        "mixed-version-proxy/address": address.to_string(),
                        "mixed-version-proxy/version": "0.1.0",
                        "mixed-version-proxy/server-version": "1.36.4",
                    },
                },
                "spec": {
                    "holderIdentity": holder(member, address),
                    "leaseDurationSeconds": 40,
                    "acquireTime": lease.pointer("/spec/acquireTime").unwrap_or(&moment(count)),
                    "renewTime": moment(count),
                },
            })
        });
    }

    /// Removes the member at this address.
    pub(super) fn remove(&self, address: SocketAddr) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut lease) = all.leases.remove(&name(address)) {
            stamp(&mut lease, all.events.len() + 1);
            self.tell(&mut all, "DELETED", &lease);
        }
    }

    /// A server-side apply by the gateway under test.
    pub(super) fn apply(&self, name: &str, lease: &[u8]) -> Response<Body> {
        let Ok(applied) = serde_json::from_slice::<Value>(lease) else {
            return answer(StatusCode::BAD_REQUEST, None, Bytes::new());
        };
        let lease = self.put(name.to_owned(), |_, _| applied);
        answer(StatusCode::OK, Some(JSON), lease.to_string().into())
    }

    /// A list or a watch. There are no Leases of kube-apiservers.
    pub(super) fn get(&self, query: &str) -> Response<Body> {
        let ours = query.contains(LABEL);
        let of =
            |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        if of("watch").is_some() {
            let from = of("resourceVersion").and_then(|version| version.parse().ok());
            return self.watch(from.unwrap_or_default(), ours);
        }
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let items: Vec<&Value> = all.leases.values().filter(|_| ours).collect();
        let list = json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"resourceVersion": all.events.len().to_string()}, "items": items});
        answer(StatusCode::OK, Some(JSON), list.to_string().into())
    }

    fn watch(&self, from: usize, ours: bool) -> Response<Body> {
        let version = self.version.subscribe();
        let events = stream::unfold((from, version), move |(from, mut version)| async move {
            version.wait_for(|version| ours && *version > from).await.ok()?;
            Some((from, (from + 1, version)))
        });
        let all = Arc::clone(&self.all);
        let lines = events.filter_map(move |index| {
            let all = all.lock().unwrap_or_else(PoisonError::into_inner);
            std::future::ready(all.events.get(index).cloned())
        });
        let body = StreamBody::new(lines.map(|line| Ok(Frame::data(line)))).boxed_unsync();
        response(StatusCode::OK, Some(JSON), body)
    }

    /// Creates or replaces a Lease. `make` gets the number of the event and the previous Lease.
    fn put(&self, name: String, make: impl FnOnce(usize, &Value) -> Value) -> Value {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.events.len() + 1;
        let old = all.leases.remove(&name);
        let mut lease = make(count, old.as_ref().unwrap_or(&Value::Null));
        let made = old.as_ref().and_then(|old| old.pointer("/metadata/creationTimestamp"));
        let made = made.cloned().unwrap_or_else(|| moment(count));
        if let Some(lease) = lease.as_object_mut() {
            lease.insert("kind".to_owned(), "Lease".into());
            lease.insert("apiVersion".to_owned(), "coordination.k8s.io/v1".into());
        }
        if let Some(metadata) = lease.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("name".to_owned(), name.clone().into());
            metadata.insert("namespace".to_owned(), "kube-system".into());
            metadata.insert("uid".to_owned(), "6f1c1d0e-0000-4000-8000-000000000000".into());
            metadata.insert("creationTimestamp".to_owned(), made);
            metadata.insert("managedFields".to_owned(), managed_fields());
        }
        stamp(&mut lease, count);
        self.tell(&mut all, if old.is_some() { "MODIFIED" } else { "ADDED" }, &lease);
        all.leases.insert(name, lease.clone());
        lease
    }

    fn tell(&self, all: &mut All, kind: &str, lease: &Value) {
        let line = json!({"type": kind, "object": lease}).to_string() + "\n";
        all.events.push(line.into());
        self.version.send_replace(all.events.len());
    }
}

fn id(member: usize) -> String {
    format!("apiserver-{member:02}")
}

/// The process name of a member, different at each address.
pub(super) fn holder(member: usize, address: SocketAddr) -> String {
    format!("{}_{}", id(member), name(address))
}

fn name(address: SocketAddr) -> String {
    format!("mvp-{}", address.to_string().replace(['.', ':'], "-"))
}

fn stamp(lease: &mut Value, version: usize) {
    if let Some(metadata) = lease.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), version.to_string().into());
    }
}

/// A timestamp that no other event has. Gateways compare it only with itself.
fn moment(count: usize) -> Value {
    let (seconds, rest) = (count / 1_000_000 % 60, count % 1_000_000);
    format!("2026-01-01T00:00:{seconds:02}.{rest:06}Z").into()
}

/// The managed fields of server-side apply: half of the size of a Lease.
fn managed_fields() -> Value {
    json!([{"manager": "mvp", "operation": "Apply", "apiVersion": "coordination.k8s.io/v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {
            "f:metadata": {
                "f:annotations": {"f:mixed-version-proxy/address": {}, "f:mixed-version-proxy/id": {},
                    "f:mixed-version-proxy/server-version": {}, "f:mixed-version-proxy/version": {}},
                "f:labels": {"f:mixed-version-proxy/member": {}}},
            "f:spec": {"f:acquireTime": {}, "f:holderIdentity": {}, "f:leaseDurationSeconds": {},
                "f:renewTime": {}}}}])
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn next(watch: &mut Body) -> Value {
        let frame = watch.frame().await.expect("an event").expect("no error");
        serde_json::from_slice(&frame.into_data().expect("data")).expect("JSON")
    }

    #[tokio::test]
    async fn a_watch_goes_on_where_the_list_ended() {
        let (leases, one) = (Leases::default(), "127.0.0.1:1".parse().expect("an address"));
        leases.renew(0, one);
        let query = format!("labelSelector={LABEL}%3Dtrue");
        let list = leases.get(&query).into_body().collect().await.expect("a list").to_bytes();
        let list: Value = serde_json::from_slice(&list).expect("JSON");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
        let version = list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();

        let query = format!("{query}&watch=true&resourceVersion={version}");
        let mut watch = leases.get(&query).into_body();
        leases.renew(0, one);
        leases.remove(one);
        let renewed = next(&mut watch).await;
        assert_eq!(renewed["type"], "MODIFIED");
        let time = |lease: &Value| lease["spec"]["renewTime"].clone();
        assert_ne!(time(&renewed["object"]), time(&list["items"][0]), "a sign of life");
        assert_eq!(next(&mut watch).await["type"], "DELETED");
        leases.apply("own", br#"{"metadata":{},"spec":{}}"#);
        assert_eq!(next(&mut watch).await["object"]["metadata"]["name"], "own");
    }
}
