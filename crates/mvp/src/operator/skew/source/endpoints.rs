//! The servers behind one address: the endpoints of the Service `default/kubernetes`. Entry:
//! [`Endpoints::ask`].

use anyhow::Context;
use serde::Deserialize;

use super::{Found, MAX_SERVERS};
use crate::cli::{ServerUrl, server_url};
use crate::operator::kubeconfig::Credentials;
use crate::operator::skew::ask::{Target, ask_all, refusal};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                      ?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes";
/// The name that every kube-apiserver's certificate has.
const NAME: &str = "kubernetes.default.svc";

/// The endpoints that one server knows.
#[derive(Debug)]
pub(crate) struct Endpoints {
    pub(crate) through: Target,
    pub(crate) credentials: Credentials,
}

impl Endpoints {
    /// Asks each endpoint. If there is only one, or they cannot be listed, the server itself is asked: its
    /// address works for this user, that of the endpoint may not.
    pub(super) async fn ask(&self) -> anyhow::Result<Found> {
        let own = || std::slice::from_ref(&self.through);
        let (targets, remarks) = match self.list().await {
            Ok(targets) if targets.len() > 1 => (targets, Vec::new()),
            Ok(_) => (own().to_vec(), Vec::new()),
            Err(error) => {
                let what = format!(
                    "only the server of context {:?} is asked: the endpoints of default/kubernetes \
                     cannot be listed ({error:#})",
                    self.through.name
                );
                (own().to_vec(), vec![what])
            }
        };
        Ok(Found { servers: ask_all(&targets).await, remarks })
    }

    async fn list(&self) -> anyhow::Result<Vec<Target>> {
        let answer = self.through.way.get(SLICES, &[("accept", "application/json")]).await?;
        if let Some(problem) = refusal(answer.status, &answer.body) {
            return Err(problem.into());
        }
        let list: Slices = serde_json::from_slice(&answer.body).context("the EndpointSlices")?;
        let mut credentials = self.credentials.clone();
        credentials.server_name.get_or_insert_with(|| NAME.to_owned());
        let urls = list.urls();
        anyhow::ensure!(urls.len() <= MAX_SERVERS, "more than {MAX_SERVERS} endpoints");
        let target =
            |url: &ServerUrl| Ok(Target { name: url.authority(), way: credentials.way(url)? });
        urls.iter().map(target).collect()
    }
}

#[derive(Debug, Deserialize)]
struct Slices {
    items: Vec<Slice>,
}

#[derive(Debug, Deserialize)]
struct Slice {
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    addresses: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Port {
    port: Option<u16>,
}

impl Slices {
    /// The URLs of all endpoints, sorted.
    fn urls(&self) -> Vec<ServerUrl> {
        let mut urls = Vec::new();
        for slice in &self.items {
            let ports = || slice.ports.iter().flatten().filter_map(|entry| entry.port);
            for address in slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses)
            {
                let host =
                    if address.contains(':') { format!("[{address}]") } else { address.clone() };
                urls.extend(
                    ports().filter_map(|port| server_url(&format!("https://{host}:{port}")).ok()),
                );
            }
        }
        urls.sort_by_key(|url| (url.ip(), url.host.clone(), url.port));
        urls.dedup();
        urls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_every_slice_is_an_endpoint() {
        let text = r#"{"items": [
            {"endpoints": [{"addresses": ["10.0.0.10"]}, {"addresses": ["10.0.0.9", "10.0.0.10"]}],
             "ports": [{"name": "https", "port": 6443}]},
            {"endpoints": [{"addresses": ["fd00::1"]}], "ports": [{"port": 6443}]},
            {"endpoints": null, "ports": null},
            {"endpoints": [{"addresses": ["a b"]}], "ports": [{"port": 1}]}
        ]}"#;
        let slices: Slices = serde_json::from_str(text).unwrap();
        let urls: Vec<String> = slices.urls().iter().map(ToString::to_string).collect();
        assert_eq!(
            urls,
            ["https://10.0.0.9:6443", "https://10.0.0.10:6443", "https://[fd00::1]:6443"]
        );
    }
}
