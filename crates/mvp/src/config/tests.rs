//! Tests of whole configurations, from the command line to [`ServeConfig`].

mod dashboard;
mod steer;
mod tracing;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use mvp_core::member::MemberKind;
use testkit::certificates::{Ca, Leaf};

use super::{ServeConfig, ServerUrl};
use crate::cli::{self, Invocation, Stop};
use crate::logging::LogFormat;
use crate::mistake::Mistake;

/// A directory with `ca.crt`, `other-ca.crt`, and the pair `server.crt`, `server.key`.
struct Files(std::path::PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("mvp-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let files = Self(directory);
        let ca = Ca::new("ca");
        files.write("ca.crt", ca.pem());
        files.write("other-ca.crt", Ca::new("other").pem());
        let leaf = Leaf::named("server").names(&["localhost"]);
        ca.issue(leaf.valid((2020, 1, 1), (2120, 1, 1))).write(&files.0, "server").unwrap();
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// `@` in an argument stands for the directory.
    fn check(&self, arguments: &[&str]) -> Result<ServeConfig, Mistake> {
        self.check_at(arguments, SystemTime::now())
    }

    fn check_at(&self, arguments: &[&str], now: SystemTime) -> Result<ServeConfig, Mistake> {
        let directory = self.0.display().to_string();
        let argv = ["mvp", "serve"].iter().chain(arguments);
        let argv = argv.map(|argument| OsString::from(argument.replace('@', &directory)));
        match cli::parse(argv.collect()) {
            Ok(Invocation::Serve(args, origins, _)) => ServeConfig::check(*args, &origins, now),
            Err(Stop::Mistake(mistake)) => Err(mistake),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LEAST: [&str; 4] = [
    "--tls-cert-file=@/server.crt",
    "--tls-private-key-file=@/server.key",
    "--local-server=https://127.0.0.1:7443",
    "--local-ca-file=@/ca.crt",
];
const IDENTITY: [&str; 2] =
    ["--proxy-client-cert-file=@/server.crt", "--proxy-client-key-file=@/server.key"];

fn with(more: &[&'static str]) -> Vec<&'static str> {
    LEAST.iter().chain(more).copied().collect()
}

#[test]
fn a_minimal_configuration_has_the_documented_defaults() {
    let files = Files::new("least");
    let config = files.check(&LEAST).unwrap();
    assert_eq!(config.listen, "0.0.0.0:6443".parse().unwrap());
    assert_eq!(config.admin, "127.0.0.1:6480".parse().unwrap());
    let local = config.local.as_ref().unwrap();
    assert!(local.id.starts_with("apiserver-") && local.id.len() == 36);
    assert_eq!(local.url.to_string(), "https://127.0.0.1:7443");
    assert_eq!(config.peers.forget_after, Duration::from_mins(10));
    assert_eq!(config.refresh_interval, Duration::from_secs(1));
    assert!(config.interoperability && !config.serves_peers());
    assert!((1..=64).contains(&config.workers));
    assert_eq!(config.log_format, LogFormat::Text);
    assert!(!config.log_local_requests && config.record_callers);
    let limits = config.client_limits;
    assert!(limits.goaway_chance == 0.0 && limits.connections.is_none());
    assert_eq!((limits.request_header_bytes, limits.connections_per_address), (128 << 10, None));
    let names = &config.request_header;
    assert!(names.ca.is_none() && names.allowed_names.is_empty());
    assert_eq!(names.username, ["x-remote-user"]);
    assert_eq!(names.group, ["x-remote-group"]);
    assert_eq!(names.uid, ["x-remote-uid"]);
    assert_eq!(names.extra_prefix, ["x-remote-extra-"]);
    assert_eq!(
        config.warnings,
        [
            "no --peer-ca-file: mvp serves the APIs of the local server only, merges no discovery and \
          sends nothing to peers"
        ]
    );
}

#[test]
fn all_kinds_of_settings() {
    let files = Files::new("whole");
    let mut arguments = with(&IDENTITY);
    arguments.extend([
        "--bind-address=10.0.0.1",
        "--peer-advertise-address=10.1.0.1",
        "--peer-advertise-port=7000",
        "--peer-ca-file=@/ca.crt",
        "--client-ca-file=@/ca.crt",
        "--requestheader-client-ca-file=@/other-ca.crt",
        "--requestheader-allowed-names=a,b",
        "--requestheader-allowed-names=c",
        "--requestheader-uid-headers=X-Uid,X-Remote-Uid",
        "--server-id=one",
        "--peer=two=https://10.0.0.2:6443",
        "--peer",
        "three=https://10.0.0.3:6443,kind=bare",
        "--log-local-requests",
        "--log-format=json",
        "--workers=3",
        "--goaway-chance=0.001",
        "--max-request-header-bytes=65536",
        "--max-client-connections=1000",
        "--max-client-connections-per-address=100",
    ]);
    let config = files.check(&arguments).unwrap();
    assert_eq!(config.advertise, Some("10.1.0.1:7000".parse().unwrap()));
    assert_eq!(config.local.as_ref().unwrap().id, "one");
    let peers: Vec<_> = config.peers.named.iter().map(|peer| (&*peer.id, peer.kind)).collect();
    assert_eq!(peers, [("two", MemberKind::Mvp), ("three", MemberKind::Bare)]);
    assert_eq!(config.request_header.allowed_names, ["a", "b", "c"]);
    assert_eq!(config.request_header.uid, ["x-uid", "x-remote-uid"]);
    assert!(config.serves_peers() && config.log_local_requests);
    assert_eq!((config.workers, config.log_format), (3, LogFormat::Json));
    let limits = config.client_limits;
    assert_eq!(limits.request_header_bytes, 65_536);
    assert_eq!((limits.connections, limits.connections_per_address), (Some(1000), Some(100)));
    assert!(limits.goaway_chance == 0.001);
    assert_eq!(config.serving.chain.certificates.len(), 1);
    assert_eq!(config.serving.chain.pem, fs::read(files.0.join("server.crt")).unwrap());
    assert_eq!(config.serving.key.path, files.0.join("server.key"));
    assert_eq!(config.warnings, [""; 0]);
    let shown = format!("{config:?}");
    assert!(!shown.contains("PRIVATE KEY") && shown.contains("server.key"), "{shown}");
}

/// The flags of a gateway with peers.
const PEERS: [&str; 4] = [
    "--peer-ca-file=@/ca.crt",
    "--advertise-address=10.0.0.1",
    "--proxy-client-cert-file=@/server.crt",
    "--proxy-client-key-file=@/server.key",
];

#[test]
fn a_load_balancer_has_no_local_server() {
    let files = Files::new("before");
    let least = [LEAST[0], LEAST[1], PEERS[0], PEERS[2], PEERS[3]];
    let check = |more: &[&'static str]| files.check(&[&least[..], more].concat());
    let config = check(&["--servers=https://10.0.0.1:6443,https://10.0.0.2"]).unwrap();
    assert!(config.local.is_none() && config.serves_peers());
    let servers: Vec<String> = config.peers.servers.iter().map(ServerUrl::authority).collect();
    assert_eq!(servers, ["10.0.0.1:6443", "10.0.0.2:443"]);
    for (flags, sentence) in [
        (vec![], "--local-server: missing; give the API server beside this gateway"),
        (
            vec!["--servers=https://a", "--local-server=https://a"],
            "--servers: cannot be used with --local-server; ",
        ),
        (
            vec!["--servers=https://127.0.0.1:6443"],
            "--servers: https://127.0.0.1:6443 is where mvp itself listens",
        ),
        (
            vec!["--servers=https://a", "--membership=leases", "--advertise-address=10.0.0.1"],
            "--membership: with --servers, mvp is not a cluster member",
        ),
        (
            vec!["--servers=https://a", "--etcd-servers=http://a:2379"],
            "--etcd-servers: with --servers, mvp is not a cluster member",
        ),
        (
            vec!["--servers=https://a", "--feature-gates=UnknownVersionInteroperabilityProxy=0"],
            "--feature-gates: UnknownVersionInteroperabilityProxy=false makes mvp a plain reverse proxy",
        ),
    ] {
        let refused = check(&flags).unwrap_err().to_string();
        assert!(refused.starts_with(sentence), "{refused}");
    }
    let both = check(&["--servers=https://a", "--membership=endpoints"]).unwrap();
    assert_eq!((both.peers.servers.len(), both.peers.seed), (1, None));
    let no_ca = [LEAST[0], LEAST[1], "--servers=https://a"];
    let refused = files.check(&no_ca).unwrap_err().to_string();
    assert_eq!(refused, "--peer-ca-file: missing; give the CAs to verify the servers with");
}

#[test]
fn sources_of_members() {
    let files = Files::new("membership");
    let sources = |more: &[&'static str]| {
        let arguments = [&PEERS[..], more].concat();
        let config = files.check(&with(&arguments))?;
        let names: Vec<&str> =
            config.peers.membership.iter().map(|source| source.as_str()).collect();
        Ok::<_, Mistake>(names.join(","))
    };
    let etcd = ["--etcd-servers=https://10.0.0.1:2379", "--etcd-cafile=@/ca.crt"];
    assert_eq!(sources(&[]).unwrap(), "leases");
    assert_eq!(sources(&["--peer=b=https://b:1"]).unwrap(), "static");
    assert_eq!(sources(&etcd).unwrap(), "etcd");
    assert_eq!(sources(&[etcd[0], etcd[1], "--peer=b=https://b:1"]).unwrap(), "static,etcd");
    assert_eq!(sources(&["--peer=b=https://b:1", "--membership=leases"]).unwrap(), "leases");
    assert_eq!(sources(&["--membership=leases,endpoints"]).unwrap(), "leases,endpoints");
    let unused = [&PEERS[..], &etcd, &["--membership=leases"]].concat();
    let config = files.check(&with(&unused)).unwrap();
    let warned = config.warnings.iter().any(|text| text.starts_with("--etcd-servers is not used"));
    assert!(warned, "{:?}", config.warnings);
    let config = files.check(&LEAST).unwrap();
    assert!(config.peers.membership.is_empty(), "nothing goes to peers");
    for (flags, sentence) in [
        (vec!["--membership=etcd"], "--membership: etcd needs --etcd-servers"),
        (vec![etcd[0]], "--etcd-servers: https needs --etcd-cafile"),
        (vec![etcd[1]], "--etcd-cafile: given without --etcd-servers"),
        (
            vec!["--peer-advertise-ip=0.0.0.0"],
            "--peer-advertise-ip: other members cannot reach this one at 0.0.0.0",
        ),
    ] {
        let refused = sources(&flags).unwrap_err().to_string();
        assert!(refused.starts_with(sentence), "{refused}");
    }
    let loopback = [PEERS[0], PEERS[2], PEERS[3], "--bind-address=127.0.0.1"];
    let refused = files.check(&with(&loopback)).unwrap_err().to_string();
    let start = "--peer-advertise-ip: missing, and the listener's address 127.0.0.1 can be reached \
                 from this host only";
    assert!(refused.starts_with(start), "{refused}");
    assert!(files.check(&with(&[&loopback[..], &["--membership=static"]].concat())).is_ok());
    assert!(
        files.check(&with(&[&loopback[..], &["--advertise-address=127.0.0.1"]].concat())).is_ok()
    );
}

#[test]
fn the_local_ca_defaults_to_the_peer_ca() {
    let files = Files::new("local-ca");
    let arguments: Vec<_> = LEAST.iter().take(3).copied().chain(PEERS).collect();
    let config = files.check(&arguments).unwrap();
    assert_eq!(config.local.as_ref().unwrap().ca.path, files.0.join("ca.crt"));
    assert!(config.serves_peers() && config.proxy_client.is_some());
}

#[test]
fn warnings() {
    let files = Files::new("warnings");
    let warnings = |more: &[&'static str]| files.check(&with(more)).unwrap().warnings;
    assert_eq!(
        warnings(&["--peer=a=https://a:1"]),
        [
            "no --peer-ca-file: mvp serves the APIs of the local server only, merges no discovery and \
          sends nothing to peers; ignores 1 peers of --peer"
        ]
    );
    assert_eq!(
        warnings(&["--feature-gates=UnknownVersionInteroperabilityProxy=false"]),
        [
            "feature gate UnknownVersionInteroperabilityProxy is off: mvp is a plain reverse proxy of \
          the local server, merges no discovery and sends nothing to peers"
        ]
    );
    assert_eq!(
        warnings(&[PEERS[0], PEERS[1], PEERS[2], PEERS[3], "--admin-bind-address=[::]:1"]),
        [
            "--admin-bind-address [::]:1 can be reached from other hosts, over plain HTTP and without \
             authentication; use a loopback address"
        ]
    );
    let in_days = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_hours(24 * days);
    for (days, wrong) in [(55_000, "expired on "), (10_000, "is not valid before ")] {
        let arguments = with(&PEERS);
        let warnings = files.check_at(&arguments, in_days(days)).unwrap().warnings;
        let expected = format!(
            "--tls-cert-file: the certificate in {} {wrong}",
            files.0.join("server.crt").display()
        );
        assert!(warnings.iter().any(|warning| warning.starts_with(&expected)), "{warnings:?}");
    }
}

#[test]
fn flags_override_the_config_file() {
    let files = Files::new("precedence");
    files.write(
        "mvp.yaml",
        "local-server: https://10.0.0.9:6443\nlocal-ca-file: ca.crt\nsecure-port: 7000\n\
         peer-advertise-address: 10.0.0.4\npeer: [a=https://a:1, b=https://b:1]\nworkers: 5\n\
         requestheader-allowed-names: [one, 'two,three']\nlog-local-requests: true\n\
         record-callers: false\n",
    );
    let config = files.check(&with(&["--config=@/mvp.yaml", "--secure-port=8000"])).unwrap();
    assert_eq!(config.local.as_ref().unwrap().url.host, "127.0.0.1");
    assert_eq!(config.local.as_ref().unwrap().ca.path, files.0.join("ca.crt"));
    assert_eq!(config.listen.port(), 8000);
    assert_eq!(config.advertise, Some("10.0.0.4:8000".parse().unwrap()));
    assert_eq!(config.peers.named.len(), 2);
    assert_eq!(config.workers, 5);
    assert_eq!(config.request_header.allowed_names, ["one", "two", "three"]);
    assert!(config.log_local_requests && !config.record_callers);
    let config = files
        .check(&with(&[
            "--config=@/mvp.yaml",
            "--peer=c=https://c:1",
            "--log-local-requests=false",
            "--record-callers",
        ]))
        .unwrap();
    assert_eq!(config.peers.named.len(), 1);
    assert!(!config.log_local_requests && config.record_callers);
}

/// The same as on the command line, but with the file and the line.
#[test]
fn errors_of_the_config_file_name_the_line() {
    let files = Files::new("lines");
    let path = files.0.join("mvp.yaml");
    for (text, sentence) in [
        (
            "workers: 0",
            "line 1: workers: \"0\" is not a number of workers; give a number from 1 to 64",
        ),
        (
            "\npeer:\n- x",
            "line 2: peer: \"x\" has no ID; write it as ID=https://HOST:PORT, or with ,kind=bare at the end",
        ),
        (
            "goaway-chance: 1",
            "line 1: goaway-chance: \"1\" is not a chance; give a fraction from 0 (off) to 0.02, such \
             as 0.001",
        ),
        ("log-format: xml", "line 1: log-format: \"xml\" is not a valid value; use text or json"),
        (
            "client-ca-file: /none",
            "line 1: client-ca-file: /none does not exist; create it or correct the path",
        ),
        (
            "config: x",
            "line 1: \"config\" is not a known key; see mvp serve --help: each flag is a key",
        ),
        (
            "a: 1\nworkers: 1",
            "line 1: \"a\" is not a known key; see mvp serve --help: each flag is a key",
        ),
        ("workers: 1\nworkers: 2", "line 2: workers is already set in line 1; remove one of them"),
        (
            "peer-advertise-ip: 1.1.1.1\npeer-advertise-address: 1.1.1.1",
            "line 2: peer-advertise-address is already set in line 1; remove one of them",
        ),
        ("workers: [1]", "line 1: workers takes one value; do not give a list"),
        ("workers:", "line 1: workers has no value; give one or remove the key"),
    ] {
        files.write("mvp.yaml", text);
        let mistake = files.check(&with(&["--config=@/mvp.yaml"])).unwrap_err();
        assert_eq!(mistake.to_string(), format!("{} {sentence}", path.display()), "{text:?}");
    }
}

#[test]
fn a_pair_may_share_a_file_and_a_bundle_may_keep_an_old_ca() {
    let files = Files::new("bundle");
    let text = |name: &str| fs::read_to_string(files.0.join(name)).unwrap();
    files.write("both.pem", &(text("server.key") + &text("server.crt") + &text("ca.crt")));
    files.write("bundle.crt", &format!("# old\n{}# new\n{}", text("other-ca.crt"), text("ca.crt")));
    let config = files
        .check(&[
            "--tls-cert-file=@/both.pem",
            "--tls-private-key-file=@/both.pem",
            "--local-server=https://127.0.0.1:7443",
            "--local-ca-file=@/bundle.crt",
        ])
        .unwrap();
    assert_eq!(config.serving.chain.certificates.len(), 2);
    assert_eq!(config.local.as_ref().unwrap().ca.certificates.len(), 2);
    assert!(Path::new(&config.local.as_ref().unwrap().ca.path).ends_with("bundle.crt"));
}
