//! The files in use, and what changed in them.

use std::path::PathBuf;

use super::{Loaded, Seen};
use crate::config::pem::Files;
use crate::config::{CertificateFile, KeyPair, ServeConfig};

/// Reads a pair; `None` if it is the one in use.
pub(super) fn new_pair(files: &mut Files<'_>, in_use: &KeyPair) -> Loaded<KeyPair> {
    let (chain, key) = (&in_use.chain, &in_use.key);
    let named = ((chain.key, Some(chain.path.clone())), (key.key, Some(key.path.clone())));
    let new = files.pair(named.0, named.1)?;
    Ok(new.filter(|new| new.chain.pem != chain.pem || new.key.pem != key.pem))
}

/// Reads a bundle of CAs; `None` if it is the one in use.
pub(super) fn new_authorities(
    files: &mut Files<'_>,
    in_use: &CertificateFile,
) -> Loaded<CertificateFile> {
    let new = files.authorities(in_use.key, Some(in_use.path.clone()))?;
    Ok(new.filter(|new| new.pem != in_use.pem))
}

/// The contents of the files in use.
pub(super) fn in_use(config: &ServeConfig) -> Seen {
    let mut seen = Seen::new();
    let mut add = |path: &PathBuf, held: &Vec<u8>| seen.insert(path.clone(), Ok(held.clone()));
    for file in certificates(config) {
        add(&file.path, &file.pem);
    }
    let etcd = config.peers.etcd.as_ref().and_then(|etcd| etcd.client.as_ref());
    let pairs = [Some(&config.serving), config.proxy_client.as_ref(), etcd];
    let sni = config.sni.iter().map(|sni| &sni.pair);
    for pair in pairs.into_iter().flatten().chain(sni) {
        add(&pair.key.path, &pair.key.pem);
    }
    if let Some(file) = &config.peers.file {
        add(&file.path, &file.bytes);
    }
    for (path, held) in config.peers.egress.iter().flat_map(|file| file.contents()) {
        seen.insert(path.to_owned(), Ok(held.to_owned()));
    }
    seen
}

/// Every file with certificates: chains first, then bundles.
pub(super) fn certificates(config: &ServeConfig) -> impl Iterator<Item = &CertificateFile> {
    let etcd = config.peers.etcd.as_ref();
    let chains = [
        Some(&config.serving.chain),
        config.proxy_client.as_ref().map(|pair| &pair.chain),
        etcd.and_then(|etcd| etcd.client.as_ref()).map(|pair| &pair.chain),
    ];
    let sni = config.sni.iter().map(|sni| &sni.pair.chain);
    let bundles = [
        config.client_ca.as_ref(),
        config.request_header.ca.as_ref(),
        config.local.as_ref().map(|local| &local.ca),
        config.peers.ca.as_ref(),
        etcd.and_then(|etcd| etcd.ca.as_ref()),
    ];
    chains.into_iter().flatten().chain(sni).chain(bundles.into_iter().flatten())
}
