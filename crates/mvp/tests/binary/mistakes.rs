//! Every configuration error is one line on standard error that says what to do, with an exit code.

use std::process::Stdio;

use crate::folder::{Folder, outcome};

/// Flags, and what the error says about them.
const WRONG_FLAGS: &[(&str, &str)] = &[
    ("--secure-prot=1", "--secure-prot: not a known flag; did you mean --secure-port?"),
    ("--etcd-quorum", "--etcd-quorum: not a known flag; see --help"),
    ("extra", "extra: unexpected argument; give settings as --FLAG=VALUE"),
    ("--bind-address", "--bind-address: has no value; write --bind-address=VALUE"),
    (
        "--bind-address=node",
        "--bind-address: \"node\" is not an IP address; give one such as 10.0.0.1",
    ),
    (
        "--secure-port=65536",
        "--secure-port: \"65536\" is not a port; give a number from 0 to 65535",
    ),
    (
        "--peer-advertise-port=0",
        "--peer-advertise-port: \"0\" is not a port; give a number from 1 to 65535",
    ),
    ("--tls-cert-file=ca.crt", "--tls-cert-file: given twice; remove one of them"),
    (
        "--peer=https://b:6443",
        "--peer: \"https://b:6443\" has no ID; write it as ID=https://HOST:PORT, or with \
         ,kind=bare at the end",
    ),
    ("--peer=b=http://b", "--peer: \"http://b\" is not https; write it as https://HOST:PORT"),
    ("--peer=b=https://", "--peer: \"https://\" has no host; write it as https://HOST:PORT"),
    (
        "--peer=b=https://b/apis",
        "--peer: \"https://b/apis\" has a path or a query; write it as https://HOST:PORT",
    ),
    (
        "--peer=b=https://b:70000",
        "--peer: \"https://b:70000\" has no valid port; write it as https://HOST:PORT with a \
         port from 1 to 65535",
    ),
    (
        "--membership=leases,gossip",
        "--membership: \"gossip\" is not a source of members; use static, leases, etcd or endpoints",
    ),
    (
        "--feature-gates=AllBeta=true",
        "--feature-gates: \"AllBeta\" is not a feature gate of mvp; the only one is \
         UnknownVersionInteroperabilityProxy",
    ),
    (
        "--refresh-interval=1",
        "--refresh-interval: \"1\" is not a time with a unit; give a time from 100ms to 1m, such as \
         1s",
    ),
    (
        "--admin-allowed-hosts=a.example,https://*.b",
        "--admin-allowed-hosts: \"https://*.b\" is not a host name; give a name such as \
         gateway.example, without scheme, port or wildcard",
    ),
    (
        "--forget-after=2d",
        "--forget-after: \"2d\" is not a time with a unit; give a time from 0s to 24h, such as \
         10m",
    ),
    (
        "--admin-bind-address=:6480",
        "--admin-bind-address: \":6480\" is not an address; give an IP address and a port, such as \
         127.0.0.1:6480",
    ),
    ("--workers=65", "--workers: \"65\" is not a number of workers; give a number from 1 to 64"),
    (
        "--goaway-chance=0.5",
        "--goaway-chance: \"0.5\" is not a chance; give a fraction from 0 (off) to 0.02, \
         such as 0.001",
    ),
    (
        "--max-request-header-bytes=1048576",
        "--max-request-header-bytes: \"1048576\" is not a valid size; give bytes from \
         8192 to 262144, without a unit, such as 131072 (128 KiB)",
    ),
    (
        "--max-client-connections=0",
        "--max-client-connections: \"0\" is not a number of connections; give a number from 1 to \
         10000000, such as 20000",
    ),
    (
        "--max-client-connections-per-address=-1",
        "--max-client-connections-per-address: \"-1\" is not a number of connections; give a \
         number from 0 (no limit) to 10000000, such as 1000",
    ),
    ("--log-format=xml", "--log-format: \"xml\" is not a valid value; use text or json"),
    (
        "--log-level=loud",
        "--log-level: \"loud\" is not a log level; use off, error, warn, info, debug or \
         trace, or TARGET=LEVEL for one target",
    ),
    (
        "--requestheader-username-headers=X User",
        "--requestheader-username-headers: \"X User\" is not a header name; give one such as \
         X-Remote-User",
    ),
    (
        "--server-id=a/b",
        "--server-id: \"a/b\" is not an ID; use 1 to 253 letters, digits, dashes, dots and \
         underscores",
    ),
];

#[test]
fn wrong_flags_and_values_are_reported() {
    let place = Folder::new();
    for &(flag, sentence) in WRONG_FLAGS {
        place.serve(&[flag]).is_mistake(2, sentence);
    }
    place.mvp(&["sevre"]).is_mistake(2, "sevre: not a command of mvp; did you mean serve?");
    place.mvp(&["xyz"]).is_mistake(2, "xyz: not a command of mvp; see mvp --help for all commands");
    place.mvp(&["forget"]).is_mistake(2, "<ID>: is missing; see --help");
    place
        .mvp(&["demo", "-o", "yaml"])
        .is_mistake(2, "--output: \"yaml\" is not a valid value; use text or json");
    place
        .mvp(&["demo", "--check", "--story"])
        .is_mistake(2, "--check: cannot be used with --story; remove one of them");
}

#[test]
fn a_wrong_environment_variable_is_named() {
    let place = Folder::new();
    let output = place.command(&["serve"]).env("MVP_LOG", "loud").output().unwrap();
    outcome(output).is_mistake(
        2,
        "MVP_LOG: \"loud\" is not a log level; use off, error, warn, info, debug or trace, or \
         TARGET=LEVEL for one target",
    );
}

#[test]
fn the_first_server_is_given_or_found_in_the_pod_environment() {
    let place = Folder::new();
    let flags = [
        "serve",
        "--tls-cert-file=server.crt",
        "--tls-private-key-file=server.key",
        "--peer-ca-file=ca.crt",
        "--membership=endpoints",
    ];
    let (host, port) = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT");
    let without = place.command(&flags).env_remove(host).env(port, "443").output().unwrap();
    outcome(without).is_mistake(
        2,
        "--servers: missing; give a server through which to find the others: \
         KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which every pod has, are not set",
    );
    let with = place.command(&flags).env(host, "fd00::1").env(port, "443").output().unwrap();
    outcome(with).is_mistake(
        2,
        "--proxy-client-cert-file: missing, but --peer-ca-file needs it to read the discovery of the \
         local server and of peers; give it with --proxy-client-key-file, signed by the request-header CA \
         of the servers",
    );
}

#[test]
fn missing_required_flags_are_reported() {
    let place = Folder::new();
    let pair = ["--tls-cert-file=server.crt", "--tls-private-key-file=server.key"];
    let local = "--local-server=https://127.0.0.1:7443";
    for (arguments, sentence) in [
        (
            vec![],
            "--tls-cert-file: missing; give the serving certificate, and --tls-private-key-file",
        ),
        (
            vec![pair[0]],
            "--tls-cert-file: given without --tls-private-key-file; give both flags or neither",
        ),
        (
            vec![pair[1]],
            "--tls-private-key-file: given without --tls-cert-file; give both flags or neither",
        ),
        (
            pair.to_vec(),
            "--local-server: missing; give the API server beside this gateway, as https://HOST:PORT, \
             or --servers for a load balancer in front of all",
        ),
        (
            vec![pair[0], pair[1], local],
            "--local-ca-file: missing; give the CAs to verify the local server with",
        ),
    ] {
        let arguments: Vec<&str> = ["serve"].into_iter().chain(arguments).collect();
        place.mvp(&arguments).is_mistake(2, sentence);
    }
}

#[test]
fn conflicting_flags_are_reported() {
    let place = Folder::new();
    let fix = "give it with --proxy-client-key-file, signed by the request-header CA of the \
               servers";
    let identity = ["--proxy-client-cert-file=server.crt", "--proxy-client-key-file=server.key"];
    for (more, sentence) in [
        (
            vec![identity[0]],
            "--proxy-client-cert-file: given without --proxy-client-key-file; give both flags or neither"
                .to_owned(),
        ),
        (
            vec!["--secure-port=7443"],
            "--local-server: https://127.0.0.1:7443 is where mvp itself listens; move one of them \
             with --bind-address or --secure-port"
                .to_owned(),
        ),
        (
            vec!["--peer-ca-file=ca.crt", "--peer=b=https://b:1"],
            format!(
                "--proxy-client-cert-file: missing, but --peer-ca-file needs it to read the discovery \
                 of the local server and of peers; {fix}"
            ),
        ),
        (
            vec!["--client-ca-file=ca.crt"],
            format!(
                "--proxy-client-cert-file: missing, but --client-ca-file needs it to tell the \
                 local server who the user is; {fix}"
            ),
        ),
        (
            vec!["--requestheader-client-ca-file=ca.crt"],
            format!(
                "--proxy-client-cert-file: missing, but --requestheader-client-ca-file needs it \
                 to tell the local server who the user is; {fix}"
            ),
        ),
        (
            vec!["--server-id=a", "--peer=a=https://a:1"],
            "--peer: a is this server's own ID; name only the others, or set --server-id"
                .to_owned(),
        ),
        (
            vec!["--peer=b=https://b:1", "--peer=b=https://c:1"],
            "--peer: b is named twice; give each peer its own ID".to_owned(),
        ),
        (
            vec!["--max-client-connections=100", "--max-client-connections-per-address=101"],
            "--max-client-connections-per-address: 101 is more than --max-client-connections=100, \
             the limit for all addresses together; lower this one, or raise --max-client-connections"
                .to_owned(),
        ),
        (
            vec![
                identity[0],
                identity[1],
                "--client-ca-file=ca.crt",
                "--requestheader-client-ca-file=ca.crt",
                "--requestheader-allowed-names=",
            ],
            "--requestheader-allowed-names: empty, but ca.crt and ca.crt share a certificate, so \
             that any client could act as any user; list the names of the proxies, or use a separate \
             CA for them"
                .to_owned(),
        ),
    ] {
        place.serve(&more).is_mistake(2, &sentence);
    }
}

#[test]
fn files() {
    let place = Folder::new();
    place.write("empty", "");
    place.write("binary", [0, 159, 146, 150]);
    place.write("huge", vec![b'a'; (1 << 20) + 1]);
    place.write("garbage.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    place.write("cut.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    std::fs::create_dir(place.path("directory")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(place.path("fifo")).status().unwrap();
    assert!(fifo.success());
    for (file, sentence) in [
        ("none", "none does not exist; create it or correct the path"),
        ("directory", "directory is a directory; name a file in it"),
        ("fifo", "fifo is not a regular file; copy its contents into a regular file"),
        ("huge", "huge is larger than 1 MiB; check that it is the right file"),
        ("empty", "empty holds no certificate; give a PEM file with one"),
        ("binary", "binary holds no certificate; give a PEM file with one"),
        ("server.key", "server.key holds a private key; give the file of the certificate"),
    ] {
        let flag = format!("--peer-ca-file={file}");
        place.serve(&[&flag]).is_mistake(1, &format!("--peer-ca-file: {sentence}"));
    }
    for (file, start, end) in [
        ("garbage.crt", "certificate 1 in garbage.crt cannot be read (", "); replace it\n"),
        ("cut.crt", "cut.crt is not valid PEM (", "); replace it\n"),
        ("ca.crt/x", "ca.crt/x cannot be read (", "); correct the path\n"),
    ] {
        let outcome = place.serve(&[&format!("--client-ca-file={file}")]);
        assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(1), 1), "{outcome:?}");
        let expected = format!("error: --client-ca-file: {start}");
        assert!(outcome.stderr.starts_with(&expected), "{outcome:?}");
        assert!(outcome.stderr.ends_with(end), "{outcome:?}");
    }
}

/// An X.509 v1 certificate, as openssl x509 -req makes it without extensions.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBGDCBvwIUWe68DQdQ4icNgt2/f4paKX7KB1owCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDb2xkMCAXDTI2MTExNzIxMDgwMVoYDzIxMjYxMDI0MjEwODAxWjAOMQww
CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARRU7doVIz9pxlp
9LMx5HAgiY18FFhrYgWk+PswEC8TwIu15yZmB7fKk7egcrB0R5ISsvTFT8FkMEc6
VbYIoygaMAoGCCqGSM49BAMCA0gAMEUCIQCRqIi2nv2JoTbQhYWg2X7vqJREtKwh
c9KjrzTeg23y4gIgByB7nGSM7Ad2lsDCTi/1hhmDxQ9DhsZ087TKfrhraUg=
-----END CERTIFICATE-----
";

#[test]
fn a_certificate_of_version_1_is_named_and_not_its_key() {
    let place = Folder::new();
    place.write("old.crt", VERSION_1);
    let sentence = "--tls-cert-file: old.crt holds an X.509 v1 certificate, which is not supported; \
                    create an X.509 v3 certificate, for example with openssl x509 -req -extfile, which \
                    adds extensions such as subjectAltName";
    let flags = ["serve", "--tls-cert-file=old.crt", "--tls-private-key-file=server.key"];
    place.mvp(&flags).is_mistake(1, sentence);
}

/// Also if it is a valid front proxy. Nobody has the address, so that nothing is ever served.
#[test]
fn a_proxy_certificate_that_is_also_a_user_is_rejected() {
    let place = Folder::new();
    let shared = [
        "--bind-address=192.0.2.1",
        "--proxy-client-cert-file=server.crt",
        "--proxy-client-key-file=server.key",
        "--client-ca-file=ca.crt",
    ];
    let front_proxy = [
        "--requestheader-client-ca-file=ca.crt",
        "--requestheader-allowed-names=server",
        "--peer-ca-file=ca.crt",
        "--membership=static",
    ];
    let sentence = "--proxy-client-cert-file: server.crt authenticates user \"server\" \
                    under --client-ca-file ca.crt, so that anonymous requests would get the \
                    rights of that user; sign the proxy client certificate with a separate CA, such \
                    as kubeadm's front-proxy-ca, and give that CA as \
                    --requestheader-client-ca-file\n";
    for more in [&shared[..], &[&shared[..], &front_proxy].concat()] {
        let outcome = place.serve(more);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        let error = outcome.stderr.lines().last().unwrap_or_default();
        assert_eq!(format!("{error}\n"), format!("error: {sentence}"), "{outcome:?}");
    }
}

#[test]
fn keys() {
    let place = Folder::new();
    place.write("empty", "");
    place.write(
        "encrypted.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    for (file, sentence) in [
        ("other.key", "other.key is not the key of server.crt; give the matching files"),
        ("none.key", "none.key does not exist; create it or correct the path"),
        ("empty", "empty holds no private key; give a PEM file with one"),
        (
            "server.crt",
            "server.crt holds a certificate but no private key; give the file of the key",
        ),
        (
            "encrypted.key",
            "encrypted.key holds an encrypted key; decrypt it, for example with openssl pkey",
        ),
    ] {
        let flag = format!("--proxy-client-key-file={file}");
        place
            .serve(&["--proxy-client-cert-file=server.crt", &flag])
            .is_mistake(1, &format!("--proxy-client-key-file: {sentence}"));
    }
    place.write("garbage.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let outcome = place
        .serve(&["--proxy-client-cert-file=server.crt", "--proxy-client-key-file=garbage.key"]);
    assert_eq!(outcome.code, Some(1));
    let start = "error: --proxy-client-key-file: garbage.key holds a key that cannot be used (";
    assert!(outcome.stderr.starts_with(start), "{outcome:?}");
}

/// A closed standard error does not change the exit code.
#[test]
fn a_closed_standard_error_leaves_the_exit_code() {
    let place = Folder::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = place.command(&["serve"]).stderr(writer).stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
