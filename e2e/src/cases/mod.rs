//! What must be so on a real control plane, each case with the harm that there is without `mvp`
//! where it shows. Entry item: [`all`].

mod aggregated;
mod clients;
mod crd;
mod discovery;
mod identity;
mod interop;
mod killed;
mod kube_rs;
mod namespace;
mod objects;
mod restart;
mod rotation;
mod routing;
mod spoofs;
mod stopped;
mod upgrade;
mod versions;

use crate::suite::{Case, Level, Setting};

/// Every case, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    // `full` before the setting: only with `--full`.
    macro_rules! case {
        ($setting:ident, $name:literal, $run:path, $about:literal) => {
            case!(Default $setting, $name, $run, $about)
        };
        (full $setting:ident, $name:literal, $run:path, $about:literal) => {
            case!(Full $setting, $name, $run, $about)
        };
        ($level:ident $setting:ident, $name:literal, $run:path, $about:literal) => {
            Case {
                name: $name,
                about: $about,
                setting: Setting::$setting,
                level: Level::$level,
                run: |cluster| Box::pin($run(cluster)),
            }
        };
    }
    vec![
        case!(
            Mixed,
            "routing/every-verb",
            routing::every_verb,
            "each server lacks what others have; every verb works through it"
        ),
        case!(
            Mixed,
            "routing/newer-api",
            routing::newer_api,
            "an API of 1.36 through 1.34, which has no proxy of its own on"
        ),
        case!(
            Mixed,
            "routing/kubectl",
            routing::kubectl,
            "kubectl through the server that lacks the API"
        ),
        case!(
            Mixed,
            "identity/certificate",
            identity::certificate,
            "the destination sees the user, its groups and the client's address"
        ),
        case!(
            Mixed,
            "identity/service-account",
            identity::service_account,
            "a token of TokenRequest is the service account's at the destination"
        ),
        case!(
            Mixed,
            "identity/impersonation",
            identity::impersonation,
            "impersonation is allowed and denied as directly"
        ),
        case!(
            Mixed,
            "identity/denials",
            identity::denials,
            "RBAC denials stay denials, word for word"
        ),
        case!(Mixed, "identity/spoofs", spoofs::spoofs, "nobody becomes another by what he sends"),
        case!(
            Mixed,
            "discovery/one-truth",
            discovery::one_truth,
            "the same bytes from every member, and all that any server serves"
        ),
        case!(
            Mixed,
            "discovery/nopeer",
            discovery::nopeer,
            "profile=nopeer shows the server's own"
        ),
        case!(
            Mixed,
            "crd/established",
            crd::established,
            "from the moment it is established anywhere, no 404 through any other member"
        ),
        case!(Mixed, "crd/deleted", crd::deleted, "after deletion it is gone everywhere"),
        case!(
            Mixed,
            "killed/two-can-serve",
            killed::two_can_serve,
            "kill -9 of a peer while another can serve: no failed read"
        ),
        case!(
            Mixed,
            "killed/behind-its-gateway",
            killed::behind_its_gateway,
            "kill -9 of a peer's kube-apiserver whose gateway lives on: no failed read"
        ),
        case!(
            Mixed,
            "killed/only-it-can",
            killed::only_it_can,
            "kill -9 of the only peer that can: 503 Status, never 404, until it is back"
        ),
        case!(
            Mixed,
            "stopped/two-can-serve",
            stopped::two_can_serve,
            "SIGSTOP of a peer while another can serve: no failed read"
        ),
        case!(
            Mixed,
            "stopped/behind-its-gateway",
            stopped::behind_its_gateway,
            "SIGSTOP of a peer's kube-apiserver whose gateway goes on: no failed read"
        ),
        case!(
            Mixed,
            "stopped/only-it-can",
            stopped::only_it_can,
            "SIGSTOP of the only peer that can: 503 Status, never 404, never silence"
        ),
        case!(Mixed, "stopped/slow-list", stopped::slow_list, "a LIST of 5 s is sent once"),
        case!(
            Mixed,
            "restart/local-server",
            restart::local_server,
            "restart of the local server under reads, writes and watches through its gateway"
        ),
        case!(
            Mixed,
            "upgrade/websocket-watch",
            upgrade::websocket_watch,
            "a watch over WebSocket of an API that only peers have"
        ),
        case!(
            Mixed,
            "namespace/without-mvp",
            namespace::without_mvp,
            "the harm: a namespace is deleted, its Job is left behind"
        ),
        case!(
            Mixed,
            "namespace/with-mvp",
            namespace::with_mvp,
            "the same with mvp: the Job is gone"
        ),
        case!(
            Mixed,
            "rotation/whole-cluster",
            rotation::whole_cluster,
            "every certificate and authority of the cluster is replaced under load"
        ),
        case!(
            Mixed,
            "aggregated/up-and-down",
            aggregated::up_and_down,
            "an extension server through every member: what it says, and its absence, as directly"
        ),
        case!(
            Mixed,
            "clients/client-go",
            clients::client_go,
            "RESTMapper, shared informers and CRUD of client-go, for what its server lacks"
        ),
        case!(
            Mixed,
            "clients/kube-rs",
            kube_rs::kube_rs,
            "discovery, dynamic API and a watcher of kube-rs that outlives its gateway"
        ),
        case!(
            Mixed,
            "clients/python",
            clients::python,
            "dynamic discovery, watch and CRUD of the Python client, for what its server lacks"
        ),
        case!(
            Mixed,
            "clients/old-kubectl",
            clients::old_kubectl,
            "Debian's kubectl, which knows only the older forms of discovery"
        ),
        case!(
            Cable,
            "cut/two-can-serve",
            stopped::cut_two_can_serve,
            "the cable of a peer is cut while another can serve: no failed read"
        ),
        case!(
            Cable,
            "cut/only-it-can",
            stopped::cut_only_it_can,
            "the cable of the only peer that can is cut: 503 Status, never 404, never silence"
        ),
        case!(
            Native,
            "discovery/as-kubernetes-own",
            discovery::as_kubernetes_own,
            "merged /apis equals that of kube-apiserver 1.36's own proxy, item by item"
        ),
        case!(
            Native,
            "killed/kubernetes-own",
            killed::kubernetes_own,
            "the harm: the same kill -9 with Kubernetes' own proxy"
        ),
        case!(
            Native,
            "upgrade/kubernetes-own",
            upgrade::kubernetes_own,
            "the harm: the same watch over WebSocket with Kubernetes' own proxy"
        ),
        case!(
            Interop,
            "interop/bare-peer",
            interop::bare_peer,
            "kube-apiserver with its own proxy on as a bare peer of ours"
        ),
        case!(
            Interop,
            "interop/their-peer",
            interop::their_peer,
            "our gateway as the peer of kube-apiserver's own proxy"
        ),
        case!(Interop, "interop/both", interop::both, "both proxies on at once: no loop, one hop"),
        case!(
            full Versions,
            "versions/routing",
            versions::routing,
            "servers of four versions, the oldest without aggregated discovery: what each lacks"
        ),
        case!(
            full Versions,
            "versions/one-truth",
            versions::one_truth,
            "the same servers: the same bytes from each, and all that any of them serves"
        ),
    ]
}
