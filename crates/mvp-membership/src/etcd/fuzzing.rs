//! What the fuzz targets in `fuzz/` reach of this module. Exists with `cfg(fuzzing)` alone.

use std::sync::Arc;

use super::read;

/// The ID and the address in the value of a gateway's key.
pub fn gateway(value: &[u8]) -> Option<(Arc<str>, Arc<str>)> {
    read::gateway(value, true).ok().map(|(id, address, _)| (id, address))
}

/// The ID and the address of the key of a kube-apiserver.
pub fn server(name: &str, value: &[u8]) -> Option<(Arc<str>, Arc<str>)> {
    read::server(name, value).ok().map(|(id, address, _)| (id, address))
}
