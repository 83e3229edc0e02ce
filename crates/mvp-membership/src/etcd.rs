//! Members by the cluster's own etcd: each keeps a key under a lease of 15 s ([`announce`]), and all
//! watch those of the others, and those of kube-apiservers with a proxy of their own ([`read`]).
//!
//! An etcd that gives no answer is nobody's end: what was known last stays. Any member of it will do;
//! the next is tried when one fails, hangs, or has lost its leader.

mod connect;
mod keep;
mod read;
mod stored;

pub use connect::{Etcd, TlsSource};
pub use keep::announce;
pub use read::read;

use tonic::Code;

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

/// What an operator has to mend, if it is that.
fn explained(status: &tonic::Status) -> Option<String> {
    let denied = matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
        // Of a server that verifies certificates itself.
        || status.message().contains("permission denied");
    denied.then(|| {
        format!(
            "etcd does not let us in ({}); see --etcd-certfile and what its user may do",
            status.message()
        )
    })
}
