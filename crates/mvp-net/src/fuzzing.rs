//! What the fuzz targets in `fuzz/` reach of this crate's inner modules. Exists with `cfg(fuzzing)` alone.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::serve::{Activity, Guard, LENGTHS, TargetGuard};
use crate::trust::{Version1, certificate_user};
use crate::{BadName, CertificateUser};

/// The user that a certificate names.
pub fn user(leaf: &CertificateDer<'_>) -> Result<Option<CertificateUser>, BadName> {
    certificate_user(leaf)
}

/// Reads a certificate of X.509 version 1.
pub fn first_version(leaf: &CertificateDer<'_>) {
    if let Some(read) = Version1::read(leaf) {
        assert!(read.as_version_3().len() >= leaf.len());
    }
}

/// The guard of request targets around a stream, and what it noted.
pub fn guarded<T: AsyncRead + AsyncWrite + Unpin>(
    stream: T,
    http2: bool,
) -> (impl AsyncRead + AsyncWrite + Unpin, Noted) {
    let activity = Arc::new(Activity::default());
    (TargetGuard::new(stream, http2, Arc::clone(&activity)), Noted(activity))
}

/// What the guard noted.
#[derive(Debug, Clone)]
pub struct Noted(Arc<Activity>);

impl Noted {
    /// Counts a request that the HTTP library passes on, and its response. Whether it is one with a
    /// fault, which the service never sees.
    pub fn request(&self) -> bool {
        let faulty = self.0.fault().is_some();
        Guard::new(Arc::clone(&self.0)).answers();
        faulty
    }
}

/// The Huffman code of HPACK, from the lengths of its codes.
#[allow(clippy::indexing_slicing)]
pub fn huffman(text: &[u8]) -> Vec<u8> {
    let mut codes = [0_u64; 257];
    let mut code = 0;
    for length in 1..=30 {
        for (symbol, _) in LENGTHS.iter().enumerate().filter(|(_, of)| **of == length) {
            codes[symbol] = code;
            code += 1;
        }
        code <<= 1;
    }
    let (mut bytes, mut bits, mut number) = (Vec::new(), 0_u64, 0);
    for byte in text {
        let length = LENGTHS[usize::from(*byte)];
        bits = bits << length | codes[usize::from(*byte)];
        number += length;
        while number >= 8 {
            number -= 8;
            bytes.push((bits >> number) as u8);
        }
    }
    if number > 0 {
        let padding = 8 - number;
        bytes.push((bits << padding) as u8 | ((1 << padding) - 1));
    }
    bytes
}
