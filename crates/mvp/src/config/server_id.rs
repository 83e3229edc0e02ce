//! The ID that a kube-apiserver on this host gives itself.
//!
//! [`of_this_host`] must give exactly the ID of kube-apiserver: a member of its Leases and a member
//! of our flags are the same member if their IDs are equal.

use sha2::{Digest, Sha256};

use crate::cli;
use crate::mistake::Mistake;

/// The ID of the kube-apiserver of this host.
pub(super) fn of_this_host() -> Result<String, Mistake> {
    let unknown = |reason: &str| {
        let sentence =
            format!("cannot read the name of this host ({reason}); give an ID such as node-a");
        Mistake::trouble("--server-id", sentence)
    };
    let name = host_name().map_err(|error| unknown(&error.to_string()))?;
    match name.trim() {
        "" => Err(unknown("it is empty")),
        name => cli::server_id(&id_of(name)).map_err(|what| Mistake::trouble("--server-id", what)),
    }
}

/// The same as `NewConfig` in `k8s.io/apiserver/pkg/server/config.go`: a hash of host name and
/// component, each after its length; half of the hash in base32.
fn id_of(host: &str) -> String {
    let mut hash = Sha256::new();
    for part in [host, "kube-apiserver"] {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        hash.update(length.to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    let half: Vec<u8> = hash.iter().copied().take(16).collect();
    format!("apiserver-{}", base32(&half))
}

/// Base32 of RFC 4648, in lower case, without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let mut buffer = 0_u32;
    let mut bits = 0;
    let mut push = |five: u32| {
        text.extend(ALPHABET.get((five & 31) as usize).map(|letter| char::from(*letter)));
    };
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            push(buffer >> bits);
        }
        buffer &= (1 << bits) - 1;
    }
    if bits > 0 {
        push(buffer << (5 - bits));
    }
    text
}

#[cfg(target_os = "linux")]
fn host_name() -> std::io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
}

#[cfg(not(target_os = "linux"))]
fn host_name() -> std::io::Result<String> {
    let output = std::process::Command::new("uname").arg("-n").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by Go with the lines of `NewConfig` (k8s.io/apiserver v0.36.4), the first by
    /// `NewConfig` itself on a host of that name.
    #[test]
    fn ids_equal_those_of_kube_apiserver() {
        for (host, id) in [
            ("vm", "apiserver-wlv32tlttr4jl3gtroqexyxapa"),
            ("control-plane-1", "apiserver-ktnciuvxljjqohol43g65rthde"),
            ("kind-control-plane", "apiserver-c7uylvfxlbqccnk6myfkwetzze"),
            ("", "apiserver-2ikcnb3wory4bpirwz777r2iv4"),
        ] {
            assert_eq!(id_of(host), id, "{host:?}");
        }
    }

    /// RFC 4648, section 10.
    #[test]
    fn base32_matches_rfc_4648() {
        for (text, encoded) in [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("fooba", "mzxw6ytb"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(base32(text.as_bytes()), encoded);
        }
    }
}
