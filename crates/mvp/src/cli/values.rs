//! Parsers of flag values. Each error says what a valid value looks like.
//!
//! clap uses each parser for the flag and for the key of the config file. No parser looks at another
//! flag, at files or at the network; [`crate::config`] does.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use http::{HeaderName, Uri};

use super::like::LikeSource;
use crate::mistake::Problem;

/// Parses a port to listen on; 0 takes a free one.
pub(super) fn port(text: &str) -> Result<u16, Problem> {
    digits(text)
        .ok_or_else(|| format!("{text:?} is not a port; give a number from 0 to 65535").into())
}

/// Parses a port that others connect to.
pub(super) fn peer_port(text: &str) -> Result<u16, Problem> {
    digits(text)
        .filter(|port| *port != 0)
        .ok_or_else(|| format!("{text:?} is not a port; give a number from 1 to 65535").into())
}

/// Parses `IP:PORT`.
pub(super) fn socket_address(text: &str) -> Result<SocketAddr, Problem> {
    text.parse().map_err(|_| {
        let fix = "give an IP address and a port, such as 127.0.0.1:6480";
        format!("{text:?} is not an address; {fix}").into()
    })
}

/// Parses a DNS name, without scheme, port or wildcard.
pub(super) fn host_name(text: &str) -> Result<String, Problem> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || text.len() > 253 || !text.bytes().all(allowed) {
        let fix = "give a name such as gateway.example, without scheme, port or wildcard";
        return Err(format!("{text:?} is not a host name; {fix}").into());
    }
    Ok(text.to_owned())
}

/// Parses the name of a group.
pub(super) fn group(text: &str) -> Result<String, Problem> {
    if text.is_empty() || text.trim() != text || text.chars().any(char::is_control) {
        let fix = "give a name such as system:masters, as in the O of a certificate";
        return Err(format!("{text:?} is not the name of a group; {fix}").into());
    }
    Ok(text.to_owned())
}

/// Parses a path, which may be empty for none.
#[allow(clippy::unnecessary_wraps, reason = "the form of all parsers of values")]
pub(super) fn path_or_none(text: &str) -> Result<PathBuf, Problem> {
    Ok(PathBuf::from(text))
}

/// Parses the source of kube-apiserver's flags.
pub(super) fn like(text: &str) -> Result<LikeSource, Problem> {
    Ok(match text {
        "" => return Err("empty; give the manifest of kube-apiserver, or auto".into()),
        "auto" => LikeSource::Auto,
        path => LikeSource::File(PathBuf::from(path)),
    })
}

/// Parses the first of several ports; 0 takes free ones.
pub(super) fn port_base(text: &str) -> Result<u16, Problem> {
    digits(text).filter(|port| *port <= 65_000).ok_or_else(|| {
        format!("{text:?} is not a first port; give a number from 0 to 65000").into()
    })
}

/// Parses decimal digits; `str::parse` alone would accept a leading plus.
pub(super) fn digits(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Parses an IP address.
pub(super) fn ip(text: &str) -> Result<IpAddr, Problem> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an IP address; give one such as 10.0.0.1").into())
}

/// Parses a member ID, which appears in logs, metrics and refusals, and in the name of a Lease.
pub(crate) fn server_id(text: &str) -> Result<String, Problem> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || text.len() > 253 || !text.bytes().all(allowed) {
        return Err(format!(
            "{text:?} is not an ID; use 1 to 253 letters, digits, dashes, dots and underscores"
        )
        .into());
    }
    Ok(text.to_owned())
}

/// Parses `ID` or `ID@ADDRESS`. The text is put into a URL unchanged.
pub(crate) fn server_id_at(text: &str) -> Result<String, Problem> {
    let allowed = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'@' | b':' | b'[' | b']')
    };
    if text.is_empty() || text.len() > 320 || !text.bytes().all(allowed) {
        let fix = "see /debug/snapshot of the admin endpoint for the IDs of members";
        return Err(format!("{text:?} is not the ID of a member; {fix}").into());
    }
    Ok(text.to_owned())
}

/// Parses the name of a header.
pub(super) fn header_name(text: &str) -> Result<HeaderName, Problem> {
    HeaderName::try_from(text.trim()).map_err(|_| {
        format!("{text:?} is not a header name; give one such as X-Remote-User").into()
    })
}

/// Parses the number of worker threads.
pub(super) fn workers(text: &str) -> Result<usize, Problem> {
    digits(text).map(usize::from).filter(|count| (1..=MAX_WORKERS).contains(count)).ok_or_else(
        || format!("{text:?} is not a number of workers; give a number from 1 to 64").into(),
    )
}

/// The most worker threads. More do not help: each has its own connections to every peer.
pub(crate) const MAX_WORKERS: usize = 64;

/// Parses the most connections that `mvp adopt` ends in a second.
pub(super) fn adopt_rate(text: &str) -> Result<usize, Problem> {
    digits(text).map(usize::from).filter(|count| (1..=1000).contains(count)).ok_or_else(|| {
        format!("{text:?} is not a rate; give connections per second from 1 to 1000").into()
    })
}

/// Parses the fraction of requests that end their connection, with kube-apiserver's bounds.
pub(super) fn goaway_chance(text: &str) -> Result<f64, Problem> {
    text.parse().ok().filter(|chance| (0.0..=0.02).contains(chance)).ok_or_else(|| {
        format!("{text:?} is not a chance; give a fraction from 0 (off) to 0.02, such as 0.001")
            .into()
    })
}

/// Parses the size limit of a request head.
///
/// The upper bound is fixed: HPACK's Huffman coding can make a head 3.75 times as large, and above
/// 1 MiB a Go server ends the connection, with the requests of everyone who shares it.
pub(super) fn request_header_bytes(text: &str) -> Result<usize, Problem> {
    number(text).filter(|bytes| (8 << 10..=256 << 10).contains(bytes)).ok_or_else(|| {
        let fix = "give bytes from 8192 to 262144, without a unit, such as 131072 (128 KiB)";
        format!("{text:?} is not a valid size; {fix}").into()
    })
}

/// Parses the limit of connections.
pub(super) fn client_connections(text: &str) -> Result<usize, Problem> {
    number(text).filter(|count| (1..=MAX_CONNECTIONS).contains(count)).ok_or_else(|| {
        let fix = "give a number from 1 to 10000000, such as 20000";
        format!("{text:?} is not a number of connections; {fix}").into()
    })
}

/// Parses the limit of connections from one address; 0 is no limit.
pub(super) fn client_connections_per_address(text: &str) -> Result<usize, Problem> {
    number(text).filter(|count| *count <= MAX_CONNECTIONS).ok_or_else(|| {
        let fix = "give a number from 0 (no limit) to 10000000, such as 1000";
        format!("{text:?} is not a number of connections; {fix}").into()
    })
}

/// Parses the limit of TLS handshakes in progress; 0 is no limit.
pub(super) fn handshakes(text: &str) -> Result<usize, Problem> {
    number(text).filter(|count| *count <= MAX_CONNECTIONS).ok_or_else(|| {
        let fix = "give a number from 0 (no limit) to 10000000, such as 4096";
        format!("{text:?} is not a number of handshakes; {fix}").into()
    })
}

/// Parses the limit of HTTP/2 streams of a connection; 0 is the default.
pub(super) fn streams(text: &str) -> Result<u32, Problem> {
    let allowed = |count: &u32| *count <= 10_000;
    let count = number(text).and_then(|count| u32::try_from(count).ok()).filter(allowed);
    count.ok_or_else(|| {
        let fix = "give a number from 1 to 10000, such as 250, or 0 for the default";
        format!("{text:?} is not a number of streams; {fix}").into()
    })
}

/// Parses the limit of requests in flight to a member; 0 is no limit.
pub(super) fn peer_requests(text: &str) -> Result<usize, Problem> {
    number(text).filter(|count| *count <= MAX_CONNECTIONS).ok_or_else(|| {
        let fix = "give a number from 0 (no limit) to 10000000, such as 1000";
        format!("{text:?} is not a number of requests; {fix}").into()
    })
}

/// The most connections that a flag may allow: more than any host has.
const MAX_CONNECTIONS: usize = 10_000_000;

pub(super) fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A source of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MembershipSource {
    /// `--peer` and `--peers-file`.
    Static,
    /// Leases in `kube-system`.
    Leases,
    /// The cluster's own etcd.
    Etcd,
    /// EndpointSlices of `default/kubernetes`.
    Endpoints,
}

impl MembershipSource {
    /// Its name in the flag.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            MembershipSource::Static => "static",
            MembershipSource::Leases => "leases",
            MembershipSource::Etcd => "etcd",
            MembershipSource::Endpoints => "endpoints",
        }
    }
}

/// Parses a source of members.
pub(super) fn membership(text: &str) -> Result<MembershipSource, Problem> {
    match text {
        "static" => Ok(MembershipSource::Static),
        "leases" => Ok(MembershipSource::Leases),
        "etcd" => Ok(MembershipSource::Etcd),
        "endpoints" => Ok(MembershipSource::Endpoints),
        _ => Err(format!(
            "{text:?} is not a source of members; use static, leases, etcd or endpoints"
        )
        .into()),
    }
}

/// Parses the URL of a member of etcd.
pub(super) fn etcd_server(text: &str) -> Result<Uri, Problem> {
    // The URL may hold a password, which must not be logged.
    if text.contains('@') {
        return Err(
            "a user in the URL is not supported; remove it, and authenticate to etcd with \
                    --etcd-certfile"
                .into(),
        );
    }
    let wrong = || -> Problem {
        format!("{text:?} is not the URL of an etcd server; write it as https://HOST:PORT").into()
    };
    let uri: Uri = text.trim().parse().map_err(|_| wrong())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    if !known
        || uri.host().is_none_or(str::is_empty)
        || !matches!(uri.path(), "" | "/")
        || uri.query().is_some()
    {
        return Err(wrong());
    }
    Ok(uri)
}

/// A feature gate and whether it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeatureGate {
    /// `UnknownVersionInteroperabilityProxy`: off makes a plain reverse proxy.
    UnknownVersionInteroperabilityProxy(bool),
}

/// Parses `NAME=true|false`.
pub(super) fn feature_gate(text: &str) -> Result<FeatureGate, Problem> {
    const KNOWN: &str = "UnknownVersionInteroperabilityProxy";
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    if name.trim() != KNOWN {
        let name = name.trim();
        return Err(
            format!("{name:?} is not a feature gate of mvp; the only one is {KNOWN}").into()
        );
    }
    // The spellings that Go's strconv.ParseBool accepts, and so kube-apiserver.
    match value.trim() {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(true),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(false),
        other => {
            let fix = format!("write {KNOWN}=true or {KNOWN}=false");
            Err(format!("{other:?} is not a value of {KNOWN}; {fix}").into())
        }
    }
    .map(FeatureGate::UnknownVersionInteroperabilityProxy)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn error<T: Debug>(parsed: Result<T, Problem>) -> String {
        parsed.unwrap_err().to_string()
    }

    #[test]
    fn numbers() {
        assert_eq!(port("0"), Ok(0));
        assert_eq!(port("65535"), Ok(65535));
        for text in ["65536", "-1", "+1", "", "https", "1e3"] {
            assert!(error(port(text)).ends_with("give a number from 0 to 65535"), "{text}");
        }
        assert_eq!(workers("64"), Ok(64));
        for text in ["0", "65", "two"] {
            assert!(workers(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_of_clients() {
        assert_eq!(goaway_chance("0"), Ok(0.0));
        assert_eq!(goaway_chance(".001"), Ok(0.001));
        assert_eq!(goaway_chance("0.02"), Ok(0.02));
        for text in ["0.021", "-0.01", "NaN", "inf", "often", ""] {
            let error = error(goaway_chance(text));
            assert!(error.contains("from 0 (off) to 0.02, such as 0.001"), "{error}");
        }
        assert_eq!(request_header_bytes("8192"), Ok(8192));
        assert_eq!(request_header_bytes("262144"), Ok(262_144));
        for text in ["8191", "262145", "128Ki", "-1", "", "99999999999999999999999"] {
            let error = error(request_header_bytes(text));
            assert!(
                error.ends_with("from 8192 to 262144, without a unit, such as 131072 (128 KiB)")
            );
        }
        assert_eq!(client_connections("1"), Ok(1));
        assert_eq!(client_connections_per_address("0"), Ok(0));
        for text in ["0", "10000001", "+5", "many"] {
            assert!(client_connections(text).is_err(), "{text}");
        }
        assert!(client_connections_per_address("10000001").is_err());
    }

    #[test]
    fn feature_gates_and_sources_of_members() {
        let gate = FeatureGate::UnknownVersionInteroperabilityProxy;
        assert_eq!(feature_gate("UnknownVersionInteroperabilityProxy=true"), Ok(gate(true)));
        assert_eq!(feature_gate(" UnknownVersionInteroperabilityProxy = 0"), Ok(gate(false)));
        assert_eq!(
            error(feature_gate("AllAlpha=true")),
            "\"AllAlpha\" is not a feature gate of mvp; the only one is \
             UnknownVersionInteroperabilityProxy"
        );
        assert!(feature_gate("UnknownVersionInteroperabilityProxy").is_err());
        assert_eq!(membership("static"), Ok(MembershipSource::Static));
        for name in ["static", "leases", "etcd", "endpoints"] {
            assert_eq!(membership(name).unwrap().as_str(), name);
        }
        assert!(error(membership("gossip")).contains("is not a source of members"));
    }

    #[test]
    fn etcd_servers() {
        for good in ["https://10.0.0.1:2379", "http://etcd", "https://[::1]:2379/"] {
            assert!(etcd_server(good).is_ok(), "{good}");
        }
        for bad in [
            "https://root:secret@10.0.0.1:2379",
            "https://10.0.0.1?a",
            "10.0.0.1:2379",
            "https://",
            "unix:///x",
            "https://a:1/x",
            "",
        ] {
            assert!(etcd_server(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn header_names_and_ids() {
        assert_eq!(header_name("X-Remote-User").unwrap().as_str(), "x-remote-user");
        assert!(header_name("X Remote").is_err());
        assert!(header_name("").is_err());
        assert!(server_id("apiserver-c7uylvfxlbqccnk6myfkwetzze").is_ok());
        assert!(server_id("a/b").is_err());
        assert!(server_id(&"a".repeat(254)).is_err());
    }
}
