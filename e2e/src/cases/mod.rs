//! The cases of the suite, by group. A case that shows a problem of Kubernetes also shows it without
//! `mvp`, for comparison. Entry item: [`all`].

// A case as `case!(SETTING, "GROUP/NAME", FUNCTION, "DESCRIPTION")`; with `full` before the setting
// it runs only with `--full`.
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
mod ask;
mod attacks;
mod before;
mod callers;
mod clients;
mod controllers;
mod crd;
mod demo;
mod discovery;
mod door;
mod egress;
mod fairness;
mod heads;
mod identity;
mod install;
mod interop;
mod killed;
mod kube_rs;
mod kubeadm;
mod membership;
mod namespace;
mod node;
mod objects;
mod own_requests;
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
mod upstream;
mod versions;
mod writes;

use crate::suite::Case;

/// Every case. Those on the same cluster run in this order.
pub(crate) fn all() -> Vec<Case> {
    [
        routing::cases(),
        egress::cases(),
        identity::cases(),
        spoofs::cases(),
        fairness::cases(),
        door::cases(),
        own_requests::cases(),
        discovery::cases(),
        surface::cases(),
        crd::cases(),
        ask::cases(),
        install::cases(),
        killed::cases(),
        stopped::cases(),
        restart::cases(),
        upgrade::cases(),
        namespace::cases(),
        membership::cases(),
        before::cases(),
        controllers::cases(),
        writes::cases(),
        rotation::cases(),
        rolling::cases(),
        aggregated::cases(),
        clients::cases(),
        kube_rs::cases(),
        demo::cases(),
        heads::cases(),
        interop::cases(),
        recorded::cases(),
        versions::cases(),
        attacks::cases(),
        upstream::cases(),
        node::cases(),
        kubeadm::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
