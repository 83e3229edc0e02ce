//! Members by the EndpointSlices of `default/kubernetes`, which kube-apiservers maintain: addresses
//! without IDs. Entry item: [`read`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use mvp_proxy::control::{Ask, Clock};
use serde::Deserialize;
use tokio::sync::watch;

use crate::claim::{Claim, Claims, publish};
use crate::kube::watch::{Change, Collection, watch};
use crate::kube::{Metadata, Object, Trouble, encoded};
use crate::leases::dialable;

const PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const OBJECTS: &str = "EndpointSlices in default";
const SERVICE: &str = "kubernetes.io/service-name=kubernetes";

/// Reads the addresses of servers forever.
pub async fn read(ask: impl Ask, clock: Clock, options: Options, claims: watch::Sender<Claims>) {
    let selector = ("labelSelector", SERVICE.to_owned());
    let collection = Collection { path: PATH.to_owned(), selector };
    let mut known = Known::new(options);
    publish(&claims, known.claims(clock.now()));
    watch(ask, collection, |change| publish(&claims, known.apply(change, clock.now()))).await;
}

/// How EndpointSlices are read.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The addresses of an earlier run. They are members until the list was read.
    pub last_known: Vec<Arc<str>>,
    /// Whether the other sources are enough if this one cannot be read: then nothing waits for it, and
    /// a failure is logged but is not a problem.
    pub optional: bool,
    /// Whether all members are on this host, so that loopback addresses count.
    pub one_host: bool,
}

/// The path of the list of these EndpointSlices, for readers without a watch.
pub fn list_path() -> String {
    format!("{PATH}?labelSelector={}", encoded(SERVICE))
}

/// The addresses of servers in a list of EndpointSlices, as JSON. A loopback address counts only with
/// `one_host`: if all members are on this host.
pub fn addresses(list: &[u8], one_host: bool) -> Result<Vec<Arc<str>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct List {
        items: Option<Vec<Slice>>,
    }
    let list: List = serde_json::from_slice(list)?;
    let found = list.items.iter().flatten().flat_map(|slice| slice.addresses(one_host));
    let found: BTreeSet<Arc<str>> = found.collect();
    Ok(found.into_iter().collect())
}

/// The addresses of each slice by its name, and when each address was first seen.
#[derive(Default)]
struct Known {
    options: Options,
    slices: BTreeMap<String, Vec<Arc<str>>>,
    since: BTreeMap<Arc<str>, Timestamp>,
    read: bool,
    partial: bool,
    deaf_since: Option<Timestamp>,
    problem: Option<String>,
    trouble: Trouble,
}

impl Known {
    /// The last known addresses are the first slice, which no name can be that of.
    fn new(options: Options) -> Known {
        let slices = BTreeMap::from([(String::new(), options.last_known.clone())]);
        Known { options, slices, ..Known::default() }
    }

    fn apply(&mut self, change: Change<Slice>, now: Timestamp) -> Claims {
        let one_host = self.options.one_host;
        match change {
            Change::Listed(slices, is_all) => {
                (self.read, self.partial) = (true, !is_all);
                let named =
                    |slice: &Slice| (slice.metadata.name.clone(), slice.addresses(one_host));
                self.slices = slices.iter().map(named).collect();
            }
            Change::Applied(slice) => {
                self.slices.insert(slice.metadata.name.clone(), slice.addresses(one_host));
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
                if self.options.optional {
                    (self.read, self.problem) = (true, None);
                }
            }
        }
        self.claims(now)
    }

    fn claims(&mut self, now: Timestamp) -> Claims {
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
    fn addresses(&self, one_host: bool) -> Vec<Arc<str>> {
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
            dialable(&text, one_host).ok()
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
            let found: Vec<String> =
                slice.addresses(false).iter().map(ToString::to_string).collect();
            assert_eq!(found, addresses);
        }
    }

    fn addresses_of(claims: &Claims) -> Vec<String> {
        claims.claims.iter().filter_map(|c| Some(c.address.as_ref()?.to_string())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn last_known_members_stay_until_the_list_was_read() {
        let last_known = vec!["10.0.0.7:6443".into()];
        let mut known = Known::new(Options { last_known, ..Options::default() });
        let now = Timestamp::default();
        let claims = known.claims(now);
        assert_eq!((addresses_of(&claims), claims.read), (vec!["10.0.0.7:6443".to_owned()], false));
        let down = ApiError::Failed("refused".to_owned());
        let claims = known.apply(Change::Disconnected(down), now);
        assert_eq!((addresses_of(&claims).len(), claims.read), (1, false));
        let listed = Change::Listed(vec![slice("kubernetes", &["10.0.0.1"], None)], true);
        let claims = known.apply(listed, now);
        assert_eq!((addresses_of(&claims), claims.read), (vec!["10.0.0.1:6443".to_owned()], true));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_waits_for_an_optional_source_that_cannot_be_read() {
        let mut known = Known::new(Options { optional: true, ..Options::default() });
        let now = Timestamp::default();
        assert!(!known.claims(now).read, "until the first answer, there may be more members");
        let error = ApiError::Refused(http::StatusCode::FORBIDDEN, "no".to_owned());
        let claims = known.apply(Change::Disconnected(error.clone()), now);
        assert!(claims.read);
        tokio::time::advance(std::time::Duration::from_secs(15)).await;
        let claims = known.apply(Change::Disconnected(error), now);
        assert_eq!((claims.read, claims.problem), (true, None));
        let listed = Change::Listed(vec![slice("kubernetes", &["10.0.0.1"], None)], true);
        assert_eq!(addresses_of(&known.apply(listed, now)), ["10.0.0.1:6443"]);
    }

    #[test]
    fn a_list_without_a_watch_is_read_too() {
        let item = |name: &str, ips: &[&str]| {
            json!({
                "metadata": {"name": name}, "endpoints": [{"addresses": ips}],
                "ports": [{"name": "https", "port": 6443}],
            })
        };
        let items = [item("a", &["10.0.0.2", "127.0.0.1"]), item("b", &["10.0.0.1", "10.0.0.2"])];
        let list = json!({"items": items}).to_string();
        let found = |one_host| -> Vec<String> {
            let found = addresses(list.as_bytes(), one_host).unwrap();
            found.iter().map(ToString::to_string).collect()
        };
        assert_eq!(found(false), ["10.0.0.1:6443", "10.0.0.2:6443"]);
        assert_eq!(found(true), ["10.0.0.1:6443", "10.0.0.2:6443", "127.0.0.1:6443"]);
        assert_eq!(addresses(br#"{"items": null}"#, false).unwrap(), []);
        assert!(addresses(b"no", false).is_err());
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
