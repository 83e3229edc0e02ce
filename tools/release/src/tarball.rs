//! A tar (ustar) whose bytes depend on its contents alone: entries sorted by path, owner 0:0, one
//! timestamp. Entry: [`Tarball`].

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, bail};
use flate2::{Compression, GzBuilder};

/// The size of a header, and the unit of the contents.
const BLOCK: usize = 512;

/// The entries of a tar. Missing parent directories are added.
#[derive(Debug, Default)]
pub(crate) struct Tarball {
    entries: BTreeMap<String, (u32, Kind)>,
}

#[derive(Debug)]
enum Kind {
    Directory,
    File(Vec<u8>),
    Link(String),
}

impl Tarball {
    /// Adds a directory.
    pub(crate) fn directory(&mut self, path: &str, mode: u32) {
        self.add(path, mode, Kind::Directory);
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, path: &str, mode: u32, contents: impl Into<Vec<u8>>) {
        self.add(path, mode, Kind::File(contents.into()));
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.add(path, 0o777, Kind::Link(target.to_owned()));
    }

    /// The tar, with this modification time for every entry. Fails for paths of more than 100 bytes.
    pub(crate) fn bytes(&self, time: u64) -> anyhow::Result<Vec<u8>> {
        let mut out = Vec::new();
        for (path, (mode, kind)) in &self.entries {
            let header = header(path, *mode, kind, time).with_context(|| format!("tar: {path}"))?;
            out.extend_from_slice(&header);
            if let Kind::File(contents) = kind {
                out.extend_from_slice(contents);
                out.resize(out.len().next_multiple_of(BLOCK), 0);
            }
        }
        out.resize(out.len() + 2 * BLOCK, 0);
        Ok(out)
    }

    fn add(&mut self, path: &str, mode: u32, kind: Kind) {
        for (end, _) in path.match_indices('/') {
            let parent = path.get(..end).unwrap_or_default();
            self.entries.entry(parent.to_owned()).or_insert((0o755, Kind::Directory));
        }
        self.entries.insert(path.to_owned(), (mode, kind));
    }
}

/// The gzip of these bytes. It has neither a time nor a file name.
pub(crate) fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn header(path: &str, mode: u32, kind: &Kind, time: u64) -> anyhow::Result<Vec<u8>> {
    let (path, size, flag, target) = match kind {
        Kind::Directory => (format!("{path}/"), 0, b'5', ""),
        Kind::File(contents) => (path.to_owned(), contents.len() as u64, b'0', ""),
        Kind::Link(target) => (path.to_owned(), 0, b'2', target.as_str()),
    };
    let before = [
        text(&path, 100)?,
        octal(u64::from(mode), 8)?,
        octal(0, 8)?,
        octal(0, 8)?,
        octal(size, 12)?,
        octal(time, 12)?,
    ]
    .concat();
    let mut after = [vec![flag], text(target, 100)?, b"ustar\x0000".to_vec()].concat();
    after.resize(BLOCK - before.len() - 8, 0);
    // The checksum counts its own field as eight spaces.
    let sum: u64 = before.iter().chain(&after).map(|byte| u64::from(*byte)).sum();
    let sum = [octal(sum + 8 * u64::from(b' '), 7)?, b" ".to_vec()].concat();
    Ok([before, sum, after].concat())
}

/// A field of text, filled with zero bytes.
fn text(value: &str, size: usize) -> anyhow::Result<Vec<u8>> {
    if value.len() > size {
        bail!("a path has more than {size} bytes: {value}");
    }
    let mut field = value.as_bytes().to_vec();
    field.resize(size, 0);
    Ok(field)
}

/// A number in octal digits, ended by a zero byte.
fn octal(value: u64, size: usize) -> anyhow::Result<Vec<u8>> {
    let digits = format!("{value:0width$o}\0", width = size - 1);
    if digits.len() > size {
        bail!("{value} does not fit into {size} octal digits");
    }
    Ok(digits.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// The listing of the system's tar.
    fn listing(bytes: &[u8]) -> String {
        let mut tar = Command::new("tar")
            .args(["--list", "--verbose", "--numeric-owner", "--utc", "--full-time", "--file=-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(bytes).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
            .collect()
    }

    #[test]
    fn the_systems_tar_reads_entries_in_order() {
        let mut tarball = Tarball::default();
        tarball.link("b/link", "file");
        tarball.file("b/file", 0o644, vec![b'x'; 600]);
        tarball.directory("a", 0o1777);
        let expected = "\
            drwxrwxrwt 0/0 0 2001-09-09 01:46:40 a/\n\
            drwxr-xr-x 0/0 0 2001-09-09 01:46:40 b/\n\
            -rw-r--r-- 0/0 600 2001-09-09 01:46:40 b/file\n\
            lrwxrwxrwx 0/0 0 2001-09-09 01:46:40 b/link -> file\n";
        assert_eq!(listing(&tarball.bytes(1_000_000_000).unwrap()), expected);
    }

    #[test]
    fn a_path_that_does_not_fit_is_an_error() {
        let mut tarball = Tarball::default();
        tarball.file(&"x".repeat(101), 0o644, "");
        let error = tarball.bytes(0).unwrap_err();
        assert!(format!("{error:#}").contains("more than 100 bytes"), "{error:#}");
    }
}
