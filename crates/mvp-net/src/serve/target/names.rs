//! The header names that the parser of HTTP/1.1 looks for. Entry: [`Known`].

/// A header whose value tells where a request ends, or any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    ContentLength,
    TransferEncoding,
    Upgrade,
    Other,
}

impl Known {
    pub(super) fn beginning_with(byte: u8) -> Self {
        match byte.to_ascii_lowercase() {
            b'c' => Self::ContentLength,
            b't' => Self::TransferEncoding,
            b'u' => Self::Upgrade,
            _ => Self::Other,
        }
    }

    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Self::ContentLength => b"content-length",
            Self::TransferEncoding => b"transfer-encoding",
            Self::Upgrade => b"upgrade",
            Self::Other => b"",
        }
    }
}

/// The length of the prefix of `word` including this byte; `None` if it is another word.
pub(super) fn advance(word: &[u8], have: u8, byte: u8) -> Option<u8> {
    (word.get(usize::from(have)) == Some(&byte)).then_some(have + 1)
}
