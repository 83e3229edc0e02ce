//! The real kubectl, called as a user calls it.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use testkit::pki::PkiFiles;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(60);

/// Writes the kubeconfig of a user whose certificate exists, into a folder.
pub(crate) fn kubeconfig(
    pki: &PkiFiles,
    user: &str,
    to: SocketAddr,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    let pair = pki.pair(user);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {
            "server": format!("https://{to}"), "certificate-authority": pki.ca(),
        }}],
        "users": [{"name": "it", "user": {
            "client-certificate": pair.certificate, "client-key": pair.key,
        }}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    let file = folder.join(format!("{user}-{}-{}.kubeconfig", to.ip(), to.port()));
    std::fs::write(&file, config.to_string())?;
    Ok(file)
}

/// kubectl with a kubeconfig, and a cache for one server only.
#[derive(Debug)]
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: tempfile::TempDir,
}

/// The output of kubectl.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl Kubectl {
    pub(crate) fn new(program: &Path, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Kubectl> {
        let cache = tempfile::tempdir_in(folder)?;
        Ok(Kubectl { program: program.to_owned(), kubeconfig: kubeconfig.to_owned(), cache })
    }

    /// Runs kubectl, and fails with its error output if it fails.
    pub(crate) async fn run<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: Option<&str>,
    ) -> anyhow::Result<String> {
        let arguments: Vec<_> = arguments.into_iter().collect();
        let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        let what = format!("kubectl {}", words.join(" "));
        let printed = self.try_run(&arguments, input).await.with_context(|| what.clone())?;
        if !printed.ok {
            bail!("{what}: {}", printed.errors.trim());
        }
        Ok(printed.out)
    }

    /// Runs kubectl, and returns its output also if it fails.
    pub(crate) async fn try_run<A: AsRef<OsStr>>(
        &self,
        arguments: &[A],
        input: Option<&str>,
    ) -> anyhow::Result<Printed> {
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.cache.path())
            .args(arguments)
            .env("HOME", self.cache.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {:?}", self.program))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.unwrap_or_default().as_bytes()).await?;
        }
        let output = timeout(DEADLINE, child.wait_with_output()).await.context("it hangs")??;
        Ok(Printed {
            ok: output.status.success(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
