//! The servers of the demo: their releases, and what is switched off. Entry: [`ServerPlan`].

use mvp_apiserver::{Release, RuntimeConfig, ServerSpec};

use super::extension;

/// A server to start.
#[derive(Debug, Clone)]
pub(super) struct ServerPlan {
    pub(super) id: &'static str,
    pub(super) release: Release,
    /// The groups and versions of `--runtime-config` that are switched off.
    pub(super) off: &'static [&'static str],
}

/// StorageVersions, which servers do not have without this.
const RECORDS: &str = "internal.apiserver.k8s.io/v1alpha1";
/// The API that a server of the demo has switched off.
pub(super) const SWITCHED_OFF: &str = "batch/v1";

/// The servers of `mvp demo`: each lacks an API that another has.
pub(super) fn mixed() -> Vec<ServerPlan> {
    vec![
        ServerPlan { id: "server-a", release: Release::V1_34, off: &[] },
        ServerPlan { id: "server-b", release: Release::V1_34, off: &[SWITCHED_OFF] },
        ServerPlan { id: "server-c", release: Release::V1_36, off: &[] },
    ]
}

/// The servers before an upgrade.
pub(super) fn before_upgrade() -> Vec<ServerPlan> {
    let mut plans = mixed();
    for plan in &mut plans {
        plan.release = Release::V1_34;
    }
    plans
}

impl ServerPlan {
    /// The same server after an upgrade, which also switches everything on.
    pub(super) fn upgraded(&self) -> ServerPlan {
        ServerPlan { id: self.id, release: Release::V1_36, off: &[] }
    }

    /// What the server serves.
    pub(super) fn spec(&self) -> anyhow::Result<ServerSpec> {
        let off = self.off.iter().map(|version| format!("{version}=false"));
        let config: Vec<String> = off.chain([format!("{RECORDS}=true")]).collect();
        let config = RuntimeConfig::parse(&config.join(","))?;
        let mut spec = self.release.spec(self.id, &config)?;
        spec.groups.push(extension::group());
        Ok(spec)
    }
}
