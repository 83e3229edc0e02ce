//! The loopback addresses of a cluster, which no other cluster or run uses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use anyhow::Context;

/// The network `127.77.N.0/24`, reserved until this is dropped; or the network of the cluster that
/// can be cut.
#[derive(Debug)]
pub(super) struct Place {
    network: [u8; 3],
    /// This listener reserves the network.
    _held: Option<TcpListener>,
}

impl Place {
    /// Reserves the first free network.
    pub(super) fn take() -> anyhow::Result<Place> {
        let held = (1..=250).find_map(|number| {
            let listener = TcpListener::bind((Ipv4Addr::new(127, 77, number, 1), 7077)).ok()?;
            Some(Place { network: [127, 77, number], _held: Some(listener) })
        });
        held.context("cannot listen on 127.77.0.0/16: the suite needs addresses of Linux' loopback")
    }

    /// The network for a setting with a host that can be cut off.
    pub(super) fn on_a_cable() -> Place {
        Place { network: [10, 77, 7], _held: None }
    }

    pub(super) fn etcd(&self) -> SocketAddr {
        SocketAddr::new(self.address(2), 2379)
    }

    pub(super) fn etcd_peers(&self) -> SocketAddr {
        SocketAddr::new(self.address(2), 2380)
    }

    pub(super) fn client(&self) -> IpAddr {
        self.address(200)
    }

    /// The address of an extension server.
    pub(super) fn extension(&self) -> SocketAddr {
        SocketAddr::new(self.address(100), 6443)
    }

    pub(super) fn server(&self, index: usize) -> IpAddr {
        self.address(u8::try_from(index).unwrap_or_default().saturating_add(11))
    }

    /// The address of kube-apiserver when its gateway has the advertised one.
    pub(super) fn behind(&self, index: usize) -> IpAddr {
        self.address(u8::try_from(index).unwrap_or_default().saturating_add(111))
    }

    /// An IPv6 address, to be added to an interface.
    pub(super) fn second(index: usize) -> IpAddr {
        let host = u16::try_from(index).unwrap_or_default().saturating_add(0x11);
        Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, host).into()
    }

    fn address(&self, host: u8) -> IpAddr {
        let [a, b, c] = self.network;
        IpAddr::V4(Ipv4Addr::new(a, b, c, host))
    }
}
