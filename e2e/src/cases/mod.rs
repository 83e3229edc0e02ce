//! What must be so on a real control plane, each case with the harm that there is without `mvp`
//! where it shows. Entry item: [`all`].

// `full` before the setting: only with `--full`.
macro_rules! case {
    ($setting:ident, $name:literal, $run:path, $about:literal) => {
        case!(Default $setting, $name, $run, $about)
    };
    (full $setting:ident, $name:literal, $run:path, $about:literal) => {
        case!(Full $setting, $name, $run, $about)
    };
    ($level:ident $setting:ident, $name:literal, $run:path, $about:literal) => {
        $crate::suite::Case {
            name: $name,
            about: $about,
            setting: $crate::suite::Setting::$setting,
            level: $crate::suite::Level::$level,
            run: |cluster| Box::pin($run(cluster)),
        }
    };
}

mod aggregated;
mod attacks;
mod before;
mod callers;
mod clients;
mod controllers;
mod crd;
mod discovery;
mod heads;
mod identity;
mod interop;
mod killed;
mod kube_rs;
mod membership;
mod namespace;
mod objects;
mod recorded;
mod restart;
mod rolling;
mod rotation;
mod routing;
#[cfg(test)]
mod scenarios;
mod spoofs;
mod stopped;
mod surface;
mod upgrade;
mod versions;
mod writes;

use crate::suite::Case;

/// Every case, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = vec![
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
            "discovery/switched-off",
            discovery::switched_off,
            "a gateway that is switched off, or has no peers, shows the local server's own"
        ),
        case!(
            Mixed,
            "surface/every-form",
            surface::every_form,
            "older documents, YAML and protobuf, too: the same from every member"
        ),
        case!(
            Mixed,
            "surface/openapi",
            surface::openapi,
            "OpenAPI of all members through each, version 2 and 3"
        ),
        case!(
            Mixed,
            "surface/coherence",
            surface::coherence,
            "whatever a document promises is not answered 404 by routing"
        ),
        case!(
            Mixed,
            "surface/changes",
            surface::changes,
            "an API that comes or goes at one server, through another"
        ),
        case!(
            Mixed,
            "surface/kubectl",
            surface::kubectl,
            "kubectl explain and apply of a kind that only peers have"
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
            "membership/leases",
            membership::leases,
            "gateways find each other by Leases, with the rights of deploy/rbac.yaml and nothing listed"
        ),
        case!(
            Mixed,
            "membership/forged",
            membership::forged,
            "whoever can write Leases gains no request and cannot wedge the cluster"
        ),
        case!(
            Mixed,
            "membership/flood",
            membership::flood,
            "nor does a flood of them hide a member from a gateway that starts"
        ),
        case!(
            Mixed,
            "membership/etcd",
            membership::etcd,
            "by an etcd of three: one of it killed, then all of it"
        ),
        case!(
            Mixed,
            "membership/tls-of-etcd",
            membership::etcd_tls,
            "etcd with client certificates: what is wrong with them is told, and mended by new files"
        ),
        case!(
            Mixed,
            "membership/rights-in-etcd",
            membership::etcd_auth,
            "a user of etcd without rights: told, nobody lost, mended by a grant"
        ),
        case!(
            Mixed,
            "membership/past-of-etcd",
            membership::etcd_compaction,
            "what changed is seen although etcd has forgotten it; a deleted key is written again"
        ),
        case!(
            Mixed,
            "before/rolling",
            before::rolling,
            "one gateway before three servers, each restarted and one upgraded under load"
        ),
        case!(
            Mixed,
            "controllers/gc-without-mvp",
            controllers::collector_without_mvp,
            "the harm: the dependent of a live owner is deleted, because another server lacks its kind"
        ),
        case!(
            Mixed,
            "controllers/gc-with-mvp",
            controllers::collector_with_mvp,
            "the same with mvp: it stays until its owner goes"
        ),
        case!(
            Mixed,
            "controllers/job",
            controllers::job_through_each,
            "the Job controller works through each member, also the one without Jobs"
        ),
        case!(
            Mixed,
            "writes/newest-first",
            writes::newest_first,
            "what the local server lacks is written by the newest that has it: no field is lost"
        ),
        case!(
            Mixed,
            "writes/local-down",
            writes::local_down,
            "no older server writes in place of one that is down"
        ),
        case!(
            Mixed,
            "writes/not-promised",
            writes::not_promised,
            "a write at the address of an older server that serves the kind loses a newer field"
        ),
        case!(
            Mixed,
            "rotation/whole-cluster",
            rotation::whole_cluster,
            "every certificate and authority of the cluster is replaced under load"
        ),
        case!(
            Rolling,
            "upgrade/rolling",
            rolling::gateways_stay,
            "three servers from 1.34 to 1.36 and back under load at each gateway"
        ),
        case!(
            full Rolling,
            "upgrade/nodes-and-back",
            rolling::nodes_restart_and_back,
            "as whole nodes restart, gateways known by their Leases alone: no read fails"
        ),
        case!(
            full Rolling,
            "upgrade/gateways-too",
            rolling::gateways_restart,
            "the same, each gateway restarting with its server"
        ),
        case!(
            full Rolling,
            "upgrade/without-mvp",
            rolling::without_mvp,
            "the harm: the same behind a load balancer that knows nothing of versions"
        ),
        case!(
            Rolling,
            "upgrade/nodes",
            rolling::nodes_restart,
            "the way up as whole nodes restart, gateways known by their Leases alone: no read fails"
        ),
        case!(
            Mixed,
            "aggregated/passed-on",
            aggregated::passed_on,
            "an extension server through every member: what it says is passed on, 404s too"
        ),
        case!(
            full Mixed,
            "aggregated/up-and-down",
            aggregated::up_and_down,
            "the same server is killed and started again: its absence is passed on, and no more"
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
            full Mixed,
            "clients/head-sizes",
            heads::head_sizes,
            "how large the heads of real clients are"
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
            Cable,
            "membership/endpoints",
            membership::endpoints,
            "servers are members by the EndpointSlices that they keep themselves"
        ),
        case!(
            Cable,
            "before/endpoints",
            before::endpoints,
            "one gateway before servers that it finds by their EndpointSlices"
        ),
        case!(
            Cable,
            "membership/ipv6",
            membership::by_ipv6,
            "gateways whose addresses are of IPv6 find each other and send each other requests"
        ),
        case!(
            Native,
            "discovery/as-kubernetes-own",
            discovery::as_kubernetes_own,
            "merged /apis equals that of kube-apiserver 1.36's own proxy, item by item"
        ),
        case!(
            Native,
            "membership/bare",
            membership::bare,
            "servers with Kubernetes' own proxy are members by their own Leases and keys"
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
            Recorded,
            "membership/storage-versions",
            recorded::storage_versions,
            "what a StorageVersion records for a server that nobody can ask is 503, not 404"
        ),
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
    ];
    cases.extend(attacks::all());
    cases
}
