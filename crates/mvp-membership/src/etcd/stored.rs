//! The values of keys: JSON of our own for gateways, an Endpoints object in protobuf or JSON for
//! kube-apiservers.

use prost::Message;
use serde::{Deserialize, Serialize};

use super::proto::stored::{Endpoints, Unknown};

/// The prefix of an object that is stored as protobuf.
const MAGIC: &[u8] = b"k8s\0";

/// The value of a gateway's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GatewayKey {
    pub(super) id: String,
    pub(super) address: String,
    /// The unique name of the process, for people.
    pub(super) instance: String,
}

/// The address in an Endpoints object, as `IP:PORT`.
pub(super) fn address(stored: &[u8]) -> Option<String> {
    let (ip, port) = match stored.strip_prefix(MAGIC) {
        Some(wrapped) => {
            let unknown = Unknown::decode(wrapped).ok()?;
            let subset = Endpoints::decode(&*unknown.raw).ok()?.subsets.into_iter().next()?;
            let port = u16::try_from(subset.ports.first()?.port).ok()?;
            (subset.addresses.into_iter().next()?.ip, port)
        }
        None => {
            let subset = serde_json::from_slice::<Json>(stored).ok()?.subsets.into_iter().next()?;
            (subset.addresses.into_iter().next()?.ip, subset.ports.first()?.port)
        }
    };
    Some(std::net::SocketAddr::new(ip.parse().ok()?, port).to_string())
}

#[derive(Deserialize)]
struct Json {
    subsets: Vec<Subset>,
}

#[derive(Deserialize)]
struct Subset {
    addresses: Vec<Address>,
    ports: Vec<Port>,
}

#[derive(Deserialize)]
struct Address {
    ip: String,
}

#[derive(Deserialize)]
struct Port {
    port: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_stored_endpoints_object_is_read() {
        let json = br#"{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"x"},
            "subsets":[{"addresses":[{"ip":"fd00::2"}],"ports":[{"name":"https","port":6443}]}]}"#;
        assert_eq!(address(json).as_deref(), Some("[fd00::2]:6443"));
        // Field by field, by the numbers in k8s.io/api/core/v1/generated.proto: an ip, then ports
        // with a name and 6443, in a subset, after metadata with the name `x`.
        let mut raw = vec![0x0a, 3, 0x0a, 1, b'x'];
        let mut subset = vec![0x0a, 10, 0x0a, 8];
        subset.extend_from_slice(b"10.0.0.2");
        subset.extend_from_slice(&[0x1a, 10, 0x0a, 5]);
        subset.extend_from_slice(b"https");
        subset.extend_from_slice(&[0x10, 0xab, 0x32]);
        raw.extend_from_slice(&[0x12, u8::try_from(subset.len()).unwrap()]);
        raw.extend_from_slice(&subset);
        // A type, then the object.
        let mut stored = MAGIC.to_vec();
        stored.extend_from_slice(&[0x0a, 4, 0x0a, 2, b'v', b'1']);
        stored.extend_from_slice(&[0x12, u8::try_from(raw.len()).unwrap()]);
        stored.extend_from_slice(&raw);
        assert_eq!(address(&stored).as_deref(), Some("10.0.0.2:6443"));
        for end in 0..stored.len() - 1 {
            assert_eq!(address(&stored[..end]), None, "{end}");
        }
        for broken in [&b"{}"[..], b"", b"k8s\0", b"{\"subsets\":[]}", b"\xff\xff"] {
            assert_eq!(address(broken), None);
        }
    }
}
