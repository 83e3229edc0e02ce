//! Finds the end of a chunked body (RFC 9112, section 7.1) as hyper does. Entry: [`Chunked::follow`].

/// The error for a byte that is invalid here; hyper refuses it, too.
pub(super) struct Malformed;

/// The parser state within a chunked body.
#[derive(Debug, Default, Clone, Copy)]
pub(super) enum Chunked {
    /// Before the size of a chunk.
    #[default]
    Start,
    Size(u64),
    /// In white space after the size.
    Space(u64),
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a line after the last chunk.
    LineStart,
    Trailer,
    TrailerLf,
    EndLf,
    Over,
}

impl Chunked {
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Over)
    }

    /// Parses one byte, or all bytes of a chunk. Returns the next state and the number of bytes.
    pub(super) fn follow(self, bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        if let Self::Data(left) = self {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            let left = left - length as u64;
            return Ok((if left == 0 { Self::DataCr } else { Self::Data(left) }, length));
        }
        match bytes.first() {
            Some(byte) => self.byte(*byte).map(|next| (next, 1)),
            None => Ok((self, 0)),
        }
    }

    fn byte(self, byte: u8) -> Result<Self, Malformed> {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        let next = match (self, byte) {
            (Self::Start, _) => Self::Size(digit.ok_or(Malformed)?),
            (Self::Size(size) | Self::Space(size), b' ' | b'\t') => Self::Space(size),
            (Self::Size(size) | Self::Space(size), b';') => Self::Extension(size),
            (Self::Size(size) | Self::Space(size) | Self::Extension(size), b'\r') => {
                Self::SizeLf(size)
            }
            (Self::Size(size), _) => {
                let size = size.checked_mul(16).zip(digit);
                let size = size.and_then(|(size, digit)| size.checked_add(digit));
                Self::Size(size.ok_or(Malformed)?)
            }
            (Self::Extension(_), b'\n') => return Err(Malformed),
            (Self::Extension(size), _) => Self::Extension(size),
            (Self::SizeLf(0) | Self::TrailerLf, b'\n') => Self::LineStart,
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::LineStart, b'\r') => Self::EndLf,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::LineStart | Self::Trailer, _) => Self::Trailer,
            (Self::EndLf, b'\n') => Self::Over,
            _ => return Err(Malformed),
        };
        Ok(next)
    }
}
