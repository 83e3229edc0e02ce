//! Reloads the files about peers: the peers file, and the egress selector file with those that it
//! names. Entries: [`Reloader::reload_peers`], [`Reloader::reload_egress`].

use super::{Reloader, members, peers_file, selector};
use crate::config::pem::{Files, Read};
use crate::config::{EgressFile, Peers, PeersFile};

impl Reloader {
    /// Reloads the peers file.
    pub(super) fn reload_peers(&mut self, read: &Read) {
        let Peers { file, named, .. } = &self.config.peers;
        let Some(file) = file else { return };
        let held = read(&file.path);
        let loaded = if held.as_ref() == Ok(&file.bytes) {
            Ok(None)
        } else {
            let own = self.config.local.as_ref().map_or("", |local| &local.id);
            PeersFile::check(file.path.clone(), held, own, named, &self.config.origins).map(Some)
        };
        let Some(new) = self.report.take(peers_file::KEY, loaded) else { return };
        let proxies = new.proxies.clone();
        let before = self.config.peers.file.replace(new);
        if before.as_ref().is_some_and(|before| before.proxies != proxies)
            && let Err(error) = self.replace_ways()
        {
            self.config.peers.file = before;
            return self.report.failed(&[peers_file::KEY], &format!("{error:#}"));
        }
        self.in_force.members.send_replace(members(&self.config));
        self.report.replaced(&[peers_file::KEY]);
    }

    /// Reloads the egress selector file. New connections to peers use the new way.
    pub(super) fn reload_egress(&mut self, files: &mut Files<'_>, read: &Read) {
        let Some(in_use) = &self.config.peers.egress else { return };
        let new = EgressFile::check(files, in_use.path.clone(), read(&in_use.path));
        let loaded = new.map(|new| Some(new).filter(|new| new.contents() != in_use.contents()));
        let Some(new) = self.report.take(selector::KEY, loaded) else { return };
        // It may name other files than before.
        for (path, held) in new.contents() {
            self.used.entry(path.to_owned()).or_insert_with(|| Ok(held.to_owned()));
        }
        let before = self.config.peers.egress.replace(new);
        match self.replace_ways() {
            Ok(()) => self.report.replaced(&[selector::KEY]),
            Err(error) => {
                self.config.peers.egress = before;
                self.report.failed(&[selector::KEY], &format!("{error:#}"));
            }
        }
    }

    /// Uses the ways of the configuration for all requests from now on. Requests in flight keep their
    /// connections.
    fn replace_ways(&self) -> anyhow::Result<()> {
        self.in_force.egress.replace(selector::ways(&self.config)?);
        // Pools of connections belong to one TLS.
        if let Some(outbound) = &self.in_force.outbound_peers {
            outbound.replace((*outbound.current()).clone());
        }
        Ok(())
    }
}
