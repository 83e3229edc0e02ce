//! Members by the EndpointSlices of `default/kubernetes`, which kube-apiservers maintain: addresses
//! without IDs. Entry item: [`read`].

use std::collections::BTreeMap;
use std::sync::Arc;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use mvp_proxy::control::{Ask, Clock};
use serde::Deserialize;
use tokio::sync::watch;

use crate::claim::{Claim, Claims, publish};
use crate::kube::watch::{Change, Collection, watch};
use crate::kube::{Metadata, Object, Trouble};
use crate::leases::dialable;

const PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const OBJECTS: &str = "EndpointSlices in default";
const SERVICE: &str = "kubernetes.io/service-name=kubernetes";

/// Reads the addresses of servers forever.
pub async fn read(ask: impl Ask, clock: Clock, claims: watch::Sender<Claims>) {
    let selector = ("labelSelector", SERVICE.to_owned());
    let collection = Collection { path: PATH.to_owned(), selector };
    let mut known = Known::default();
    watch(ask, collection, |change| publish(&claims, known.apply(change, clock.now()))).await;
}

/// The addresses of each slice by its name, and when each address was first seen.
#[derive(Default)]
struct Known {
    slices: BTreeMap<String, Vec<Arc<str>>>,
    since: BTreeMap<Arc<str>, Timestamp>,
    read: bool,
    partial: bool,
    deaf_since: Option<Timestamp>,
    problem: Option<String>,
    trouble: Trouble,
}

impl Known {
    fn apply(&mut self, change: Change<Slice>, now: Timestamp) -> Claims {
        match change {
            Change::Listed(slices, is_all) => {
                (self.read, self.partial) = (true, !is_all);
                let named = |slice: &Slice| (slice.metadata.name.clone(), slice.addresses());
                self.slices = slices.iter().map(named).collect();
            }
            Change::Applied(slice) => {
                self.slices.insert(slice.metadata.name.clone(), slice.addresses());
            }
            Change::Deleted(slice) => {
                self.slices.remove(&slice.metadata.name);
            }
            Change::Connected => {
                (self.deaf_since, self.problem) = (None, None);
                self.trouble.recovered(OBJECTS);
            }
            Change::Disconnected(error) => {
                self.deaf_since.get_or_insert(now);
                let problem = self.trouble.failed("read", OBJECTS, &error);
                self.problem = problem.or(self.problem.take());
            }
        }
        let before = std::mem::take(&mut self.since);
        for address in self.slices.values().flatten() {
            let since = before.get(address).copied().unwrap_or(now);
            self.since.insert(Arc::clone(address), since);
        }
        let claim = |(address, since): (&Arc<str>, &Timestamp)| Claim {
            id: None,
            address: Some(Arc::clone(address)),
            // Answers tell whether it is a gateway.
            kind: MemberKind::Bare,
            heard: None,
            announced: false,
            since: *since,
            seniority: Arc::default(),
        };
        Claims {
            claims: self.since.iter().map(claim).collect(),
            read: self.read,
            partial: self.partial,
            deaf_since: self.deaf_since,
            problem: self.problem.clone(),
        }
    }
}

/// The fields of an EndpointSlice that are used here.
#[derive(Deserialize)]
struct Slice {
    metadata: Metadata,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
struct Endpoint {
    addresses: Option<Vec<String>>,
    conditions: Option<Conditions>,
}

#[derive(Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct Port {
    name: Option<String>,
    port: Option<i64>,
}

impl Object for Slice {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl Slice {
    /// Each address with each HTTPS port. An endpoint that is not ready does not count, as for any
    /// client.
    fn addresses(&self) -> Vec<Arc<str>> {
        let ports = || self.ports.iter().flatten();
        let is_https = |port: &&Port| port.name.as_deref().is_none_or(|name| name == "https");
        let ports: Vec<i64> = ports().filter(is_https).filter_map(|port| port.port).collect();
        let ready = |endpoint: &&Endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
        };
        let endpoints = self.endpoints.iter().flatten().filter(ready);
        let ips = endpoints.flat_map(|endpoint| endpoint.addresses.iter().flatten());
        let all = ips.flat_map(|ip| ports.iter().map(move |port| (ip, port)));
        let all = all.filter_map(|(ip, port)| {
            let text =
                if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
            dialable(&text, false).ok()
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::ApiError;

    fn slice(name: &str, ips: &[&str], ready: Option<bool>) -> Slice {
        let slice = json!({
            "metadata": {"name": name}, "addressType": "IPv4",
            "endpoints": [{"addresses": ips, "conditions": {"ready": ready}}],
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}, {"name": "metrics", "port": 1}],
        });
        serde_json::from_value(slice).unwrap()
    }

    #[test]
    fn incomplete_slices_are_read_as_far_as_possible() {
        for (odd, addresses) in [
            (json!({"metadata": {"name": "a"}}), vec![]),
            (json!({"metadata": {}, "endpoints": null, "ports": null}), vec![]),
            (
                json!({
                    "metadata": {"name": "a"},
                    "endpoints": [{"addresses": null}, {"addresses": ["10.0.0.1"], "conditions": null}],
                    "ports": [{"port": 70000}, {"port": -1}, {"port": null}, {"port": 6443}],
                }),
                vec!["10.0.0.1:6443"],
            ),
        ] {
            let slice: Slice = serde_json::from_value(odd).unwrap();
            let found: Vec<String> = slice.addresses().iter().map(ToString::to_string).collect();
            assert_eq!(found, addresses);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn members_follow_the_slices() {
        let mut known = Known::default();
        let mut apply = |change| {
            let claims = known.apply(change, Timestamp::default());
            let addresses: Vec<String> = claims
                .claims
                .iter()
                .filter_map(|c| Some(c.address.as_ref()?.to_string()))
                .collect();
            (addresses, claims.deaf_since.is_some(), claims.problem)
        };
        let (one, two) =
            (["10.0.0.1:6443"].map(str::to_owned), ["10.0.0.2:6443"].map(str::to_owned));
        let both = [&one[..], &two[..]].concat();
        let listed = vec![slice("a", &["10.0.0.2", "10.0.0.1", "127.0.0.1", "x"], None)];
        assert_eq!(apply(Change::Listed(listed, true)), (both.clone(), false, None));
        let six = slice("b", &["fd00::1"], Some(true));
        assert_eq!(apply(Change::Applied(six)).0.last().unwrap(), "[fd00::1]:6443");
        let gone = slice("b", &[], None);
        assert_eq!(apply(Change::Deleted(gone)).0, both);
        let error = ApiError::Refused(http::StatusCode::FORBIDDEN, "no".to_owned());
        let (addresses, deaf, problem) = apply(Change::Disconnected(error.clone()));
        assert_eq!((addresses, deaf), (both, true), "the last known members stay");
        assert_eq!(problem, None, "a server that starts forbids everything");
        tokio::time::advance(std::time::Duration::from_secs(15)).await;
        let (_, _, problem) = apply(Change::Disconnected(error));
        assert!(problem.unwrap().contains("EndpointSlices"));
        let unready = slice("a", &["10.0.0.1"], Some(false));
        assert_eq!(apply(Change::Applied(unready)).0, [""; 0]);
        assert_eq!(apply(Change::Listed(vec![slice("a", &["10.0.0.1"], None)], true)).0, one);
        assert_eq!(apply(Change::Connected).2, None);
    }
}
