//! `mvp serve --steer` on a running node: it takes over new connections of kube-apiserver's port and
//! gives them back, and no client notices.

mod adopt;
mod at_fault;
mod attach;
mod fail_open;
mod kubelet;
mod releases;
mod replace;
mod upgrade;

use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Node,
            "node/attach",
            attach::attach,
            "new connections for every address of a node reach mvp, loopback never; rights are dropped"
        ),
        case!(
            Node,
            "node/one-address",
            attach::one_address,
            "the same with kube-apiserver on its advertise address only, which also is its own client"
        ),
        case!(
            Node,
            "node/not-permitted",
            attach::not_permitted,
            "without CAP_BPF: one clear sentence, not ready, and kube-apiserver answers"
        ),
        case!(
            Node,
            "node/fail-open",
            fail_open::fail_open,
            "start, SIGTERM, SIGKILL, SIGSTOP, no descriptors, too many connections: kube-apiserver answers"
        ),
        case!(
            Node,
            "node/kubelet",
            kubelet::kubelet,
            "a hung mvp does not get a healthy kube-apiserver killed by a kubelet's probes"
        ),
        case!(
            Node,
            "node/at-fault",
            at_fault::at_fault,
            "a gateway whose certificate kube-apiserver rejects gives the connections back"
        ),
        case!(
            full Node,
            "node/replace",
            replace::replace,
            "one mvp process replaces another, and back: no connection fails, every watch sees the last event"
        ),
        case!(
            Node,
            "node/adopt",
            adopt::adopt,
            "mvp adopt ends connections from before, and their clients come back through mvp"
        ),
        case!(
            full Node,
            "node/upgrade",
            upgrade::upgrade,
            "kube-apiserver below mvp changes from 1.34 to 1.36 under load: no request fails"
        ),
        case!(
            full Node,
            "node/releases",
            releases::releases,
            "gateways of this release and of the previous state of the repository work side by side"
        ),
    ]
}
