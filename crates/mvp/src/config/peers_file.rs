//! The peers file: members in a YAML file that may change. Entry: [`PeersFile::check`].
//!
//! ```yaml
//! peers:
//! - {id: apiserver-b, address: "https://10.0.0.2:6443"}
//! - {id: apiserver-c, address: "https://10.0.0.3:6443", kind: bare, proxy-url: "http://proxy:3128"}
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use mvp_core::member::MemberKind;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::egress::ProxyUrl;
use crate::cli::{self, Origins, Peer};
use crate::mistake::{Mistake, Problem};

/// A peers file and its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeersFile {
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Its peers; their IDs differ from each other, from the local one and from those of `--peer`.
    pub peers: Vec<Peer>,
    /// The proxies on the way to some of them, by address.
    pub proxies: BTreeMap<String, ProxyUrl>,
}

/// The flag that names it.
pub(crate) const KEY: &str = "peers-file";

impl PeersFile {
    /// Parses the contents of the file. `own` is the local ID, `named` are the peers of `--peer`.
    pub(crate) fn check(
        path: PathBuf,
        bytes: Result<Vec<u8>, Problem>,
        own: &str,
        named: &[Peer],
        origins: &Origins,
    ) -> Result<Self, Mistake> {
        let wrong = |what: String| Mistake::trouble(origins.name(KEY), what);
        let bytes = bytes.map_err(|problem| wrong(problem.to_string()))?;
        let shown = path.display();
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| wrong(format!("{shown} is not text; give a YAML file in UTF-8")))?;
        let mut peers: Vec<Peer> = Vec::new();
        let mut proxies: BTreeMap<String, ProxyUrl> = BTreeMap::new();
        for (line, entry) in entries(text).map_err(|what| wrong(format!("{shown} {what}")))? {
            let at = |what: String| wrong(format!("{shown} line {line}: {what}"));
            let proxy = entry.proxy_url.as_deref().map(ProxyUrl::parse).transpose();
            let proxy = proxy.map_err(|problem| at(problem.to_string()))?;
            let peer = entry.check().map_err(|problem| at(problem.to_string()))?;
            let id = &peer.id;
            if id == own {
                return Err(at(format!("{id} is this server's own ID; name only the others")));
            }
            if named.iter().chain(&peers).any(|earlier| earlier.id == *id) {
                return Err(at(format!("{id} is named twice; give each peer its own ID")));
            }
            if let Some(proxy) = proxy {
                proxies.insert(peer.url.authority(), proxy);
            }
            peers.push(peer);
        }
        Ok(Self { path, bytes, peers, proxies })
    }
}

const SHAPE: &str = "write it as peers: and a list of {id: ID, address: \"https://HOST:PORT\"}, \
                     with kind: bare for a server without a gateway, and proxy-url for a proxy on the \
                     way";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    peers: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    address: String,
    kind: Option<String>,
    #[serde(rename = "proxy-url")]
    proxy_url: Option<String>,
}

fn entries(text: &str) -> Result<Vec<(u64, Entry)>, Problem> {
    let document: Document = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        let reason = error.without_snippet().to_string();
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        format!("line {line}: {reason}; {SHAPE}")
    })?;
    let entries = document.peers.into_iter();
    Ok(entries.map(|entry| (entry.referenced.line(), entry.value)).collect())
}

impl Entry {
    fn check(self) -> Result<Peer, Problem> {
        let kind = match self.kind.as_deref() {
            None | Some("mvp") => MemberKind::Mvp,
            Some("bare") => MemberKind::Bare,
            Some(other) => return Err(format!("{other:?} is not a kind; use mvp or bare").into()),
        };
        Ok(Peer { id: cli::server_id(&self.id)?, url: cli::server_url(&self.address)?, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Vec<String>, String> {
        let named = [Peer {
            id: "flagged".to_owned(),
            url: cli::server_url("https://10.0.0.9:1").unwrap(),
            kind: MemberKind::Mvp,
        }];
        let bytes = Ok(text.as_bytes().to_vec());
        PeersFile::check("p.yaml".into(), bytes, "own", &named, &Origins::default())
            .map(|file| {
                let shown = |peer: &Peer| {
                    let proxy = file.proxies.get(&peer.url.authority());
                    let proxy = proxy.map_or(String::new(), |proxy| format!(" {proxy:?}"));
                    format!("{} {} {:?}{proxy}", peer.id, peer.url, peer.kind)
                };
                file.peers.iter().map(shown).collect()
            })
            .map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn peers_are_parsed() {
        let text = "# who\npeers:\n- id: b\n  address: https://10.0.0.2:6443\n\
                    - {id: c, address: 'https://c:1', kind: bare}\n";
        assert_eq!(check(text).unwrap(), ["b https://10.0.0.2:6443 Mvp", "c https://c:1 Bare"]);
        assert_eq!(check("peers: []").unwrap(), [""; 0]);
        let text = "peers: [{id: b, address: 'https://b:1', proxy-url: 'unix:///run/p'}]";
        assert_eq!(check(text).unwrap(), ["b https://b:1 Mvp Unix(\"/run/p\")"]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, what) in [
            ("peers:\n- {id: own, address: 'https://a:1'}", "line 2: own is this server's own ID"),
            ("peers:\n- {id: flagged, address: 'https://a:1'}", "line 2: flagged is named twice"),
            (
                "peers:\n- {id: a, address: 'https://a:1'}\n- {id: a, address: 'https://a:1'}",
                "line 3: a is named twice",
            ),
            ("peers:\n- {id: a, address: 'http://a:1'}", "line 2: \"http://a:1\""),
            ("peers:\n- {id: a/b, address: 'https://a:1'}", "line 2: \"a/b\" is not an ID"),
            ("peers:\n- {id: a, address: 'https://a:1', kind: x}", "line 2: \"x\" is not a kind"),
            ("peers:\n- {id: a, adress: 'https://a:1'}", "line 2: "),
            (
                "peers:\n- {id: a, address: 'https://a:1', proxy-url: 'https://p'}",
                "line 2: proxy-url \"https://p\" is https",
            ),
            ("peers:\n- {id: a}", "line 2: "),
            ("peer: []", "line 1: "),
            ("peers: x", "line 1: "),
            ("", "line 1: "),
            ("peers: [", "line "),
        ] {
            let sentence = check(text).unwrap_err();
            assert!(
                sentence.starts_with(&format!("--peers-file: p.yaml {what}")),
                "{text:?}: {sentence}"
            );
            assert!(sentence.contains("; ") && !sentence.contains('\n'), "{sentence}");
        }
    }
}
