//! The proxy of a single peer: `proxy-url` in the peers file. Entry: [`ProxyUrl::parse`].

use std::path::PathBuf;

use mvp_proxy::{ConnectProxy, Way};

use crate::cli::{ServerUrl, http_url};
use crate::mistake::Problem;

/// The way to a single peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProxyUrl {
    /// No proxy, whatever the egress selector file says.
    Direct,
    /// A proxy over plain TCP.
    Http(ServerUrl),
    /// A proxy at a Unix socket.
    Unix(PathBuf),
}

const FORM: &str = "write it as http://HOST:PORT, unix:///PATH or direct";

impl ProxyUrl {
    /// Parses `http://HOST:PORT`, `unix:///PATH` or `direct`.
    pub(crate) fn parse(text: &str) -> Result<ProxyUrl, Problem> {
        if text == "direct" {
            return Ok(ProxyUrl::Direct);
        }
        if let Some(path) = text.strip_prefix("unix://") {
            return match path.starts_with('/') {
                true => Ok(ProxyUrl::Unix(path.into())),
                false => Err(format!("proxy-url {text:?} has no absolute path; {FORM}").into()),
            };
        }
        match http_url(text).map_err(|problem| format!("proxy-url {problem}, or {FORM}"))? {
            (false, url) => Ok(ProxyUrl::Http(url)),
            (true, _) => Err(format!(
                "proxy-url {text:?} is https; configure a proxy over TLS with \
                 --egress-selector-config-file, or {FORM}"
            )
            .into()),
        }
    }

    /// The way through it.
    pub(super) fn way(&self) -> Way {
        match self {
            ProxyUrl::Direct => Way::Direct,
            ProxyUrl::Http(url) => Way::Proxy(ConnectProxy::tcp(&url.authority())),
            ProxyUrl::Unix(path) => Way::Proxy(ConnectProxy::unix(path)),
        }
    }
}
