//! Addresses: the one that peers are told, and whether a URL is our own listener.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::cli::{Origins, ServerUrl};
use crate::mistake::Mistake;

/// The address that peers are told: the given one, else the listener's, else that of the default
/// interface.
pub(super) fn advertised(
    ip: Option<IpAddr>,
    port: Option<u16>,
    listen: SocketAddr,
) -> Option<SocketAddr> {
    let ip = match ip {
        Some(ip) => ip,
        // A listener on all IPv6 addresses also accepts IPv4.
        None if listen.ip().is_unspecified() => default_interface(listen.ip()).or_else(|| {
            default_interface(Ipv4Addr::UNSPECIFIED.into()).filter(|_| listen.is_ipv6())
        })?,
        None => listen.ip(),
    };
    Some(SocketAddr::new(ip, port.unwrap_or(listen.port())))
}

/// Checks that peers can use the address that they are told.
///
/// A loopback address is accepted if it was given explicitly: all members may be on this host.
pub(super) fn announced(
    advertise: Option<SocketAddr>,
    given: bool,
    origins: &Origins,
) -> Result<(), Mistake> {
    const FIX: &str = "give the address at which the other members reach this one, or use \
                       --membership=static";
    let wrong = match advertise.map(|address| address.ip().to_canonical()) {
        None => "missing, and this host has no default interface".to_owned(),
        Some(ip) if ip.is_unspecified() || ip.is_multicast() => {
            format!("other members cannot reach this one at {ip}")
        }
        Some(ip) if ip.is_loopback() && !given => format!(
            "missing, and the listener's address {ip} can be reached from this host only; if all \
             members run on this host, give {ip}"
        ),
        Some(_) => return Ok(()),
    };
    Err(Mistake::usage(origins.name("peer-advertise-ip"), format!("{wrong}; {FIX}")))
}

/// The source address of packets to the internet. Connecting a UDP socket sends nothing.
fn default_interface(unspecified: IpAddr) -> Option<IpAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849): routed like any other, assigned to nobody.
    let world: IpAddr = match unspecified {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    let socket = UdpSocket::bind((unspecified, 0)).ok()?;
    socket.connect((world, 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

/// Whether a request to this URL would reach our own listener.
pub(super) fn is_own_listener(url: &ServerUrl, listen: SocketAddr) -> bool {
    if url.port != listen.port() {
        return false;
    }
    let loopback = match url.ip() {
        Some(ip) if ip == listen.ip() => return true,
        Some(ip) => ip.is_loopback() || ip.is_unspecified(),
        None => url.host == "localhost",
    };
    loopback && (listen.ip().is_unspecified() || (url.ip().is_none() && listen.ip().is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advertised_address_falls_back() {
        let given = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (ip, port, listen, expected) in [
            (given("10.0.0.9"), Some(7443), "10.0.0.1:6443", "10.0.0.9:7443"),
            (given("10.0.0.9"), None, "0.0.0.0:6443", "10.0.0.9:6443"),
            (None, Some(7443), "10.0.0.1:6443", "10.0.0.1:7443"),
            (None, None, "[fd00::1]:6443", "[fd00::1]:6443"),
        ] {
            assert_eq!(advertised(ip, port, at(listen)), Some(at(expected)));
        }
        // A host may have no route at all; an address that is found can be dialled.
        let found = advertised(None, None, at("0.0.0.0:6443"));
        assert!(found.is_none_or(|found| !found.ip().is_unspecified()));
    }

    #[test]
    fn peers_can_use_the_announced_address() {
        let at = |text: &str| text.parse::<SocketAddr>().ok();
        for (advertise, given, good) in [
            ("10.0.0.1:6443", false, true),
            ("[fd00::1]:6443", false, true),
            ("127.0.0.1:6443", true, true),
            ("127.0.0.1:6443", false, false),
            ("[::1]:6443", false, false),
            ("0.0.0.0:6443", true, false),
            ("[::]:6443", true, false),
            ("[::ffff:0.0.0.0]:6443", true, false),
            ("239.0.0.1:6443", true, false),
            ("nowhere", false, false),
        ] {
            let checked = announced(at(advertise), given, &Origins::default());
            assert_eq!(checked.is_ok(), good, "{advertise} {given}: {checked:?}");
            if let Err(mistake) = checked {
                let sentence = mistake.to_string();
                assert!(sentence.starts_with("--peer-advertise-ip: "), "{sentence}");
            }
        }
    }

    #[test]
    fn own_listener() {
        for (host, listen, own) in [
            ("127.0.0.1", "0.0.0.0:6443", true),
            ("localhost", "0.0.0.0:6443", true),
            ("localhost", "127.0.0.1:6443", true),
            ("10.0.0.1", "10.0.0.1:6443", true),
            ("::1", "[::]:6443", true),
            ("127.0.0.1", "10.0.0.1:6443", false),
            ("localhost", "10.0.0.1:6443", false),
            ("127.0.0.2", "127.0.0.1:6443", false),
            ("127.0.0.1", "0.0.0.0:6444", false),
            ("10.0.0.7", "0.0.0.0:6443", false),
        ] {
            let url = ServerUrl { host: host.to_owned(), port: 6443 };
            assert_eq!(is_own_listener(&url, listen.parse().unwrap()), own, "{host} {listen}");
        }
    }
}
