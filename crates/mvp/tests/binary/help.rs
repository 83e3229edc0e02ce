//! The help page, the version, and a closed standard output.

use std::process::Stdio;

use crate::folder::Folder;

/// All flags of `mvp serve`.
const FLAGS: [&str; 74] = [
    "--help",
    "--bind-address",
    "--secure-port",
    "--advertise-address",
    "--tls-cert-file",
    "--tls-private-key-file",
    "--tls-sni-cert-key",
    "--tls-min-version",
    "--tls-cipher-suites",
    "--permit-port-sharing",
    "--steer",
    "--shutdown-delay-duration",
    "--shutdown-grace-period",
    "--goaway-chance",
    "--max-request-header-bytes",
    "--max-client-connections",
    "--max-client-connections-per-address",
    "--max-client-handshakes",
    "--client-idle-timeout",
    "--http2-max-streams-per-connection",
    "--max-response-buffer-bytes",
    "--max-peer-requests",
    "--max-peer-watches",
    "--max-document-bytes",
    "--max-document-depth",
    "--max-refreshes-per-second",
    "--local-server",
    "--servers",
    "--pass-through",
    "--members-cache",
    "--service-account",
    "--local-ca-file",
    "--server-id",
    "--peer-ca-file",
    "--peer-advertise-ip",
    "--peer-advertise-port",
    "--membership",
    "--peer",
    "--peers-file",
    "--egress-selector-config-file",
    "--etcd-servers",
    "--etcd-cafile",
    "--etcd-certfile",
    "--etcd-keyfile",
    "--etcd-prefix",
    "--forget-after",
    "--client-ca-file",
    "--requestheader-client-ca-file",
    "--requestheader-allowed-names",
    "--requestheader-username-headers",
    "--requestheader-group-headers",
    "--requestheader-uid-headers",
    "--requestheader-extra-headers-prefix",
    "--proxy-client-cert-file",
    "--proxy-client-key-file",
    "--refresh-interval",
    "--feature-gates",
    "--admin-bind-address",
    "--admin-allowed-hosts",
    "--admin-socket",
    "--dashboard-bind-address",
    "--dashboard-allowed-groups",
    "--dashboard-flow",
    "--workers",
    "--log-format",
    "--log-level",
    "--log-local-requests",
    "--record-callers",
    "--tracing-endpoint",
    "--tracing-ca-file",
    "--tracing-sampling-ratio",
    "--tracing-client-requests-per-second",
    "--config",
    "--like",
];

#[test]
fn serve_help_lists_each_flag_once_under_its_heading() {
    let page = Folder::new().mvp(&["serve", "--help"]);
    assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""));
    let (flags, examples) = page.stdout.split_once("Examples:\n").unwrap();
    let listed: Vec<&str> = flags
        .lines()
        // Descriptions are indented by ten, and may start with the name of a flag.
        .filter(|line| !line.starts_with("          "))
        .filter_map(|line| {
            line.trim_start().trim_start_matches("-h, ").split([' ', '[', '=']).next()
        })
        .filter(|word| word.starts_with("--"))
        .collect();
    assert_eq!(listed, FLAGS);
    let mut rest = flags;
    for heading in [
        "Listener:",
        "Local server:",
        "Peers and membership:",
        "Client authentication:",
        "Proxy identity:",
        "Discovery and decisions:",
        "Admin and logs:",
        "Traces:",
        "Flags from files:",
    ] {
        rest = rest.split_once(&format!("\n{heading}\n")).expect(heading).1;
    }
    for default in ["0.0.0.0", "6443", "X-Remote-User", "10m", "1s", "127.0.0.1:6480", "info"] {
        assert!(flags.contains(&format!("[default: {default}]")), "{default}");
    }
    for example in ["--local-server=https://127.0.0.1:6443", "--peer=node-c=", "--config="] {
        assert!(examples.contains(example), "{example}");
    }
    let width = page.stdout.lines().map(|line| line.chars().count()).max();
    assert!(width <= Some(100), "{width:?}");
}

#[test]
fn short_help_equals_long_help() {
    let place = Folder::new();
    assert_eq!(place.mvp(&["serve", "-h"]).stdout, place.mvp(&["serve", "--help"]).stdout);
}

/// Every flag in the examples exists and has a valid value.
#[test]
fn the_examples_in_help_work() {
    let place = Folder::new();
    let page = place.mvp(&["serve", "--help"]).stdout;
    let examples = page.split_once("Examples:\n").unwrap().1;
    let flags: Vec<&str> =
        examples.split_whitespace().filter(|word| word.starts_with("--")).collect();
    assert!(flags.len() > 10);
    // This one depends on the host. Others test it.
    let flags: Vec<&str> = flags.into_iter().filter(|flag| *flag != "--like=auto").collect();
    for flag in flags {
        let outcome = place.mvp(&["serve", flag]);
        let sentence = outcome.stderr;
        let missing = sentence.contains(": missing; give") || sentence.contains("given without");
        assert!(missing || sentence.contains("does not exist"), "{flag}: {sentence}");
    }
    let yaml: String = examples
        .split_once("mvp.yaml:\n")
        .unwrap()
        .1
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| format!("{line}\n"))
        .collect();
    place.write("mvp.yaml", yaml.replace("/etc/kubernetes/pki/", "none/"));
    place.mvp(&["serve", "--config=mvp.yaml"]).is_mistake(
        1,
        "mvp.yaml line 4: tls-cert-file: none/apiserver.crt does not exist; create it or correct \
         the path",
    );
}

#[test]
fn no_arguments_print_help_on_standard_error() {
    let outcome = Folder::new().mvp(&[]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""));
    for command in ["serve", "demo", "version"] {
        assert!(outcome.stderr.contains(&format!("\n  {command}")), "{}", outcome.stderr);
    }
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let place = Folder::new();
    for arguments in [vec!["serve", "--help"], vec!["version"], vec!["--version"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(&arguments);
        command.stdout(writer).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{arguments:?}");
    }
}
