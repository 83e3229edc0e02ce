//! URLs of servers and peers in flags. Entries: [`server_url`], [`peer`].

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use mvp_core::member::MemberKind;
use rustls_pki_types::ServerName;

use super::values::{digits, server_id};
use crate::mistake::Problem;

/// A peer of `--peer`: `ID=https://HOST:PORT[,kind=mvp|bare]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its member ID.
    pub id: String,
    /// Its URL.
    pub url: ServerUrl,
    /// Whether an `mvp` or a bare kube-apiserver answers there.
    pub kind: MemberKind,
}

/// Parses a peer.
pub(super) fn peer(text: &str) -> Result<Peer, Problem> {
    const FORM: &str = "write it as ID=https://HOST:PORT, or with ,kind=bare at the end";
    let (id, rest) = text
        .split_once('=')
        .filter(|(id, _)| !id.contains("://"))
        .ok_or_else(|| format!("{text:?} has no ID; {FORM}"))?;
    let (url, options) = rest.split_once(',').map_or((rest, None), |(url, more)| (url, Some(more)));
    let mut kind = MemberKind::Mvp;
    for option in options.into_iter().flat_map(|options| options.split(',')) {
        kind = match option.trim() {
            "kind=mvp" => MemberKind::Mvp,
            "kind=bare" => MemberKind::Bare,
            other => return Err(format!("{other:?} is not an option of a peer; {FORM}").into()),
        };
    }
    Ok(Peer { id: server_id(id.trim())?, url: server_url(url.trim())?, kind })
}

/// The URL of a server, always over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// A DNS name or an IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl ServerUrl {
    /// The host as an IP address, if it is one.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// `HOST:PORT`, with brackets where an IPv6 address needs them.
    pub(crate) fn authority(&self) -> String {
        match self.host.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]:{}", self.port),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "https://{}", self.authority())
    }
}

/// Parses `https://HOST[:PORT]`; without a port it is 443.
pub(crate) fn server_url(text: &str) -> Result<ServerUrl, Problem> {
    let allowed = |scheme: &str| scheme.eq_ignore_ascii_case("https").then_some(443);
    url_of(text, "https", allowed, "write it as https://HOST:PORT")
}

/// Parses `http://HOST[:PORT]` or `https://HOST[:PORT]`, and tells whether it is https; without a port
/// it is 80 or 443.
pub(crate) fn http_url(text: &str) -> Result<(bool, ServerUrl), Problem> {
    let is_https = |scheme: &str| scheme.eq_ignore_ascii_case("https");
    let allowed = |scheme: &str| match scheme {
        https if is_https(https) => Some(443),
        http if http.eq_ignore_ascii_case("http") => Some(80),
        _ => None,
    };
    let url = url_of(text, "http", allowed, "write it as http://HOST:PORT")?;
    Ok((text.split_once("://").is_some_and(|(scheme, _)| is_https(scheme)), url))
}

/// Parses `SCHEME://HOST[:PORT]`. `allowed` tells the port of a scheme that is allowed; `scheme` is one
/// of them, and `form` tells how to write it.
fn url_of(
    text: &str,
    scheme: &str,
    allowed: impl Fn(&str) -> Option<u16>,
    form: &str,
) -> Result<ServerUrl, Problem> {
    // The URL may hold a password, which must not be logged.
    let shown = match text.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}://…@{host}")
        }
        None => text.to_owned(),
    };
    let wrong = |what: &str| Problem::from(format!("{shown:?} {what}; {form}"));
    let (given, rest) =
        text.split_once("://").ok_or_else(|| wrong(&format!("does not start with {scheme}://")))?;
    let default = allowed(given).ok_or_else(|| wrong(&format!("is not {scheme}")))?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        return Err(wrong("has a path or a query"));
    }
    if authority.contains('@') {
        return Err(wrong("has a user in it"));
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']').ok_or_else(|| wrong("lacks a ]"))?;
            host.parse::<Ipv6Addr>().map_err(|_| wrong("has no IPv6 address in its brackets"))?;
            match rest {
                "" => (host, None),
                rest => (host, Some(rest.strip_prefix(':').ok_or_else(|| wrong("has no port"))?)),
            }
        }
        None => authority.split_once(':').map_or((authority, None), |(h, p)| (h, Some(p))),
    };
    if host.is_empty() {
        return Err(wrong("has no host"));
    }
    if ServerName::try_from(host).is_err() {
        return Err(wrong("has no valid host"));
    }
    let port = match port {
        None => default,
        Some(port) => digits(port)
            .filter(|port| *port != 0)
            .ok_or_else(|| format!("{} with a port from 1 to 65535", wrong("has no valid port")))?,
    };
    Ok(ServerUrl { host: host.to_ascii_lowercase(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, host, port, shown) in [
            ("https://10.0.0.1:6443", "10.0.0.1", 6443, "https://10.0.0.1:6443"),
            ("HTTPS://Node-1.example:6443/", "node-1.example", 6443, "https://node-1.example:6443"),
            ("https://[fd00::1]:6443", "fd00::1", 6443, "https://[fd00::1]:6443"),
            ("https://[::1]", "::1", 443, "https://[::1]:443"),
            ("https://localhost", "localhost", 443, "https://localhost:443"),
        ] {
            let url = server_url(text).unwrap();
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
            assert_eq!(url.to_string(), shown);
        }
    }

    #[test]
    fn errors_of_urls_show_a_valid_form() {
        for (text, what) in [
            ("10.0.0.1:6443", "does not start with https://"),
            ("", "does not start with https://"),
            ("http://10.0.0.1:6443", "is not https"),
            ("https://", "has no host"),
            ("https://:6443", "has no host"),
            ("https:///", "has no host"),
            ("https://a/b", "has a path or a query"),
            ("https://a?b", "has a path or a query"),
            ("https://a//", "has a path or a query"),
            ("https://a b:1", "has no valid host"),
            ("https://ä:1", "has no valid host"),
            ("https://fd00::1:6443", "has no valid port"),
            ("https://[fd00::1:6443", "lacks a ]"),
            ("https://[10.0.0.1]:1", "has no IPv6 address in its brackets"),
            ("https://[::1]6443", "has no port"),
            ("https://a:0", "has no valid port"),
            ("https://a:65536", "has no valid port"),
            ("https://a:+1", "has no valid port"),
            ("https://a:", "has no valid port"),
        ] {
            let error = server_url(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{text:?} {what}; write it as https://")),
                "{error}"
            );
        }
        let error = server_url("https://user:secret@a:1").unwrap_err().to_string();
        assert_eq!(error, "\"https://…@a:1\" has a user in it; write it as https://HOST:PORT");
    }

    #[test]
    fn peers() {
        let url = ServerUrl { host: "b".into(), port: 6443 };
        for (text, kind) in [
            ("apiserver-b=https://b:6443", MemberKind::Mvp),
            ("apiserver-b=https://b:6443,kind=mvp", MemberKind::Mvp),
            (" apiserver-b = https://b:6443 , kind=bare", MemberKind::Bare),
        ] {
            let expected = Peer { id: "apiserver-b".into(), url: url.clone(), kind };
            assert_eq!(peer(text).unwrap(), expected, "{text}");
        }
        for (text, what) in [
            ("https://b:6443", "has no ID"),
            ("https://b:6443/?a=b", "has no ID"),
            ("=https://b:6443", "is not an ID"),
            ("a b=https://b:6443", "is not an ID"),
            ("b=http://b:6443", "is not https"),
            ("b=https://b:6443,kind=", "is not an option of a peer"),
            ("b=https://b:6443,", "is not an option of a peer"),
            ("b=https://b:6443,weight=1", "is not an option of a peer"),
        ] {
            let error = peer(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
