//! The cluster of most tests: a gateway beside a server, with a bare peer and a peer with a
//! gateway. Entry item: [`World`].

use mvp_proxy::{HeadersState, RemoteHeaders};

use crate::double::Double;
use crate::gateway::{Gateway, Plan};
use crate::record::Recorded;
use crate::until;

/// Served by the local server alone.
pub const LOCAL: &str = "/apis/local.example/v1/namespaces/default/things";
/// Served by the bare peer alone.
pub const BARE: &str = "/apis/bare.example/v1/namespaces/default/things";
/// Served by the peer behind a gateway alone.
pub const MVP: &str = "/apis/mvp.example/v1/namespaces/default/things";

/// Where servers publish the headers that they read users from.
const CONFIG_MAP: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

pub struct World {
    pub local: Double,
    pub bare: Double,
    /// The server behind the peer that is a gateway.
    pub behind: Double,
    pub mvp: Gateway,
    /// The gateway under test.
    pub gateway: Gateway,
}

impl World {
    pub async fn start() -> World {
        World::with(|plan| plan).await
    }

    /// All gateways and servers are set up for these headers.
    pub async fn with_headers(headers: RemoteHeaders) -> World {
        let set = |plan: Plan| plan.headers(headers.clone());
        World::with_each(set, set, None).await
    }

    /// The servers read users from the headers that this ConfigMap has, and the gateway knows it.
    pub async fn with_config_map(config_map: &serde_json::Value) -> World {
        let world = World::with_each(|plan| plan, |plan| plan, Some(config_map)).await;
        until(|| world.gateway.member.request_headers() != HeadersState::Awaited).await;
        world
    }

    pub async fn with(change: impl FnOnce(Plan) -> Plan) -> World {
        World::with_each(change, |plan| plan, None).await
    }

    pub async fn with_each(
        change: impl FnOnce(Plan) -> Plan,
        change_peer: impl FnOnce(Plan) -> Plan,
        config_map: Option<&serde_json::Value>,
    ) -> World {
        let local = Double::start("a", "v1.36.0", &[("local.example", "things")]).await;
        if let Some(config_map) = config_map {
            local.says(CONFIG_MAP, 200, "application/json", &config_map.to_string());
        }
        let bare = Double::start("b", "v1.36.0", &[("bare.example", "things")]).await;
        let behind = Double::start("c", "v1.36.0", &[("mvp.example", "things")]).await;
        let mvp = change_peer(Gateway::beside("c", &behind).await).start().await;
        let plan = Gateway::beside("a", &local).await;
        let plan = plan.bare("b", bare.address).mvp("c", mvp.address);
        let gateway = change(plan).start().await;
        World { local, bare, behind, mvp, gateway }
    }

    /// The server that serves this path.
    pub fn server(&self, path: &str) -> &Double {
        match path {
            path if path.starts_with(LOCAL) => &self.local,
            path if path.starts_with(BARE) => &self.bare,
            _ => &self.behind,
        }
    }

    /// All requests for these three paths at any server or at the peer's gateway.
    pub fn arrived(&self) -> Vec<Recorded> {
        let servers = [&self.local, &self.bare, &self.behind];
        let requests =
            servers.map(|server| &server.requests).into_iter().chain([&self.mvp.requests]);
        requests
            .flat_map(|requests| [LOCAL, BARE, MVP].map(|path| requests.of(path)))
            .flatten()
            .collect()
    }
}
