//! The check of `Host`, against DNS rebinding: a web page that resolves its own name to our address, or to
//! a port that somebody forwards to the Unix socket, could otherwise read what the admin endpoint tells.
//! Entry: [`check`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The names under which the admin endpoint can be reached, besides IP addresses and `localhost`.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    pub(crate) fn new(names: &[String]) -> AllowedHosts {
        AllowedHosts(names.to_vec())
    }

    /// Whether a request may have this `Host`: a name or an address, and perhaps a port.
    fn allows(&self, host: &str) -> bool {
        if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
            return true;
        }
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bracketed.is_some_and(|host| host.parse::<IpAddr>().is_ok()) {
            return true;
        }
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        is("localhost") || self.0.iter().any(|known| is(known))
    }
}

/// Refuses a request for another host. One without `Host` passes: every browser sends it.
pub(crate) async fn check(
    State(hosts): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    let named = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or("?"));
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    if named.chain(target).all(|host| hosts.allows(host)) {
        return next.run(request).await;
    }
    let problem = "forbidden: use an IP address or localhost, or add the name to \
                   --admin-allowed-hosts\n";
    (StatusCode::FORBIDDEN, problem).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_listed_names_pass() {
        let hosts = AllowedHosts::new(&["Gateway.example".to_owned()]);
        for host in [
            "127.0.0.1",
            "127.0.0.1:6480",
            "10.0.0.1:80",
            "[::1]:6480",
            "[::1]",
            "::1",
            "localhost",
            "LOCALHOST:6480",
            "gateway.example",
            "gateway.EXAMPLE:6480",
        ] {
            assert!(hosts.allows(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:6480",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.localhost",
            "gateway.example.evil",
            "[localhost]",
            "localhost:x",
            "user@127.0.0.1",
            "127.0.0.1:99999",
            "2130706433",
            "?",
        ] {
            assert!(!hosts.allows(host), "{host}");
        }
        assert!(!AllowedHosts::default().allows("gateway.example"));
    }
}
