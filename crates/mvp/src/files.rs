//! Reads the files that flags name. Entry: [`read`].
//!
//! It never blocks on a FIFO or a device, which are refused before they are opened, and it never
//! reads more than [`LIMIT`].

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::mistake::Problem;

/// The largest file that is read; PEM and config files are far smaller.
pub(crate) const LIMIT: u64 = 1 << 20;

/// The bytes of a regular file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| explain(path, &error))?;
    if metadata.is_dir() {
        return Err(format!("{shown} is a directory; name a file in it").into());
    }
    if !metadata.is_file() {
        let fix = "copy its contents into a regular file";
        return Err(format!("{shown} is not a regular file; {fix}").into());
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LIMIT + 1).read_to_end(&mut bytes))
        .map_err(|error| explain(path, &error))?;
    if bytes.len() as u64 > LIMIT {
        return Err(format!("{shown} is larger than 1 MiB; check that it is the right file").into());
    }
    Ok(bytes)
}

fn explain(path: &Path, error: &std::io::Error) -> Problem {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound => format!("{shown} does not exist; create it or correct the path"),
        ErrorKind::PermissionDenied => {
            format!("{shown} cannot be read by this user; change its owner or mode")
        }
        _ => format!("{shown} cannot be read ({error}); correct the path"),
    }
    .into()
}
