//! `mvp doctor` without a cluster: its exit codes and its output.

use crate::folder::Folder;

#[test]
fn a_planned_configuration_is_checked_as_far_as_possible() {
    let place = Folder::new();
    let flags = [
        "doctor",
        "--tls-cert-file=server.crt",
        "--tls-private-key-file=other.key",
        "--local-server=https://127.0.0.1:1",
        "--local-ca-file=ca.crt",
        "--admin-socket=",
    ];
    let outcome = place.mvp(&flags);
    assert_eq!((outcome.code, &*outcome.stderr), (Some(1), ""));
    let expected = [
        "FAIL  flags: --tls-private-key-file: other.key is not the key of server.crt",
        "fix: give the matching files",
        "FAIL  serving certificate key: server.crt: --tls-private-key-file: other.key is not the key",
        "warn  serving certificate names: server.crt: it lacks the name kubernetes.default.svc",
        "ok    local CA: ca.crt (CN=ca), valid for ",
        "FAIL  reachable: https://127.0.0.1:1: Connection refused",
        "skip  rights: there is no usable proxy client certificate",
    ];
    for line in expected {
        assert!(outcome.stdout.contains(line), "{line:?} is not in:\n{}", outcome.stdout);
    }
    let json = place.mvp(&[&flags[..], &["-o", "json"]].concat());
    assert_eq!(json.code, Some(1));
    let printed: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let checks = printed["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["name"] == "reachable" && check["result"] == "fail"));
    for check in checks {
        let has_fix = check["fix"].is_string();
        assert_eq!(has_fix, check["result"] == "fail" || check["result"] == "warn", "{check}");
    }
}

#[test]
fn usage_and_a_missing_gateway() {
    let place = Folder::new();
    assert_eq!(place.mvp(&["doctor", "--secure-prot=1"]).code, Some(2));
    place.write("mvp.yaml", "secure-prot: 1\n");
    assert_eq!(place.mvp(&["doctor", "--config=mvp.yaml"]).code, Some(2));
    let outcome = place.mvp(&["doctor", "--admin-socket=none.sock"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.starts_with("error: no gateway answers at none.sock: "));
    assert!(outcome.stderr.ends_with(
        "; to check a configuration without a gateway, give the flags \
                                      of mvp serve\n"
    ));
}

#[test]
fn its_help_has_its_own_flags_only() {
    let outcome = Folder::new().mvp(&["doctor", "--help"]);
    assert_eq!(outcome.code, Some(0));
    for word in ["--admin-socket", "--admin-address", "--output", "--config", "Exit codes: 0 if"] {
        assert!(outcome.stdout.contains(word), "{word} is not in:\n{}", outcome.stdout);
    }
    assert!(!outcome.stdout.contains("--goaway-chance"), "{}", outcome.stdout);
}
