//! The dashboard for other hosts: TLS with the gateway's certificate, and client certificates of allowed
//! groups. Entry: [`Secure::serve`].
//!
//! A front proxy's headers do not count here: who looks must show a certificate of its own.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

use mvp_net::{ConnectionInfo, ConnectionLimit, Limits, ReloadableTls, bind};
use tokio_util::sync::CancellationToken;

use super::board::{Audience, Board};
use crate::admin::host::AllowedHosts;
use crate::admin::text;
use crate::config::{DashboardConfig, ServeConfig};
use crate::serve::{cannot_listen, runtime};

/// The most connections, of one address and of all.
const CONNECTIONS: usize = 128;
const PER_ADDRESS: usize = 32;
/// The time for streams to end.
const GRACE: Duration = Duration::from_secs(1);

/// The listener for other hosts.
pub(crate) struct Secure {
    listener: TcpListener,
    groups: Vec<String>,
    hosts: AllowedHosts,
}

impl Secure {
    /// Listens at `--dashboard-bind-address`; none without it.
    pub(crate) fn listen(config: &ServeConfig) -> anyhow::Result<Option<Secure>> {
        let Some(DashboardConfig { address, groups }) = &config.dashboard else { return Ok(None) };
        let listener = bind(*address, config.share_port)
            .map_err(|error| cannot_listen(*address, "--dashboard-bind-address", &error))?;
        let hosts = AllowedHosts::new(&config.admin_hosts);
        Ok(Some(Secure { listener, groups: groups.clone(), hosts }))
    }

    /// The URL of the page: here or, without this listener, at the admin endpoint.
    pub(crate) fn url(secure: Option<&Secure>, admin: SocketAddr) -> String {
        match secure.map(|secure| secure.listener.local_addr()) {
            Some(Ok(address)) => super::url("https", address),
            Some(Err(_)) | None => super::url("http", admin),
        }
    }

    /// Serves on a thread of its own, so that handshakes do not delay the control loop, until `stop`.
    pub(crate) fn serve(
        self,
        board: Arc<Board>,
        tls: ReloadableTls,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let Secure { listener, groups, hosts } = self;
        let service = router(board, groups, hosts);
        let serve = move || {
            let served = runtime().and_then(|runtime| {
                runtime.block_on(async {
                    let listener = tokio::net::TcpListener::from_std(listener)?;
                    let connections = ConnectionLimit::new(CONNECTIONS, Some(PER_ADDRESS));
                    let limits = Limits { grace: GRACE, connections, ..Limits::default() };
                    mvp_net::serve(listener, tls, limits, service, stop).await;
                    Ok(())
                })
            });
            if let Err(error) = served {
                tracing::error!(error = format!("{error:#}"), "dashboard failed");
            }
        };
        thread::Builder::new()
            .name("dashboard".to_owned())
            .spawn(serve)
            .map(drop)
            .context("cannot start a thread")
    }
}

/// The routes for clients with a certificate of one of these groups.
pub(super) fn router(board: Arc<Board>, groups: Vec<String>, hosts: AllowedHosts) -> Router {
    let routes = super::routes(board, Audience::Trusted)
        .fallback(async || text(StatusCode::NOT_FOUND, "not found; see /dashboard\n"))
        .layer(from_fn_with_state(Arc::new(groups), allow));
    super::protected(routes, Arc::new(hosts))
}

/// Passes clients of an allowed group. Their certificate is judged again when it expires and when the CAs
/// change.
async fn allow(State(groups): State<Arc<Vec<String>>>, request: Request, next: Next) -> Response {
    let connection = request.extensions().get::<ConnectionInfo>();
    let user = connection.and_then(|connection| connection.judgement().user.as_ref());
    match user {
        Some(Ok(user)) if user.groups.iter().any(|group| groups.contains(group)) => {
            next.run(request).await
        }
        Some(Ok(_)) => text(
            StatusCode::FORBIDDEN,
            "forbidden: your certificate is of no group in --dashboard-allowed-groups\n",
        ),
        Some(Err(_)) | None => text(
            StatusCode::UNAUTHORIZED,
            "unauthorized: use a client certificate that a CA of --client-ca-file signed\n",
        ),
    }
}
