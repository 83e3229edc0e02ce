//! What a server writes about itself: its identity Lease, and the StorageVersions of its resources.
//! Entry: [`Announcement::renew`].

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tower_service::Service;

use crate::review::Caller;
use crate::server::ApiServer;
use crate::spec::{GroupSpec, ServerSpec};
use crate::stamp;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
/// The tries of a write that others make at the same time.
const TRIES: usize = 10;

/// Announces one server to its cluster, through its own API.
#[derive(Debug, Clone)]
pub struct Announcement {
    server: ApiServer,
    hostname: String,
    identity: String,
    holder: String,
}

impl Announcement {
    /// The announcement of a server on this host.
    pub fn new(server: ApiServer, hostname: &str) -> Announcement {
        let identity = format!("apiserver-{}", base32(&Sha256::digest(hostname)));
        let holder = format!("{identity}_{}", stamp::unique_id());
        Announcement { server, hostname: hostname.to_owned(), identity, holder }
    }

    /// The name of the Lease: `apiserver-` and a hash of the host's name.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Renews the Lease, and creates it if it does not exist. A server without Leases does nothing.
    /// Returns whether the Lease is current.
    pub async fn renew(&self) -> bool {
        let now = stamp::now_micro();
        let path = format!("{LEASES}/{}", self.identity);
        for _ in 0..TRIES {
            let (code, mut lease) = self.send(Method::GET, &path, None).await;
            let outcome = if code == StatusCode::NOT_FOUND {
                self.send(Method::POST, LEASES, Some(self.lease(&now))).await
            } else {
                if let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut) {
                    spec.insert("holderIdentity".to_owned(), json!(self.holder));
                    spec.insert("renewTime".to_owned(), json!(now));
                }
                self.send(Method::PUT, &path, Some(lease)).await
            };
            match outcome.0 {
                StatusCode::CONFLICT => {}
                code => return code.is_success(),
            }
        }
        false
    }

    /// Writes into the StorageVersions which versions of which resources this server serves. A
    /// server without StorageVersions does nothing.
    pub async fn record(&self) {
        if self.send(Method::GET, STORAGE_VERSIONS, None).await.0 != StatusCode::OK {
            return;
        }
        for (name, versions) in stored(self.server.spec()) {
            self.record_one(&name, &versions).await;
        }
    }

    async fn record_one(&self, name: &str, versions: &[String]) {
        let path = format!("{STORAGE_VERSIONS}/{name}");
        for _ in 0..TRIES {
            let (code, mut object) = self.send(Method::GET, &path, None).await;
            if code == StatusCode::NOT_FOUND {
                let new = json!({"metadata": {"name": name}, "spec": {}});
                let (code, created) = self.send(Method::POST, STORAGE_VERSIONS, Some(new)).await;
                if code == StatusCode::CONFLICT {
                    continue;
                }
                object = created;
            }
            let status = object.get("status").cloned().unwrap_or_default();
            if let Some(object) = object.as_object_mut() {
                object.insert("status".to_owned(), self.with_own(&status, versions));
            }
            let (code, _) = self.send(Method::PUT, &format!("{path}/status"), Some(object)).await;
            if code != StatusCode::CONFLICT {
                return;
            }
        }
    }

    /// The status of a StorageVersion with the entry of this server.
    fn with_own(&self, status: &Value, versions: &[String]) -> Value {
        let entries = status.get("storageVersions").and_then(Value::as_array);
        let is_other = |entry: &&Value| {
            entry.get("apiServerID").and_then(Value::as_str) != Some(&self.identity)
        };
        let mut entries: Vec<Value> =
            entries.into_iter().flatten().filter(is_other).cloned().collect();
        entries.push(json!({
            "apiServerID": self.identity,
            "encodingVersion": versions.first(),
            "decodableVersions": versions,
            "servedVersions": versions,
        }));
        let encoding = |entry: &Value| entry.get("encodingVersion").cloned();
        let common = entries.first().and_then(encoding);
        let equal = entries.iter().all(|entry| encoding(entry) == common);
        let (held, reason, message) = if equal {
            ("True", "CommonEncodingVersionSet", "Common encoding version set")
        } else {
            ("False", "CommonEncodingVersionUnset", "Common encoding version unset")
        };
        let mut status = json!({
            "storageVersions": entries,
            "conditions": [{
                "type": "AllEncodingVersionsEqual", "status": held, "reason": reason,
                "message": message, "lastTransitionTime": stamp::now(), "observedGeneration": 1,
            }],
        });
        if let (true, Some(status)) = (equal, status.as_object_mut()) {
            status.insert("commonEncodingVersion".to_owned(), json!(common));
        }
        status
    }

    fn lease(&self, now: &str) -> Value {
        json!({
            "metadata": {
                "name": self.identity,
                "namespace": "kube-system",
                "labels": {
                    "apiserver.kubernetes.io/identity": "kube-apiserver",
                    "kubernetes.io/hostname": self.hostname,
                },
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": 3600,
                "acquireTime": now,
                "renewTime": now,
            },
        })
    }

    /// Sends a request to the server itself, as a server's own client does.
    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        let Ok(uri) = path.parse() else { return (StatusCode::BAD_REQUEST, Value::Null) };
        *request.uri_mut() = uri;
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        let caller = Caller { name: "system:apiserver".to_owned(), groups };
        request.extensions_mut().insert(caller);
        let Ok(response) = self.server.clone().call(request).await;
        let code = response.status();
        let Ok(body) = response.into_body().collect().await;
        (code, serde_json::from_slice(&body.to_bytes()).unwrap_or_default())
    }
}

/// The resources of a server that are stored, as `GROUP.RESOURCE`, with their versions.
fn stored(spec: &ServerSpec) -> BTreeMap<String, Vec<String>> {
    let mut stored: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for group in &spec.groups {
        for version in &group.versions {
            let readable = |resource: &&crate::spec::ResourceSpec| {
                resource.verbs.contains(&mvp_core::Verb::List)
            };
            for resource in version.resources.iter().filter(readable) {
                let entry = stored.entry(format!("{}.{}", label(group), resource.plural));
                entry.or_default().push(api_version(group, &version.version));
            }
        }
    }
    stored
}

fn label(group: &GroupSpec) -> &str {
    if group.name.is_empty() { "core" } else { &group.name }
}

fn api_version(group: &GroupSpec, version: &str) -> String {
    match group.name.as_str() {
        "" => version.to_owned(),
        name => format!("{name}/{version}"),
    }
}

/// The first 16 bytes in base 32, in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::new();
    let (mut bits, mut count) = (0_u32, 0_u32);
    let mut push = |bits: u32| {
        let place = usize::try_from(bits & 31).unwrap_or_default();
        text.extend(ALPHABET.get(place).copied().map(char::from));
    };
    for byte in bytes.iter().take(16) {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            push(bits >> count);
        }
        bits &= (1 << count) - 1;
    }
    if count > 0 {
        push(bits << (5 - count));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648: "foobar" is MZXW6YTBOI, and kube-apiserver uses the first 16 bytes of a hash.
    #[test]
    fn base_32_is_that_of_the_rfc() {
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
        assert_eq!(base32(b"fooba"), "mzxw6ytb");
        assert_eq!(base32(&[0; 32]).len(), 26);
    }
}
