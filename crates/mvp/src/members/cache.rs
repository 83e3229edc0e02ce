//! The last known members on disk, so that a node that reboots finds the servers before any of its
//! seeds answers. Entry: [`MembersCache`].
//!
//! The file has addresses only. Nothing in it is trusted: a client verifies the certificate of the
//! server that it reaches, and so does `mvp` before it sends a token.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mvp_membership::Claims;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::files;
use crate::mistake::Problem;

/// The file if no flag says otherwise.
pub(crate) const DEFAULT: &str = "/var/lib/mvp/members.json";

/// The most members that are written and read: far more than any cluster has.
const MAX_MEMBERS: usize = 256;
/// The largest file that is read.
const MAX_BYTES: usize = 64 << 10;
const VERSION: u32 = 1;

/// The flag `--members-cache`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CachePath {
    /// The default path, if its folder can be written.
    Default,
    /// This path.
    At(PathBuf),
    /// None.
    Off,
}

impl CachePath {
    /// The path of the flag. An empty one is none.
    pub(crate) fn of_flag(flag: Option<&Path>) -> CachePath {
        match flag {
            None => CachePath::Default,
            Some(path) if path.as_os_str().is_empty() => CachePath::Off,
            Some(path) => CachePath::At(path.to_owned()),
        }
    }
}

/// The file of the last known members.
#[derive(Debug, Clone)]
pub(crate) struct MembersCache {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    version: u32,
    members: Vec<String>,
}

impl MembersCache {
    /// The cache at this path. `None` if it is off, or if its folder cannot be written.
    pub(crate) fn open(path: &CachePath) -> Option<MembersCache> {
        let path = match path {
            CachePath::Off => return None,
            CachePath::Default => PathBuf::from(DEFAULT),
            CachePath::At(path) => path.clone(),
        };
        let cache = MembersCache { path };
        match cache.probe() {
            Ok(()) => Some(cache),
            Err(error) => {
                tracing::info!(
                    path = %cache.path.display(), %error,
                    "members are not kept on disk; give --members-cache a path in a folder that exists \
                     and can be written"
                );
                None
            }
        }
    }

    /// The path, for operators.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The members of the last run as `IP:PORT`, without those that `excludes` names. A file that does
    /// not exist has none; one that is damaged is ignored.
    pub(crate) fn read(&self, excludes: &dyn Fn(SocketAddr) -> bool) -> Vec<Arc<str>> {
        if !self.path.exists() {
            return Vec::new();
        }
        let bytes = files::read(&self.path);
        match bytes.and_then(|bytes| parse(&bytes)) {
            Ok(members) => {
                let usable = members.into_iter().filter(|address| !excludes(*address));
                usable.map(|address| address.to_string().into()).collect()
            }
            Err(error) => {
                let path = self.name();
                tracing::warn!(path, %error, "members cache ignored; it is replaced when members change");
                Vec::new()
            }
        }
    }

    /// Writes the members that a source finds whenever they change. `written` are those of the file.
    /// Never ends before the source.
    pub(super) async fn follow(
        self,
        mut found: watch::Receiver<Claims>,
        mut written: Vec<Arc<str>>,
    ) {
        loop {
            let now: Vec<Arc<str>> = {
                let claims = found.borrow_and_update();
                claims.claims.iter().filter_map(|claim| claim.address.clone()).collect()
            };
            if !now.is_empty() && now != written {
                self.keep(&now).await;
                written = now;
            }
            if found.changed().await.is_err() {
                return;
            }
        }
    }

    /// Writes the members on another thread. A failure is logged.
    pub(crate) async fn keep(&self, members: &[Arc<str>]) {
        let (cache, members) = (self.clone(), members.to_vec());
        let written = tokio::task::spawn_blocking(move || cache.write(&members)).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            tracing::warn!(path = self.name(), %error, "cannot write members cache");
        }
    }

    /// Replaces the file as a whole: a crash leaves the old one or the new one.
    fn write(&self, members: &[Arc<str>]) -> io::Result<()> {
        let members = members.iter().take(MAX_MEMBERS).map(ToString::to_string).collect();
        let contents = Contents { version: VERSION, members };
        let mut text = serde_json::to_vec_pretty(&contents)?;
        text.push(b'\n');
        let temporary = self.temporary();
        let written = self.replace(&temporary, &text);
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    fn replace(&self, temporary: &Path, text: &[u8]) -> io::Result<()> {
        // One of a process that was killed.
        let _ = fs::remove_file(temporary);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(temporary)?;
        file.write_all(text)?;
        file.sync_all()?;
        drop(file);
        fs::rename(temporary, &self.path)?;
        File::open(self.folder())?.sync_all()
    }

    /// Whether files can be created in the folder.
    fn probe(&self) -> io::Result<()> {
        if self.path.file_name().is_none() || self.path.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not the path of a file",
            ));
        }
        let temporary = self.temporary();
        let _ = fs::remove_file(&temporary);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        fs::remove_file(&temporary)
    }

    fn folder(&self) -> &Path {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
    }

    /// A file beside it, of this process alone.
    fn temporary(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.folder().join(format!(".{name}.{}", std::process::id()))
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<SocketAddr>, Problem> {
    if bytes.len() > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes").into());
    }
    let contents: Contents =
        serde_json::from_slice(bytes).map_err(|error| format!("it is not valid JSON: {error}"))?;
    if contents.version != VERSION {
        return Err(format!("its version is {}, not {VERSION}", contents.version).into());
    }
    if contents.members.len() > MAX_MEMBERS {
        return Err(format!("it has more than {MAX_MEMBERS} members").into());
    }
    contents.members.iter().map(|text| address(text)).collect()
}

fn address(text: &str) -> Result<SocketAddr, Problem> {
    let address: Option<SocketAddr> = text.parse().ok();
    let usable = |address: &SocketAddr| {
        let ip = address.ip().to_canonical();
        !ip.is_unspecified() && !ip.is_multicast() && address.port() != 0
    };
    address.filter(usable).ok_or_else(|| format!("{text:?} is not an address of a server").into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn cache(folder: &Path) -> MembersCache {
        MembersCache::open(&CachePath::At(folder.join("members.json"))).unwrap()
    }

    fn read(cache: &MembersCache) -> Vec<String> {
        cache.read(&|_| false).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn members_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        assert_eq!(read(&cache), [""; 0], "the first start");
        cache.write(&["10.0.0.1:6443".into(), "[fd00::1]:6443".into()]).unwrap();
        assert_eq!(read(&cache), ["10.0.0.1:6443", "[fd00::1]:6443"]);
        cache.write(&["10.0.0.2:6443".into()]).unwrap();
        assert_eq!(read(&cache), ["10.0.0.2:6443"]);
        let own = |address: SocketAddr| address.to_string() == "10.0.0.2:6443";
        assert_eq!(cache.read(&own), [], "no loop to our own listener");
        let mode = fs::metadata(&cache.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1, "no temporary file is left");
    }

    #[test]
    fn a_damaged_file_is_ignored_and_can_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        let many = vec!["10.0.0.1:6443"; MAX_MEMBERS + 1];
        let many = serde_json::json!({"version": 1, "members": many}).to_string();
        let large = format!("{}{}", r#"{"version":1,"members":[]}"#, " ".repeat(MAX_BYTES));
        for text in [
            "",
            "{",
            "[]",
            r#"{"version":2,"members":[]}"#,
            r#"{"members":["10.0.0.1:6443"]}"#,
            r#"{"version":1,"members":["example.org:6443"]}"#,
            r#"{"version":1,"members":["10.0.0.1"]}"#,
            r#"{"version":1,"members":["10.0.0.1:0"]}"#,
            r#"{"version":1,"members":["0.0.0.0:6443"]}"#,
            r#"{"version":1,"members":["[::ffff:0.0.0.0]:6443"]}"#,
            r#"{"version":1,"members":["239.0.0.1:6443"]}"#,
            &many,
            &large,
        ] {
            fs::write(&cache.path, text).unwrap();
            assert_eq!(read(&cache), [""; 0], "{text:.60}");
        }
        cache.write(&["10.0.0.1:6443".into()]).unwrap();
        assert_eq!(read(&cache), ["10.0.0.1:6443"]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_turns_it_off() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: PathBuf| MembersCache::open(&CachePath::At(path));
        assert!(at(folder.path().join("missing/members.json")).is_none());
        assert!(at(folder.path().to_owned()).is_none(), "a folder is no file");
        assert!(MembersCache::open(&CachePath::Off).is_none());
        assert!(CachePath::of_flag(Some(Path::new(""))) == CachePath::Off);
        assert!(CachePath::of_flag(None) == CachePath::Default);
    }
}
