//! A directory with certificates and keys, and the binary to run in it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::certificates::{Ca, Leaf, key_pair};

/// Holds `ca.crt`, `server.crt` with `server.key`, and `other.key`, which fits nothing.
pub(crate) struct Folder {
    directory: PathBuf,
}

/// What came out of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("binary-{}-{number}", std::process::id());
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&directory).unwrap();
        let place = Self { directory };
        let ca = Ca::new("ca");
        place.write("ca.crt", ca.pem());
        let leaf = Leaf::named("server").names(&["localhost"]);
        ca.issue(leaf).write(&place.directory, "server").unwrap();
        place.write("other.key", key_pair().0);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Runs `mvp` in the directory, so that sentences name files as the flags do.
    pub(crate) fn mvp(&self, arguments: &[&str]) -> Outcome {
        outcome(self.command(arguments).output().unwrap())
    }

    /// Runs `mvp serve` with all that it needs, and more.
    pub(crate) fn serve(&self, more: &[&str]) -> Outcome {
        let least = [
            "serve",
            "--tls-cert-file=server.crt",
            "--tls-private-key-file=server.key",
            "--local-server=https://127.0.0.1:7443",
            "--local-ca-file=ca.crt",
        ];
        let arguments: Vec<&str> = least.iter().chain(more).copied().collect();
        self.mvp(&arguments)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mvp"));
        command.current_dir(&self.directory).args(arguments).stdin(Stdio::null());
        command.env_remove("MVP_LOG");
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn outcome(output: Output) -> Outcome {
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Outcome {
    /// Nothing but one line on standard error.
    pub(crate) fn is_mistake(&self, code: i32, sentence: &str) {
        let expected = Self {
            code: Some(code),
            stdout: String::new(),
            stderr: format!("error: {sentence}\n"),
        };
        assert_eq!(*self, expected);
    }
}
