//! The check of `--steer`. Entry: [`SteerConfig::check`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Around, LocalServer, SteerConfig};
use crate::cli::{Origins, ServeArgs, ServerUrl};
use crate::mistake::Mistake;

/// Not the first loopback address, which a server on all addresses has in its logs for others.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

impl SteerConfig {
    /// The way to the local server, which must not be steered back to us.
    pub(super) fn check(
        args: &ServeArgs,
        local: Option<&LocalServer>,
        origins: &Origins,
    ) -> Result<Option<SteerConfig>, Mistake> {
        if !args.steer {
            return Ok(None);
        }
        let Some(local) = local else {
            let sentence = "only a gateway beside an API server can take over its connections; give \
                            --local-server instead of --servers, or remove --steer";
            return Err(Mistake::usage(origins.name("steer"), sentence));
        };
        if args.secure_port == 0 {
            let sentence = "0 is not the port of an API server; with --steer, give the port that \
                            kube-apiserver listens on";
            return Err(Mistake::usage(origins.name("secure-port"), sentence));
        }
        if local.url.port != args.secure_port {
            let sentence = format!(
                "port {} is not that of --secure-port ({}); with --steer both are kube-apiserver's, so that \
                 it gets the connections back when mvp stops",
                local.url.port, args.secure_port
            );
            return Err(Mistake::usage(origins.name("local-server"), sentence));
        }
        let host = &*local.url.host;
        if local.url.ip().is_none() && host != "localhost" {
            let sentence = format!(
                "{host} is not an IP address; with --steer, give https://127.0.0.1:PORT, or the \
                 address of this host that kube-apiserver listens on"
            );
            return Err(Mistake::usage(origins.name("local-server"), sentence));
        }
        Ok(Some(SteerConfig { around: Around::new(&local.url) }))
    }
}

impl Around {
    /// The way to this server; `None` if it is reached on loopback.
    pub(crate) fn new(server: &ServerUrl) -> Option<Around> {
        Around::of(SocketAddr::new(server.ip()?, server.port))
    }

    /// The way to this address; `None` if it is loopback.
    pub(crate) fn of(server: SocketAddr) -> Option<Around> {
        let source: IpAddr = match server.ip() {
            ip if ip.is_loopback() => return None,
            IpAddr::V4(_) => SOURCE.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        Some(Around { source, server })
    }
}
