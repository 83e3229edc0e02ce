//! Members by the cluster's own etcd: each keeps a key under a lease of 15 s ([`announce`]), and all
//! watch those of the others, and those of kube-apiservers with a proxy of their own ([`read`]).
//!
//! An etcd that gives no answer is nobody's end: what was known last stays. Any member of it will do;
//! the next is tried when one fails, hangs, or has lost its leader.

mod connect;
mod keep;
mod read;
mod stored;
#[cfg(test)]
mod tests;
mod trouble;

pub use connect::{Etcd, Tls};
pub use keep::announce;
pub use read::read;
pub use trouble::Trouble;

/// What the compiler makes of the protocols.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
mod proto {
    pub(super) mod etcd {
        tonic::include_proto!("etcdserverpb");
    }
    pub(super) mod stored {
        tonic::include_proto!("stored");
    }
}

/// Where gateways keep their keys, below the prefix of the cluster.
const OWN: &str = "mixed-version-proxy";
/// Where kube-apiservers keep theirs.
const SERVERS: &str = "peerserverleases";
