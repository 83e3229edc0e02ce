//! The Unix socket of the admin endpoint. Only the owner of the process (and root) can open it, so it
//! may change state. Entry: [`AdminSocket::bind`].

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// The socket if no flag says otherwise: where `mvp forget` looks for it.
pub(crate) const DEFAULT: &str = "/run/mvp/admin.sock";

/// A listening Unix socket. Its file is removed at the end.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket, which is removed when this is dropped, unless another process has replaced
/// it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl AdminSocket {
    /// Listens at this path, with mode 0600. The file of a process that is gone is replaced. That of
    /// a process that listens is replaced only if this process takes over from it; else the error is
    /// `AddrInUse`.
    pub(crate) fn bind(path: &Path, takes_over: bool) -> io::Result<AdminSocket> {
        let missing =
            || io::Error::new(io::ErrorKind::InvalidInput, "it is not the path of a file");
        let (folder, name) = (path.parent().ok_or_else(missing)?, path.file_name());
        let name = name.ok_or_else(missing)?.to_string_lossy();
        make_folder(folder)?;
        match fs::symlink_metadata(path) {
            Ok(found) if !is_socket(&found) => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a socket"));
            }
            Ok(_) if !takes_over && somebody_listens(path) => {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            Ok(_) | Err(_) => {}
        }
        // In a private folder first, so that nobody can connect before the mode is set.
        let private = folder.join(format!(".{name}.{}", std::process::id()));
        let _ = fs::remove_dir_all(&private);
        DirBuilder::new().mode(0o700).create(&private)?;
        let bound = bind_in(&private, path);
        let _ = fs::remove_dir_all(&private);
        bound
    }

    /// The path of the socket, for operators.
    pub(crate) fn name(&self) -> String {
        self.file.path.display().to_string()
    }

    pub(super) fn into_parts(self) -> io::Result<(tokio::net::UnixListener, SocketFile)> {
        self.listener.set_nonblocking(true)?;
        Ok((tokio::net::UnixListener::from_std(self.listener)?, self.file))
    }
}

fn bind_in(private: &Path, path: &Path) -> io::Result<AdminSocket> {
    let first = private.join("s");
    let listener = UnixListener::bind(&first)?;
    fs::set_permissions(&first, Permissions::from_mode(0o600))?;
    let identity = identity(&fs::symlink_metadata(&first)?);
    fs::rename(&first, path)?;
    Ok(AdminSocket { listener, file: SocketFile { path: path.to_owned(), identity } })
}

/// Whether a process listens at this path. It is not waited for: a stopped process accepts nobody.
fn somebody_listens(path: &Path) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    match connect() {
        Ok(()) => true,
        // Its queue is full.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Makes the folder of the socket, for the owner alone. Its parents must exist.
fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // The current folder has an empty name.
        Err(_) if folder.as_os_str().is_empty() => Ok(()),
        made => made,
    }
}

fn is_socket(found: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())
}

fn identity(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|f| identity(&f) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("mvp-socket-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_the_owner_can_open_it_and_it_goes_with_the_process() {
        let path = folder("mode").join("admin.sock");
        let socket = AdminSocket::bind(&path, false).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing else is left"
        );
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_file_is_replaced_and_a_living_socket_is_not() {
        let path = folder("stale").join("admin.sock");
        let first = AdminSocket::bind(&path, false).unwrap();
        let error = AdminSocket::bind(&path, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        // As after a crash: the file stays, and nobody listens.
        let AdminSocket { listener, file } = first;
        drop(listener);
        std::mem::forget(file);
        assert!(path.exists() && UnixStream::connect(&path).is_err());
        let second = AdminSocket::bind(&path, false).unwrap();
        // A process that takes over replaces it, and the old one does not remove the new file.
        let third = AdminSocket::bind(&path, true).unwrap();
        drop(second);
        assert!(UnixStream::connect(&path).is_ok());
        drop(third);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_that_accepts_nobody_is_not_waited_for() {
        let path = folder("full").join("admin.sock");
        make_folder(path.parent().unwrap()).unwrap();
        let stopped = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        stopped.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        stopped.listen(0).unwrap();
        let waiting = UnixStream::connect(&path).unwrap();
        let error = AdminSocket::bind(&path, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(waiting);
    }

    #[test]
    fn other_files_are_not_replaced() {
        let folder = folder("other");
        fs::create_dir(&folder).unwrap();
        let path = folder.join("notes");
        fs::write(&path, "text").unwrap();
        for takes_over in [false, true] {
            let error = AdminSocket::bind(&path, takes_over).unwrap_err();
            assert_eq!(error.to_string(), "it is not a socket");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert!(AdminSocket::bind(&folder.join("a/b/c.sock"), false).is_err(), "no parents");
        assert!(AdminSocket::bind(Path::new("/"), false).is_err());
    }
}
