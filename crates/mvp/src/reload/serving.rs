//! Reloads the certificates of the listener. They apply to new connections.

use std::mem;

use super::in_use::new_pair;
use super::{Loaded, Reloader};
use crate::config::SniPair;
use crate::config::listener::SNI;
use crate::config::pem::Files;

impl Reloader {
    /// Reloads the serving certificate.
    pub(super) fn reload_serving(&mut self, files: &mut Files<'_>) {
        let key = self.config.serving.chain.key;
        let loaded = new_pair(files, &self.config.serving);
        let Some(new) = self.report.take(key, loaded) else { return };
        let old = mem::replace(&mut self.config.serving, new);
        if !self.replace_server(&[key]) {
            self.config.serving = old;
        }
    }

    /// Reloads the certificates for some server names, all together: they have one flag.
    pub(super) fn reload_sni(&mut self, files: &mut Files<'_>) {
        if self.config.sni.is_empty() {
            return;
        }
        let loaded = new_sni(files, &self.config.sni);
        let Some(new) = self.report.take(SNI, loaded) else { return };
        let old = mem::replace(&mut self.config.sni, new);
        if !self.replace_server(&[SNI]) {
            self.config.sni = old;
        }
    }
}

/// Reads all pairs; `None` if they are those in use.
fn new_sni(files: &mut Files<'_>, in_use: &[SniPair]) -> Loaded<Vec<SniPair>> {
    let mut changed = false;
    let mut all = Vec::new();
    for SniPair { pair, names } in in_use {
        let new = new_pair(files, pair)?;
        changed |= new.is_some();
        all.push(SniPair { pair: new.unwrap_or_else(|| pair.clone()), names: names.clone() });
    }
    Ok(changed.then_some(all))
}
