//! Exec plugins: a program that prints an `ExecCredential`, such as `aws eks get-token`. Entry: [`run`].

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::model::{Cluster, Exec};
use crate::mistake::{OneLine, Problem};

/// The time limit of the program: it may wait for a person.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time that it has to end after its output, and the time between two looks.
const TIME_TO_END: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_millis(10);
/// The most output that is read.
const MAX_OUTPUT: u64 = 1 << 20;

/// What the program printed.
pub(super) struct Credential {
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) token: Option<String>,
}

/// Runs the program. A command with a slash is relative to the folder of the kubeconfig, as in kubectl.
pub(super) fn run(exec: &Exec, cluster: &Cluster, folder: &Path) -> Result<Credential, Problem> {
    let shown = format!("exec plugin {:?}", exec.command);
    let path = match exec.command.contains('/') {
        true => folder.join(&exec.command),
        false => exec.command.clone().into(),
    };
    let mut command = Command::new(path);
    command.args(exec.args.iter().flatten());
    command.envs(exec.env.iter().flatten().map(|entry| (&entry.name, &entry.value)));
    command.env("KUBERNETES_EXEC_INFO", info(exec, cluster).to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| {
        let hint = exec.install_hint.trim();
        let hint = if hint.is_empty() { "install it, or correct the kubeconfig" } else { hint };
        format!("{shown} cannot be run ({error}); {}", OneLine(hint))
    })?;
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let read = output.take(MAX_OUTPUT).read_to_end(&mut text);
            // The receiver may have given up.
            let _ = sender.send(read.map(|_| text));
        });
    }
    let printed = receiver.recv_timeout(TIMEOUT);
    let time = if matches!(printed, Ok(Ok(_))) { TIME_TO_END } else { Duration::ZERO };
    let status = ended(&mut child, time);
    let Ok(Ok(printed)) = printed else {
        return Err(format!("{shown} printed nothing within {TIMEOUT:?}").into());
    };
    match status {
        Some(status) if status.success() => {}
        None => {
            return Err(
                format!("{shown} closed its output and still ran {TIME_TO_END:?} later").into()
            );
        }
        Some(_) => return Err(format!("{shown} failed; run kubectl to see why").into()),
    }
    parse(&printed).ok_or_else(|| {
        format!("{shown} printed no ExecCredential with a token or a certificate").into()
    })
}

/// The status of a program that ends by itself in that time. Otherwise it is killed.
fn ended(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + time;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(INTERVAL),
            Ok(None) | Err(_) => {
                // It may have ended meanwhile. Without the wait it would stay a zombie.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// What the program is told about the call.
fn info(exec: &Exec, cluster: &Cluster) -> serde_json::Value {
    let mut spec = json!({ "interactive": std::io::stdin().is_terminal() });
    if let (true, Some(fields)) = (exec.provide_cluster_info, spec.as_object_mut()) {
        let described = json!({
            "server": cluster.server,
            "certificate-authority-data": cluster.certificate_authority_data,
        });
        fields.insert("cluster".to_owned(), described);
    }
    json!({ "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec })
}

fn parse(printed: &[u8]) -> Option<Credential> {
    #[derive(Deserialize)]
    struct Printed {
        status: Status,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    struct Status {
        token: Option<String>,
        client_certificate_data: Option<String>,
        client_key_data: Option<String>,
    }
    let Status { token, client_certificate_data, client_key_data } =
        serde_json::from_slice::<Printed>(printed).ok()?.status;
    let identity = client_certificate_data.zip(client_key_data);
    let identity = identity.map(|(chain, key)| (chain.into_bytes(), key.into_bytes()));
    let token = token.filter(|token| !token.is_empty());
    (identity.is_some() || token.is_some()).then_some(Credential { identity, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_closes_its_output_and_lives_on_is_killed() {
        let start = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let mut child = start("exec sleep 600");
        assert!(ended(&mut child, INTERVAL).is_none());
        assert!(child.try_wait().unwrap().is_some(), "it still runs");
        let status = ended(&mut start("exit 3"), TIMEOUT).unwrap();
        assert_eq!(status.code(), Some(3));
    }
}
