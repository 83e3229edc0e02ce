//! Other Kubernetes clients, each in a pinned version. A client that cannot be installed fails only
//! the cases that need it. Entry item: [`Clients::get`].

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};
use sha2::{Digest, Sha256};
use testkit::cached::{once, run};

use super::debian::unpack;
use super::{CLIENT_GO, short};

/// The paths of the clients, or why one is missing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clients {
    client_go: Option<Result<PathBuf, String>>,
    python: Option<Result<PathBuf, String>>,
    sslyze: Option<Result<PathBuf, String>>,
    node: Option<Result<PathBuf, String>>,
    old_kubectl: Option<Result<PathBuf, String>>,
}

impl Clients {
    pub(super) fn get(cache: &Path) -> anyhow::Result<Clients> {
        std::fs::create_dir_all(cache).with_context(|| format!("cannot make {cache:?}"))?;
        let said = |found: anyhow::Result<PathBuf>| Some(found.map_err(|e| format!("{e:#}")));
        Ok(Clients {
            client_go: said(CLIENT_GO.get(cache).map(|(_, folder)| folder.join("client-go"))),
            python: said(venv(cache, "python")),
            sslyze: said(venv(cache, "sslyze")),
            node: said(node(cache)),
            old_kubectl: said(old_kubectl(cache)),
        })
    }

    /// The test client that uses client-go.
    pub(crate) fn client_go(&self) -> anyhow::Result<&Path> {
        found(self.client_go.as_ref())
    }

    /// A Python interpreter with the official client.
    pub(crate) fn python(&self) -> anyhow::Result<&Path> {
        found(self.python.as_ref())
    }

    /// Python with sslyze, a scanner of TLS servers. Its scripts name the folder in which the environment
    /// was made, so it runs as a module.
    pub(crate) fn sslyze(&self) -> anyhow::Result<&Path> {
        found(self.sslyze.as_ref())
    }

    /// The folder of Node.js packages with the official client.
    pub(crate) fn node(&self) -> anyhow::Result<&Path> {
        found(self.node.as_ref())
    }

    /// The kubectl of Debian, which knows only legacy discovery.
    pub(crate) fn old_kubectl(&self) -> anyhow::Result<&Path> {
        found(self.old_kubectl.as_ref())
    }
}

fn found(client: Option<&Result<PathBuf, String>>) -> anyhow::Result<&Path> {
    available(client, "the client").map(PathBuf::as_path)
}

/// What was requested for this run, or why it is missing.
pub(super) fn available<'a, T>(
    found: Option<&'a Result<T, String>>,
    what: &str,
) -> anyhow::Result<&'a T> {
    let found = found.with_context(|| format!("{what} was not requested for this run"))?;
    found.as_ref().map_err(|why| anyhow!("{what} is not available: {why}"))
}

/// The folder of the test client for Python and its requirements.
pub(crate) fn python_folder() -> PathBuf {
    folder("python")
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Python in a virtual environment with the requirements in a folder of this name.
fn venv(cache: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let requirements = folder(name).join("requirements.txt");
    let key = short(Sha256::new_with_prefix(std::fs::read(&requirements)?));
    once(cache, &format!("{name}-{key}"), Path::new("bin/python"), |folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(pip.arg("--no-deps").arg("-r").arg(&requirements)).map(drop)
    })
}

/// The folder of the informer for Node.js and its packages.
pub(crate) fn node_folder() -> PathBuf {
    folder("node")
}

fn node(cache: &Path) -> anyhow::Result<PathBuf> {
    let (package, lock) = ("package.json", "package-lock.json");
    let source = node_folder();
    let key = short(Sha256::new_with_prefix(std::fs::read(source.join(lock))?));
    once(cache, &format!("node-{key}"), Path::new("node_modules"), |folder| {
        for file in [package, lock] {
            std::fs::copy(source.join(file), folder.join(file))?;
        }
        let flags = ["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"];
        run(Command::new("npm").current_dir(folder).args(flags)).map(drop)
    })
}

fn old_kubectl(cache: &Path) -> anyhow::Result<PathBuf> {
    unpack(cache, "kubernetes-client", "kubectl-of-debian", Path::new("usr/bin/kubectl"))
}
