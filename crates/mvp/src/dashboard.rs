//! The dashboard: a page for people, and its data as server-sent events. Entry: [`routes`].
//!
//! - [`assets`]: the page, its style and its script, with strict headers
//! - [`board`]: one computation for all open pages
//! - [`sections`]: what the page shows, as JSON
//! - [`history`]: counts over the last hour, and recent refusals
//! - [`places`]: how many pages can be open
//! - [`rates`]: requests in a second, from counts
//! - [`events`]: the stream of one page
//! - [`secure`]: the listener for other hosts, with TLS and client certificates
//! - [`serving`]: what members serve, to be compared

mod assets;
pub(crate) mod board;
mod events;
mod history;
mod places;
mod rates;
mod sections;
pub(crate) mod secure;
mod serving;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use self::board::{Audience, Board};
pub(crate) use self::serving::servers;
use crate::admin::host::{self, AllowedHosts};
use crate::admin::text;

/// The path of the page.
pub(crate) const PATH: &str = "/dashboard";
/// The path of all APIs, as JSON.
const APIS: &str = "/dashboard/apis";
/// The path of the stream.
const EVENTS: &str = "/dashboard/events";

/// The URL of the page at an address. A listener on all interfaces is reached on loopback.
pub(crate) fn url(scheme: &str, address: SocketAddr) -> String {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("{scheme}://{address}{PATH}")
}

/// The routes for this audience.
pub(crate) fn routes(board: Arc<Board>, audience: Audience) -> Router {
    let of_board = Router::new()
        .route(EVENTS, get(move |State(board), headers| stream(board, audience, headers)))
        .route(APIS, get(apis))
        .with_state(board);
    assets::routes().merge(of_board)
}

/// Adds the check of `Host` and the headers that every response has.
pub(crate) fn protected(routes: Router, hosts: Arc<AllowedHosts>) -> Router {
    routes.layer(from_fn_with_state(hosts, host::check)).layer(from_fn(guarded))
}

/// The routes where the page is refused: on an address that other hosts can reach over plain HTTP.
pub(crate) fn refused() -> Router {
    let refuse = || async {
        text(
            StatusCode::FORBIDDEN,
            "forbidden: other hosts can reach --admin-bind-address over plain HTTP, so the dashboard is \
             not shown here; use a loopback address or the Unix socket of --admin-socket, or \
             --dashboard-bind-address for TLS with client certificates\n",
        )
    };
    Router::new().route(PATH, get(refuse)).route(EVENTS, get(refuse)).route(APIS, get(refuse))
}

/// The refusal of a request of another page: it must not take the places of ours, or their time. Browsers
/// say where a request comes from.
fn refusal_of_others(headers: &HeaderMap) -> Option<Response> {
    let site = headers.get("sec-fetch-site")?.as_bytes();
    let is_other = site != b"same-origin" && site != b"none";
    let said = "forbidden: only the dashboard itself reads its data\n";
    is_other.then(|| text(StatusCode::FORBIDDEN, said))
}

async fn stream(board: Arc<Board>, audience: Audience, headers: HeaderMap) -> Response {
    if let Some(refusal) = refusal_of_others(&headers) {
        return refusal;
    }
    match board.open(audience) {
        Some(viewer) => events::response(viewer),
        None => text(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open; close some\n"),
    }
}

async fn apis(State(board): State<Arc<Board>>, headers: HeaderMap) -> Response {
    if let Some(refusal) = refusal_of_others(&headers) {
        return refusal;
    }
    match board.all_apis().await {
        Some(body) => ([("content-type", "application/json")], body).into_response(),
        None => text(StatusCode::INTERNAL_SERVER_ERROR, "it cannot be written; see the log\n"),
    }
}

/// Adds the headers that every response of the dashboard has.
async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    assets::guard(response.headers_mut());
    response
}
