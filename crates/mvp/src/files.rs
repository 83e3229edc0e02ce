//! Reading the files that flags name, whatever they turn out to be.
//!
//! [`read`] is used for the config file and for every PEM file. It never hangs (a FIFO or a device
//! is refused before it is opened) and never reads more than it was told to.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// No PEM or config file of a sane cluster comes near this.
pub(crate) const LIMIT: u64 = 1 << 20;

/// The bytes of a regular file, or what is wrong with it and what to do.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| explain(path, &error))?;
    if metadata.is_dir() {
        return Err(format!("{shown} is a directory; name the file in it"));
    }
    if !metadata.is_file() {
        return Err(format!("{shown} is not a regular file; copy what it gives into one"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LIMIT + 1).read_to_end(&mut bytes))
        .map_err(|error| explain(path, &error))?;
    if bytes.len() as u64 > LIMIT {
        return Err(format!("{shown} is larger than 1 MiB; it is probably not the file you mean"));
    }
    Ok(bytes)
}

fn explain(path: &Path, error: &std::io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound => format!("{shown} does not exist; create it or correct the path"),
        ErrorKind::PermissionDenied => {
            format!("{shown} may not be read by this user; change its owner or mode")
        }
        _ => format!("{shown} cannot be read ({error}); correct the path"),
    }
}
