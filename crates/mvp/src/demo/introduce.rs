//! The first lines of the demo: its servers, and commands to try. Entry: [`introduce`].

use std::io::{self, IsTerminal, Write};

use serde_json::json;

use super::Ports;
use super::cluster::Cluster;
use super::files::Files;
use crate::cli::Output;

/// Prints the servers, and commands to try.
pub(super) fn introduce(
    cluster: &Cluster,
    files: &Files,
    (ports, page): (&Ports, &str),
    output: Output,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if output == Output::Json {
        let servers: Vec<_> = cluster
            .servers
            .iter()
            .map(|server| {
                json!({
                    "id": server.plan.id, "version": server.version(),
                    "url": server.url(), "serves": server.own(),
                })
            })
            .collect();
        let kubeconfig = files.kubeconfig();
        let document = json!({"servers": servers, "kubeconfig": kubeconfig, "dashboard": page});
        return writeln!(out, "{document}");
    }
    let colour = io::stdout().is_terminal();
    let bold = |text: &str| if colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
    writeln!(out, "Three API servers of one cluster, in the middle of an upgrade:\n")?;
    for server in &cluster.servers {
        let switched_off = match server.plan.off {
            [] => String::new(),
            off => format!("  --runtime-config={}=false", off.join("=false,")),
        };
        let (id, version) = (bold(server.plan.id), server.version());
        writeln!(out, "  {id}  {version}  {}{switched_off}", server.url())?;
    }
    if let Ports::Others { usual } = ports {
        let last = usual.saturating_add(2);
        writeln!(out, "\nPorts {usual} to {last} are taken, so the servers use others.")?;
    }
    let folder = files.folder.display();
    writeln!(out, "\nCertificates, tokens and a kubeconfig are in {folder}.")?;
    writeln!(out, "The dashboard is at {}", bold(page))?;
    writeln!(out, "Whatever a server lacks, it gets from another. In a second terminal:\n")?;
    for (comment, command) in commands(cluster, files, is_installed("kubectl")) {
        writeln!(out, "  # {comment}\n  {command}\n")?;
    }
    writeln!(out, "Token demo-viewer may read, demo-operator may do everything.")?;
    writeln!(out, "`mvp demo --story` shows an upgrade, `mvp demo --check` tests every promise.")?;
    writeln!(out, "Enter upgrades the next server to 1.36, as a rolling upgrade does.")?;
    writeln!(out, "Ctrl-C stops the demo. Requests that go to another server:\n")
}

/// Five commands to try: what each shows, and how it is typed.
fn commands(cluster: &Cluster, files: &Files, kubectl: bool) -> Vec<(&'static str, String)> {
    let urls: Vec<String> = cluster.servers.iter().map(super::server::Server::url).collect();
    let url = |place: usize| urls.get(place).map_or("", String::as_str);
    if kubectl {
        let config = files.kubeconfig();
        let kubectl = format!("kubectl --kubeconfig {} --context", config.display());
        return vec![
            (
                "server-b has batch/v1 switched off; it creates the Job all the same",
                format!("{kubectl} server-b create job hello --image=busybox"),
            ),
            ("and lists it", format!("{kubectl} server-b get jobs")),
            (
                "a kind of 1.36, through a 1.34 server",
                format!("{kubectl} server-a get mutatingadmissionpolicies"),
            ),
            (
                "every API of the cluster, through any server",
                format!("{kubectl} server-b api-resources"),
            ),
            skew(files),
        ];
    }
    let folder = files.folder.display();
    let curl = format!(
        "curl -s --cacert {folder}/ca.crt --cert {folder}/admin.crt --key {folder}/admin.key"
    );
    let jobs = "apis/batch/v1/namespaces/default/jobs";
    let admission = "apis/admissionregistration.k8s.io/v1";
    let job = r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"hello"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"hello","image":"busybox"}]}}}}"#;
    vec![
        (
            "server-b has batch/v1 switched off; it creates the Job all the same",
            format!("{curl} {}/{jobs} -H 'Content-Type: application/json' -d '{job}'", url(1)),
        ),
        ("and lists it", format!("{curl} {}/{jobs}", url(1))),
        (
            "a kind of 1.36, through a 1.34 server",
            format!("{curl} {}/{admission}/mutatingadmissionpolicies", url(0)),
        ),
        (
            "every API of the cluster, through any server",
            format!("{curl} {}/apis/apidiscovery.k8s.io/v2", url(1)),
        ),
        skew(files),
    ]
}

/// The command that compares the servers.
fn skew(files: &Files) -> (&'static str, String) {
    let program = std::env::current_exe().unwrap_or_else(|_| "mvp".into());
    let (program, config) = (program.display(), files.kubeconfig());
    let command = format!("{program} skew --kubeconfig {} --all-contexts", config.display());
    ("the APIs that differ between the servers", command)
}

/// Whether a program is on the PATH.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
