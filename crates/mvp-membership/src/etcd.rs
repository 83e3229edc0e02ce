//! Members by the cluster's own etcd. Each gateway keeps a key under a lease ([`announce`]), and
//! watches the keys of other gateways and of kube-apiservers with a proxy of their own ([`read`]).
//!
//! While etcd cannot be read, the last known members stay. Any etcd member will do: the next one is
//! tried when one fails, hangs, or has lost its leader.

mod connect;
mod keep;
mod read;
mod stored;
#[cfg(test)]
mod tests;
mod trouble;

#[cfg(fuzzing)]
pub mod fuzzing;
pub use connect::{Etcd, Tls};
pub use keep::announce;
pub use read::read;
pub use trouble::Trouble;

/// The generated protocol code.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
mod proto {
    pub(super) mod etcd {
        tonic::include_proto!("etcdserverpb");
    }
    pub(super) mod stored {
        tonic::include_proto!("stored");
    }
}

/// The folder of gateways' keys, below the prefix of the cluster.
const OWN: &str = "mixed-version-proxy";
/// The folder of kube-apiservers' keys.
const SERVERS: &str = "peerserverleases";
