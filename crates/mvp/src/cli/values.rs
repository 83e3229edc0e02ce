//! The values of flags: text to typed values, each mistake with its fix.
//!
//! Every parser here is used by clap for the flag and, through the same definition, for the key of
//! the config file. None looks at another flag or at the world outside; [`crate::config`] does.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::{HeaderName, Uri};

/// Reads a port to listen on; 0 lets the system choose.
pub(super) fn port(text: &str) -> Result<u16, String> {
    digits(text).ok_or_else(|| format!("{text:?} is not a port; give a number from 0 to 65535"))
}

/// Reads a port that others dial.
pub(super) fn peer_port(text: &str) -> Result<u16, String> {
    digits(text)
        .filter(|port| *port != 0)
        .ok_or_else(|| format!("{text:?} is not a port; give a number from 1 to 65535"))
}

/// Reads `IP:PORT`.
pub(super) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not an address; give an IP and a port such as 127.0.0.1:6480")
    })
}

/// Reads the first of several ports; 0 lets the system choose each.
pub(super) fn port_base(text: &str) -> Result<u16, String> {
    digits(text)
        .filter(|port| *port <= 65_000)
        .ok_or_else(|| format!("{text:?} is not a first port; give a number from 0 to 65000"))
}

/// `str::parse` alone would also take a leading plus.
pub(super) fn digits(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Reads an IP address.
pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IP address; give one such as 10.0.0.1"))
}

/// Reads a member ID. It appears in logs, metrics and refusals, and in the name of a Lease later.
pub(crate) fn server_id(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || text.len() > 253 || !text.bytes().all(allowed) {
        return Err(format!(
            "{text:?} is not an ID; use 1 to 253 letters, digits, dashes, dots and underscores"
        ));
    }
    Ok(text.to_owned())
}

/// Reads the ID of a member as it is known, perhaps by its address, too: that goes into a URL as it is.
pub(crate) fn server_id_at(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'@' | b':' | b'[' | b']')
    };
    if text.is_empty() || text.len() > 320 || !text.bytes().all(allowed) {
        return Err(format!("{text:?} is not the ID of a member; see /debug/snapshot for those"));
    }
    Ok(text.to_owned())
}

/// Reads the name of a header.
pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(text.trim())
        .map_err(|_| format!("{text:?} is not a header name; give one such as X-Remote-User"))
}

/// Reads a number of workers.
pub(super) fn workers(text: &str) -> Result<usize, String> {
    digits(text)
        .map(usize::from)
        .filter(|count| (1..=MAX_WORKERS).contains(count))
        .ok_or_else(|| format!("{text:?} is not a number of workers; give one from 1 to 64"))
}

/// More would not help: each worker has its own connections to every peer.
pub(crate) const MAX_WORKERS: usize = 64;

/// Reads the fraction of requests that end their connection, with kube-apiserver's bounds.
pub(super) fn goaway_chance(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|chance| (0.0..=0.02).contains(chance))
        .ok_or_else(|| format!("{text:?} is not a chance; give a fraction from 0 (off) to 0.02"))
}

/// Reads how large the head of a request may be.
///
/// The upper bound is fixed: HPACK's Huffman coding can make a head 3.75 times as large, and Go
/// ends the connection of all who share it above 1 MiB.
pub(super) fn request_header_bytes(text: &str) -> Result<usize, String> {
    number(text)
        .filter(|bytes| (8 << 10..=256 << 10).contains(bytes))
        .ok_or_else(|| format!("{text:?} is not a size; give a number from 8192 to 262144"))
}

/// Reads how many connections there may be.
pub(super) fn client_connections(text: &str) -> Result<usize, String> {
    number(text)
        .filter(|count| (1..=MAX_CONNECTIONS).contains(count))
        .ok_or_else(|| format!("{text:?} is not a number of connections; give 1 to 10000000"))
}

/// The same for one address; 0 for any number.
pub(super) fn client_connections_per_address(text: &str) -> Result<usize, String> {
    number(text).filter(|count| *count <= MAX_CONNECTIONS).ok_or_else(|| {
        format!("{text:?} is not a number of connections; give 0 (no limit) to 10000000")
    })
}

/// More than any host has.
const MAX_CONNECTIONS: usize = 10_000_000;

fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// How long a member that left may be remembered.
pub(super) fn forget_after(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, Duration::from_hours(24), "0s to 24h")
}

/// How long a shutdown may be put off.
pub(super) fn shutdown_delay(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, Duration::from_mins(10), "0s to 10m")
}

/// How long what is under way may go on.
pub(super) fn shutdown_grace(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, Duration::from_hours(1), "0s to 1h")
}

/// How often members may be asked.
pub(super) fn refresh_interval(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(100), Duration::from_mins(1), "100ms to 1m")
}

fn within(text: &str, min: Duration, max: Duration, bounds: &str) -> Result<Duration, String> {
    let fix = format!("give a time from {bounds}");
    let duration = go_duration(text).ok_or_else(|| format!("{text:?} is not a time; {fix}"))?;
    if duration < min || duration > max {
        return Err(format!("{text:?} is out of bounds; {fix}"));
    }
    Ok(duration)
}

/// Durations as Go writes them, and so every Kubernetes flag: `1h30m`, `1.5s`, `100ms`.
fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanoseconds = 0_u128;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let (number, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let unit: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() > 18 || fraction.len() > 18 || whole.len() + fraction.len() == 0 {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u128>().ok()? };
        nanoseconds = nanoseconds.checked_add(whole.checked_mul(unit)?)?;
        if !fraction.is_empty() {
            let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
            nanoseconds += fraction.parse::<u128>().ok()?.checked_mul(unit)? / scale;
        }
        rest = after;
    }
    if text.is_empty() {
        return None;
    }
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// Where members come from.
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
    /// As the flag has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            MembershipSource::Static => "static",
            MembershipSource::Leases => "leases",
            MembershipSource::Etcd => "etcd",
            MembershipSource::Endpoints => "endpoints",
        }
    }
}

/// Reads a source of members.
pub(super) fn membership(text: &str) -> Result<MembershipSource, String> {
    match text {
        "static" => Ok(MembershipSource::Static),
        "leases" => Ok(MembershipSource::Leases),
        "etcd" => Ok(MembershipSource::Etcd),
        "endpoints" => Ok(MembershipSource::Endpoints),
        _ => Err(format!(
            "{text:?} is not a source of members; use static, leases, etcd or endpoints"
        )),
    }
}

/// Reads the URL of a member of etcd.
pub(super) fn etcd_server(text: &str) -> Result<Uri, String> {
    // A password must not come into a log.
    if text.contains('@') {
        let way =
            "etcd is asked with a certificate, and not with a user in its URL; see --etcd-certfile";
        return Err(way.to_owned());
    }
    let wrong = || format!("{text:?} is not where etcd is; write it as https://HOST:PORT");
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

/// One feature gate and whether it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeatureGate {
    /// `UnknownVersionInteroperabilityProxy`: off makes a plain reverse proxy.
    UnknownVersionInteroperabilityProxy(bool),
}

/// Reads `NAME=true|false`.
pub(super) fn feature_gate(text: &str) -> Result<FeatureGate, String> {
    const KNOWN: &str = "UnknownVersionInteroperabilityProxy";
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    if name.trim() != KNOWN {
        return Err(format!("{:?} is not a feature gate of mvp; known is {KNOWN}", name.trim()));
    }
    // The spellings of Go's strconv.ParseBool, which kube-apiserver takes.
    match value.trim() {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(true),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(false),
        other => Err(format!("{other:?} is not a state of {KNOWN}; write {KNOWN}=true or =false")),
    }
    .map(FeatureGate::UnknownVersionInteroperabilityProxy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("1s", Some(1_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("1.5s", Some(1_500_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("100ms", Some(100_000_000)),
            ("1m0.5s", Some(60_500_000_000)),
            ("7µs", Some(7_000)),
            ("7us", Some(7_000)),
            ("", None),
            ("10", None),
            ("s", None),
            (".s", None),
            ("-1s", None),
            ("1 s", None),
            ("1d", None),
            ("1.2.3s", None),
            ("99999999999999999999h", None),
            ("999999999999999999h", None),
        ] {
            assert_eq!(go_duration(text), expected.map(Duration::from_nanos), "{text:?}");
        }
    }

    #[test]
    fn times_have_bounds() {
        assert_eq!(forget_after("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(refresh_interval("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(
            refresh_interval("1ms").unwrap_err(),
            "\"1ms\" is out of bounds; give a time from 100ms to 1m"
        );
        assert!(forget_after("25h").unwrap_err().contains("out of bounds"));
        assert!(forget_after("soon").unwrap_err().contains("is not a time"));
    }

    #[test]
    fn numbers() {
        assert_eq!(port("0"), Ok(0));
        assert_eq!(port("65535"), Ok(65535));
        for text in ["65536", "-1", "+1", "", "https", "1e3"] {
            assert!(port(text).unwrap_err().ends_with("give a number from 0 to 65535"), "{text}");
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
            assert!(goaway_chance(text).unwrap_err().ends_with("from 0 (off) to 0.02"), "{text}");
        }
        assert_eq!(request_header_bytes("8192"), Ok(8192));
        assert_eq!(request_header_bytes("262144"), Ok(262_144));
        for text in ["8191", "262145", "128Ki", "-1", "", "99999999999999999999999"] {
            assert!(request_header_bytes(text).is_err(), "{text}");
        }
        assert_eq!(client_connections("1"), Ok(1));
        assert_eq!(client_connections_per_address("0"), Ok(0));
        for text in ["0", "10000001", "+5", "many"] {
            assert!(client_connections(text).is_err(), "{text}");
        }
        assert!(client_connections_per_address("10000001").is_err());
    }

    #[test]
    fn gates_and_membership() {
        let gate = FeatureGate::UnknownVersionInteroperabilityProxy;
        assert_eq!(feature_gate("UnknownVersionInteroperabilityProxy=true"), Ok(gate(true)));
        assert_eq!(feature_gate(" UnknownVersionInteroperabilityProxy = 0"), Ok(gate(false)));
        assert_eq!(
            feature_gate("AllAlpha=true").unwrap_err(),
            "\"AllAlpha\" is not a feature gate of mvp; known is UnknownVersionInteroperabilityProxy"
        );
        assert!(feature_gate("UnknownVersionInteroperabilityProxy").is_err());
        assert_eq!(membership("static"), Ok(MembershipSource::Static));
        for name in ["static", "leases", "etcd", "endpoints"] {
            assert_eq!(membership(name).unwrap().as_str(), name);
        }
        assert!(membership("gossip").unwrap_err().contains("is not a source of members"));
    }

    #[test]
    fn members_of_etcd() {
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
