//! Listening TCP sockets of this host, as the kernel lists them. Entry: [`listeners`].

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    /// By which its process is found.
    pub(super) inode: u64,
}

/// All listening sockets; none if the kernel does not list them.
pub(super) fn listeners() -> Option<Vec<Listener>> {
    let four = fs::read_to_string("/proc/net/tcp").ok()?;
    // Without IPv6 there is no such file.
    let six = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    Some(four.lines().chain(six.lines()).filter_map(listener).collect())
}

impl Listener {
    /// Whether nobody else can listen on this address.
    pub(super) fn blocks(&self, address: SocketAddr) -> bool {
        let (own, other) = (self.address.ip(), address.ip());
        let overlap = match (own.is_unspecified(), other.is_unspecified()) {
            (false, false) => own == other,
            // A listener on all IPv6 addresses also has the IPv4 ones.
            (true, _) => own.is_ipv6() || other.is_ipv4(),
            (false, true) => other.is_ipv6() || own.is_ipv4(),
        };
        address.port() != 0 && self.address.port() == address.port() && overlap
    }

    /// The process that listens, as `NAME (PID)`, if we may see it.
    pub(super) fn process(&self) -> Option<String> {
        let socket = format!("socket:[{}]", self.inode);
        let processes = fs::read_dir("/proc").ok()?.flatten().filter(|entry| {
            entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit())
        });
        for process in processes {
            let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
            let holds = |file: fs::DirEntry| {
                fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == socket.as_str())
            };
            if open.flatten().any(holds) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                return Some(format!(
                    "{} ({})",
                    name.trim(),
                    process.file_name().to_string_lossy()
                ));
            }
        }
        None
    }
}

/// The state of a listening socket.
const LISTEN: &str = "0A";

/// The listening socket of a line, if it is one.
fn listener(line: &str) -> Option<Listener> {
    let mut fields = line.split_whitespace();
    let address = fields.nth(1)?;
    let state = fields.nth(1)?;
    if state != LISTEN {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let (ip, port) = address.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Listener { address: SocketAddr::new(ip_of(ip)?, port), inode })
}

/// An address as the kernel writes it: 32-bit words in the byte order of the host.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = hex.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn our_own_listeners_are_found_with_their_process() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(bound) = TcpListener::bind(address) else { continue };
            let address = bound.local_addr().unwrap();
            let found = listeners().unwrap();
            let listener = found.iter().find(|listener| listener.blocks(address)).unwrap();
            assert_eq!(listener.address, address);
            let pid = format!("({})", std::process::id());
            assert!(listener.process().unwrap().ends_with(&pid));
            drop(bound);
        }
    }

    #[test]
    fn other_lines_are_ignored() {
        for line in
            ["", "  sl  local_address rem_address   st", "0: 0100007F:1F90 00000000:0000 01 x"]
        {
            assert_eq!(listener(line), None, "{line}");
        }
        assert_eq!(ip_of("zz"), None);
    }
}
