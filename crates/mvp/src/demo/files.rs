//! The files for clients: certificates, tokens and a kubeconfig. Entry: [`Files::write`].

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use super::access::TOKENS;
use super::certificates::Certificates;
use super::cluster::Cluster;
use super::server::Server;

/// The files of the demo, in a folder that is deleted when the demo ends.
pub(super) struct Files {
    pub(super) folder: PathBuf,
}

/// The most folders of killed demos with one process ID.
const MAX_FOLDERS: u32 = 1000;

impl Files {
    /// Writes the files into a new folder that only this user can read.
    pub(super) fn write(certificates: &Certificates, cluster: &Cluster) -> anyhow::Result<Files> {
        let files = Files::new()?;
        files.put(&[
            ("ca.crt", &certificates.ca),
            ("admin.crt", &certificates.admin.certificate),
            ("admin.key", &certificates.admin.key),
            ("tokens.csv", TOKENS),
            ("kubeconfig", &kubeconfig(&files.folder, cluster)),
        ])?;
        Ok(files)
    }

    /// Writes the files that `mvp serve` needs.
    pub(super) fn for_gateways(certificates: &Certificates) -> anyhow::Result<Files> {
        let files = Files::new()?;
        files.put(&[
            ("ca.crt", &certificates.ca),
            ("front-proxy-ca.crt", &certificates.front_proxy_ca),
            ("server.crt", &certificates.server.certificate),
            ("server.key", &certificates.server.key),
            ("proxy.crt", &certificates.proxy.certificate),
            ("proxy.key", &certificates.proxy.key),
        ])?;
        Ok(files)
    }

    fn new() -> anyhow::Result<Files> {
        let name = format!("mvp-demo-{}", std::process::id());
        let mut folder = std::env::temp_dir().join(&name);
        let mut made = make_private_folder(&folder);
        // A killed demo leaves its folder. In a container, the next one has the same process ID.
        for number in 2..MAX_FOLDERS {
            if !made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
                break;
            }
            folder.set_file_name(format!("{name}-{number}"));
            made = make_private_folder(&folder);
        }
        made.with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Files { folder })
    }

    fn put(&self, files: &[(&str, &str)]) -> anyhow::Result<()> {
        for (name, content) in files {
            let path = self.folder.join(name);
            std::fs::write(&path, content)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The process ends: there is nobody to report an error to.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Creates a folder for the private key: only this user may read it, and it must not exist yet.
fn make_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

/// A context for each server, and for a reader at the first one.
fn kubeconfig(folder: &Path, cluster: &Cluster) -> String {
    let entries = |entry: &dyn Fn(&Server) -> Value| -> Vec<Value> {
        cluster.servers.iter().map(entry).collect()
    };
    let mut contexts = entries(&|server| context(server.plan.id, server, "admin"));
    contexts.extend(cluster.servers.first().map(|server| context("viewer", server, "viewer")));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster.servers.first().map(|server| server.plan.id),
        "clusters": entries(&|server| json!({
            "name": server.plan.id,
            "cluster": {
                "server": server.url(),
                "certificate-authority": folder.join("ca.crt"),
            },
        })),
        "users": [
            {
                "name": "admin",
                "user": {
                    "client-certificate": folder.join("admin.crt"),
                    "client-key": folder.join("admin.key"),
                },
            },
            {"name": "viewer", "user": {"token": "demo-viewer"}},
        ],
        "contexts": contexts,
    });
    format!("{config:#}\n")
}

fn context(name: &str, server: &Server, user: &str) -> Value {
    json!({
        "name": name,
        "context": {"cluster": server.plan.id, "user": user, "namespace": "default"},
    })
}
