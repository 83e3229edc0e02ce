//! sslyze, a scanner of TLS servers, against a gateway.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::suite::Case;

pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "door/sslyze",
        sslyze,
        "TLS 1.2 and 1.3 with modern cipher suites, and none of the weaknesses that sslyze knows"
    )]
}

const DEADLINE: Duration = Duration::from_secs(120);

/// What is scanned.
const SCANS: [&str; 13] = [
    "--sslv2",
    "--sslv3",
    "--tlsv1",
    "--tlsv1_1",
    "--tlsv1_2",
    "--tlsv1_3",
    "--reneg",
    "--compression",
    "--heartbleed",
    "--openssl_ccs",
    "--robot",
    "--early_data",
    "--ems",
];

/// Versions that are not spoken at all.
const OLD: [&str; 4] = [
    "ssl_2_0_cipher_suites",
    "ssl_3_0_cipher_suites",
    "tls_1_0_cipher_suites",
    "tls_1_1_cipher_suites",
];

/// Authenticated encryption with forward secrecy.
const MODERN: [&str; 3] =
    ["_AES_128_GCM_SHA256", "_AES_256_GCM_SHA384", "_CHACHA20_POLY1305_SHA256"];

/// Findings, and what they must be.
const FINDINGS: [(&str, &str, bool); 7] = [
    ("session_renegotiation", "supports_secure_renegotiation", true),
    ("session_renegotiation", "is_vulnerable_to_client_renegotiation_dos", false),
    ("tls_compression", "supports_compression", false),
    ("heartbleed", "is_vulnerable_to_heartbleed", false),
    ("openssl_ccs_injection", "is_vulnerable_to_ccs_injection", false),
    ("tls_1_3_early_data", "supports_early_data", false),
    ("tls_extended_master_secret", "supports_ems_extension", true),
];

async fn sslyze(cluster: &mut Cluster) -> anyhow::Result<String> {
    let python = cluster.programs.clients.sslyze()?.to_owned();
    let found = scan(&python, cluster.server("a")?.through()).await?;
    let wrong = weaknesses(&found)?;
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    let suites = accepted(&found, "tls_1_2_cipher_suites")?.len()
        + accepted(&found, "tls_1_3_cipher_suites")?.len();
    Ok(format!("{suites} cipher suites of TLS 1.2 and 1.3; no weakness"))
}

/// The results of all scans of a server.
async fn scan(python: &Path, at: SocketAddr) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("found.json");
    let mut command = Command::new(python);
    command.args(["-m", "sslyze"]).args(SCANS).arg("--mozilla_config=disable");
    command.arg(format!("--json_out={}", file.display())).arg(at.to_string()).kill_on_drop(true);
    let output = timeout(DEADLINE, command.output()).await.context("sslyze does not end")??;
    let said = || String::from_utf8_lossy(&output.stdout).into_owned();
    let text = std::fs::read(&file).with_context(said)?;
    let mut document: Value = serde_json::from_slice(&text)?;
    let found = document.pointer_mut("/server_scan_results/0/scan_result").map(Value::take);
    found.filter(Value::is_object).with_context(said)
}

/// What is not as it must be.
fn weaknesses(found: &Value) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for version in OLD {
        let suites = accepted(found, version)?;
        if !suites.is_empty() {
            wrong.push(format!("{version}: {suites:?}"));
        }
    }
    for version in ["tls_1_2_cipher_suites", "tls_1_3_cipher_suites"] {
        let suites = accepted(found, version)?;
        ensure!(!suites.is_empty(), "no {version}");
        let modern = |suite: &&String| MODERN.iter().any(|end| suite.ends_with(end));
        let forward = |suite: &&String| version.contains("1_3") || suite.contains("_ECDHE_");
        let weak: Vec<_> =
            suites.iter().filter(|suite| !(modern(suite) && forward(suite))).collect();
        if !weak.is_empty() {
            wrong.push(format!("{version}: {weak:?}"));
        }
    }
    for (scan, finding, expected) in FINDINGS {
        let value = result(found, scan)?.get(finding).cloned().unwrap_or_default();
        if value != expected {
            wrong.push(format!("{scan}: {finding} is {value}"));
        }
    }
    let robot = result(found, "robot")?.get("robot_result").cloned().unwrap_or_default();
    let safe = robot.as_str().is_some_and(|robot| robot.starts_with("NOT_VULNERABLE"));
    if !safe {
        wrong.push(format!("robot: {robot}"));
    }
    Ok(wrong)
}

fn result<'a>(found: &'a Value, scan: &str) -> anyhow::Result<&'a Value> {
    let result = found.get(scan).and_then(|scan| scan.get("result"));
    result.filter(|result| result.is_object()).with_context(|| format!("no result of {scan}"))
}

/// The names of the cipher suites of a version that were accepted.
fn accepted(found: &Value, version: &str) -> anyhow::Result<Vec<String>> {
    let suites = result(found, version)?.get("accepted_cipher_suites").and_then(Value::as_array);
    let suites = suites.with_context(|| format!("no suites of {version}"))?;
    let name = |suite: &Value| suite.pointer("/cipher_suite/name")?.as_str().map(str::to_owned);
    suites.iter().map(|suite| name(suite).context("a suite without a name")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What sslyze finds at a good server.
    fn good() -> Value {
        let suites = |names: &[&str]| {
            let suites = names.iter().map(|name| json!({ "cipher_suite": { "name": name } }));
            json!({ "result": { "accepted_cipher_suites": suites.collect::<Vec<_>>() } })
        };
        let mut found = json!({
            "tls_1_2_cipher_suites": suites(&["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]),
            "tls_1_3_cipher_suites": suites(&["TLS_CHACHA20_POLY1305_SHA256"]),
            "robot": { "result": { "robot_result": "NOT_VULNERABLE_RSA_NOT_SUPPORTED" } },
        });
        for version in OLD {
            found[version] = suites(&[]);
        }
        for (scan, finding, expected) in FINDINGS {
            found[scan]["result"][finding] = expected.into();
        }
        found
    }

    #[test]
    fn each_weakness_is_found() {
        assert_eq!(weaknesses(&good()).unwrap(), [""; 0]);
        for (scan, finding, expected) in FINDINGS {
            let mut found = good();
            found[scan]["result"][finding] = (!expected).into();
            assert_eq!(weaknesses(&found).unwrap().len(), 1, "{finding}");
        }
        let suite = |name: &str| json!([{ "cipher_suite": { "name": name } }]);
        for (version, name) in [
            ("tls_1_0_cipher_suites", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
            ("tls_1_2_cipher_suites", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
            ("tls_1_2_cipher_suites", "TLS_RSA_WITH_AES_128_GCM_SHA256"),
            ("tls_1_3_cipher_suites", "TLS_AES_128_CCM_8_SHA256"),
        ] {
            let mut found = good();
            found[version]["result"]["accepted_cipher_suites"] = suite(name);
            assert_eq!(weaknesses(&found).unwrap().len(), 1, "{name}");
        }
        let mut found = good();
        found["robot"]["result"]["robot_result"] = "VULNERABLE_STRONG_ORACLE".into();
        assert_eq!(weaknesses(&found).unwrap().len(), 1);
        found["heartbleed"] =
            json!({ "status": "ERROR_WHEN_SENDING_CONNECTIVITY", "result": null });
        assert!(weaknesses(&found).is_err(), "a scan that did not run shows nothing");
    }
}
