//! Kubeconfigs as people have them.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn config(text: &str) -> Kubeconfig {
    let mut config = Kubeconfig::default();
    config.add(text, Path::new("/nowhere")).unwrap();
    config
}

/// A kubeconfig with one context `it`, whose cluster and user have these settings.
fn one(cluster: &str, user: &str) -> Kubeconfig {
    config(&format!(
        "{{current-context: it, contexts: [{{name: it, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'https://10.0.0.1:6443', {cluster}}}}}], \
         users: [{{name: u, user: {{{user}}}}}]}}"
    ))
}

fn error(config: &Kubeconfig) -> String {
    config.access("it").unwrap_err().to_string()
}

#[test]
fn embedded_data_wins_over_files_and_a_token_file_over_a_token() {
    let folder = tempdir("data");
    std::fs::write(folder.join("token"), "from-file\n").unwrap();
    let text = "
current-context: it
preferences: {}
contexts:
- {name: it, context: {cluster: c, user: u, namespace: x}}
clusters:
- name: c
  cluster:
    server: https://api.example
    certificate-authority: missing.crt
    certificate-authority-data: Q0E=
    tls-server-name: kubernetes
users:
- name: u
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
    token: inline
    tokenFile: token
";
    let mut config = Kubeconfig::default();
    config.add(text, &folder).unwrap();
    let access = config.access(config.current().unwrap()).unwrap();
    assert_eq!(access.url.unwrap().to_string(), "https://api.example:443");
    let credentials = access.credentials;
    assert_eq!(credentials.ca.unwrap().0, b"CA");
    assert_eq!(credentials.identity.unwrap(), (b"CERT".to_vec(), b"KEY".to_vec()));
    assert_eq!(credentials.token.as_deref(), Some("from-file"));
    assert_eq!(credentials.server_name.as_deref(), Some("kubernetes"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_would_change_the_verification_or_the_user_is_refused() {
    for (cluster, user, expected) in [
        ("insecure-skip-tls-verify: true", "", "insecure-skip-tls-verify is not supported"),
        ("proxy-url: 'http://proxy'", "", "proxy-url is not supported"),
        ("", "username: alice, password: x", "user \"u\": username is not supported"),
        ("", "auth-provider: {name: gcp}", "user \"u\": auth-provider is not supported"),
        ("", "as: root", "user \"u\": impersonation (as) is not supported"),
        ("", "as-groups: [a]", "user \"u\": impersonation (as) is not supported"),
        ("", "client-key-data: S0VZ", "a key without a certificate"),
        ("", "client-certificate-data: '?'", "client-certificate-data of \"u\": it is not base64"),
        ("certificate-authority: ca.crt", "", "/nowhere/ca.crt does not exist"),
        ("", "exec: {apiVersion: v1, command: ./missing, installHint: 'get it'}", "cannot be run"),
    ] {
        let error = error(&one(cluster, user));
        assert!(error.starts_with("context \"it\": ") && error.contains(expected), "{error}");
    }
}

#[test]
fn missing_entries_are_named() {
    let config = config("{contexts: [{name: a, context: {cluster: gone}}], clusters: null}");
    let error = |name: &str| config.access(name).unwrap_err().to_string();
    assert_eq!(error("b"), "--context: the kubeconfig has no context \"b\"; it has: a");
    assert!(error("a").contains("has no cluster \"gone\""), "{}", error("a"));
    assert!(config.current().unwrap_err().to_string().contains("no current context"));
    let mut broken = Kubeconfig::default();
    for text in ["contexts: 7", "- a", "{", "\u{0}"] {
        assert!(broken.add(text, Path::new("")).is_err(), "{text:?}");
    }
}

#[test]
fn the_first_file_wins() {
    let mut merged = one("tls-server-name: first", "token: first");
    let second = "{current-context: other, users: [{name: u, user: {token: second}}, \
                  {name: v, user: {token: v}}], contexts: [{name: other, context: {cluster: c, user: v}}]}";
    merged.add(second, Path::new("")).unwrap();
    assert_eq!(merged.current().unwrap(), "it");
    assert_eq!(merged.access("it").unwrap().credentials.token.as_deref(), Some("first"));
    assert_eq!(merged.access("other").unwrap().credentials.token.as_deref(), Some("v"));
}

#[test]
fn an_exec_plugin_gives_a_token_or_a_certificate() {
    let folder = tempdir("exec");
    let plugin = |name: &str, script: &str| {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let user = format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, args: [hello], \
             env: [{{name: WORD, value: world}}]}}",
            path.display()
        );
        one("", &user)
    };
    let token = plugin(
        "token",
        r#"case "$KUBERNETES_EXEC_INFO" in *client.authentication.k8s.io/v1*ExecCredential*) ;; *) exit 1;; esac
           echo "{\"status\": {\"token\": \"$1-$WORD\"}}""#,
    );
    let access = token.access("it").unwrap();
    assert_eq!(access.credentials.token.as_deref(), Some("hello-world"));
    let pair = plugin(
        "pair",
        r#"echo '{"status": {"clientCertificateData": "C", "clientKeyData": "K"}}'"#,
    );
    assert_eq!(
        pair.access("it").unwrap().credentials.identity.unwrap(),
        (b"C".to_vec(), b"K".to_vec())
    );
    for (name, script, expected) in [
        ("fails", "exit 3", "failed; run kubectl"),
        ("babbles", "echo hello", "printed no ExecCredential"),
        ("empty", r#"echo '{"status": {}}'"#, "printed no ExecCredential"),
    ] {
        let error = error(&plugin(name, script));
        assert!(error.contains(expected), "{name}: {error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

fn tempdir(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("mvp-kubeconfig-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
