//! Where kube-apiserver listens, and so where `mvp` listens and reaches it. Entry: [`decide`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::server_flags::{self, ServerFlags};
use super::settings::Given;
use crate::mistake::Mistake;

/// The flags of `mvp serve` that follow from the listener of kube-apiserver.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listener<'a> {
    pub(super) flags: Vec<(&'a str, String)>,
    /// Whether clients reach `mvp` at the port of kube-apiserver.
    pub(super) same_port: bool,
}

/// kube-apiserver's default port.
const PORT: u16 = 6443;

/// Decides by the flags of kube-apiserver and those that are given.
pub(super) fn decide(server: &ServerFlags, given: &Given) -> Result<Listener<'static>, Mistake> {
    let bind = address(server, "bind-address")?.filter(|bind| !bind.is_unspecified());
    let port = port(server)?;
    let same_port = given.secure_port.is_none_or(|own| own == port);
    let mut flags = Vec::new();
    let mut add = |name: &'static str, value: String| {
        if !given.is_set(name) {
            flags.push((name, value));
        }
    };
    add("secure-port", port.to_string());
    let own = if given.steer {
        // What clients use; the sockets of mvp are elsewhere.
        let own = address(server, "bind-address")?;
        if own.is_some_and(|ip| ip.is_loopback()) {
            let sentence = "kube-apiserver listens on a loopback address only, so it cannot get \
                            connections of other hosts back when mvp stops; remove --steer, or let \
                            it listen on all addresses";
            return Err(Mistake::usage("--steer", sentence));
        }
        own
    } else {
        apart(server, given, bind, port, same_port)?
    };
    if let Some(own) = own {
        add("bind-address", own.to_string());
    }
    if !given.is_set("servers") {
        let at = SocketAddr::new(bind.unwrap_or(Ipv4Addr::LOCALHOST.into()), port);
        add("local-server", format!("https://{at}"));
    }
    Ok(Listener { flags, same_port: given.steer || same_port })
}

/// The address for `mvp` beside a kube-apiserver that keeps its listener, or why there is none.
fn apart(
    server: &ServerFlags,
    given: &Given,
    bind: Option<IpAddr>,
    port: u16,
    same_port: bool,
) -> Result<Option<IpAddr>, Mistake> {
    let advertised = match given.advertise_address {
        Some(address) => Some(address),
        None if bind.is_some_and(|bind| bind.is_loopback()) => {
            address(server, "advertise-address")?
        }
        None => None,
    };
    let own = given.bind_address.or(match bind {
        Some(bind) if bind.is_loopback() => advertised,
        Some(bind) if !same_port => Some(bind),
        _ => None,
    });
    let (where_, fix) = match bind {
        _ if !same_port => return Ok(own),
        None => ("all addresses".to_owned(), "add --steer, or give another --secure-port"),
        Some(bind) if bind.is_loopback() => match own {
            Some(own) if own != bind && !own.is_unspecified() => return Ok(Some(own)),
            Some(_) => (bind.to_string(), "give a --bind-address that is not kube-apiserver's"),
            None => (
                bind.to_string(),
                "give the address at which clients reach this node as --bind-address",
            ),
        },
        Some(bind) => match own {
            Some(own) if own != bind && !own.is_unspecified() => return Ok(Some(own)),
            _ => {
                let fix = "add --steer, or give another --bind-address or --secure-port";
                (bind.to_string(), fix)
            }
        },
    };
    let what = format!(
        "kube-apiserver listens on {where_}, port {port} ({}), and mvp cannot listen there, too; {fix}",
        server.origin
    );
    Err(Mistake::usage("--like", what))
}

/// An address that a flag of kube-apiserver gives.
fn address(server: &ServerFlags, flag: &str) -> Result<Option<IpAddr>, Mistake> {
    let Some(text) = server.last(flag)? else { return Ok(None) };
    let wrong = |_| {
        let what = format!("{text:?} is not an IP address; correct it there");
        Mistake::trouble(server_flags::name(flag, &server.origin), what)
    };
    text.trim().parse().map(Some).map_err(wrong)
}

fn port(server: &ServerFlags) -> Result<u16, Mistake> {
    let Some(text) = server.last("secure-port")? else { return Ok(PORT) };
    text.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
        let what = format!("{text:?} is not a port from 1 to 65535; correct it there");
        Mistake::trouble(server_flags::name("secure-port", &server.origin), what)
    })
}
