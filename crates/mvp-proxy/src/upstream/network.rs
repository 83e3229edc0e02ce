//! The network under connections to servers: TCP. Tests replace it by a simulated one. Entry item:
//! [`Network`].

use std::io;
use std::net::IpAddr;
#[cfg(test)]
use std::{fmt, pin::Pin, sync::Arc};

use mvp_net::connect_from;
use tokio::net::TcpStream;

use super::connect::tcp;
use super::link::Link;
#[cfg(test)]
use super::link::Stream;

/// The network under connections to servers. Outside of tests it has no state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Network {
    #[cfg(test)]
    simulated: Option<Arc<dyn Dial>>,
}

impl Network {
    /// Opens a connection to `HOST:PORT`, from an address of this host if one is given.
    pub(super) async fn connect(&self, address: &str, source: Option<IpAddr>) -> io::Result<Link> {
        #[cfg(test)]
        if let Some(simulated) = &self.simulated {
            return simulated.dial(address).await.map(Link::Proxied);
        }
        let stream = match source {
            Some(source) => connect_from(source, address).await?,
            None => TcpStream::connect(address).await?,
        };
        Ok(tcp(stream)?.into())
    }
}

/// A simulated network, as one process sees it.
#[cfg(test)]
pub(crate) trait Dial: fmt::Debug + Send + Sync {
    fn dial<'a>(&'a self, address: &'a str) -> Dialing<'a>;
}

#[cfg(test)]
pub(crate) type Dialing<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

#[cfg(test)]
impl From<Arc<dyn Dial>> for Network {
    fn from(simulated: Arc<dyn Dial>) -> Network {
        Network { simulated: Some(simulated) }
    }
}
