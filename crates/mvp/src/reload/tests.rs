//! Files that change in the ways that operators and Kubernetes change them.

mod etcd;
mod identity;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use mvp_net::UnixTime;
use testkit::certificates::{Ca, Leaf, Pair};

use super::*;
use crate::cli::{self, Invocation};
use crate::reload::expiry::Validity;
use crate::supervise::Supervisor;

/// A directory with the files of a configuration, and the CAs that signed them.
struct Place {
    directory: PathBuf,
    servers: Ca,
    clients: Ca,
    proxies: Ca,
}

impl Place {
    fn new(name: &str) -> Place {
        let directory =
            std::env::temp_dir().join(format!("mvp-reload-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let [servers, clients, proxies] = ["servers", "clients", "proxies"].map(Ca::new);
        let place = Place { directory, servers, clients, proxies };
        place.write_pair("server", &issue(&place.servers, "server"));
        place.write_pair("proxy", &issue(&place.proxies, "proxy"));
        place.write_pair("etcd", &issue(&place.clients, "etcd"));
        place.write("etcd-ca.crt", place.servers.pem());
        place.write("ca.crt", place.servers.pem());
        place.write("client-ca.crt", place.clients.pem());
        place.write("proxy-ca.crt", place.proxies.pem());
        place.write("peers.yaml", "peers: [{id: b, address: 'https://10.0.0.2:1'}]");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn write_pair(&self, name: &str, pair: &Pair) {
        self.write(&format!("{name}.crt"), &pair.certificate);
        self.write(&format!("{name}.key"), &pair.key);
    }

    fn reloader(&self) -> Reloader {
        self.reloader_with(&[])
    }

    fn reloader_with(&self, more: &[&str]) -> Reloader {
        let shown = self.directory.display();
        let argv: Vec<OsString> = [
            "mvp",
            "serve",
            "--local-server=https://127.0.0.1:1",
            "--server-id=a",
            "--tls-cert-file=@/server.crt",
            "--tls-private-key-file=@/server.key",
            "--client-ca-file=@/client-ca.crt",
            "--requestheader-client-ca-file=@/proxy-ca.crt",
            "--proxy-client-cert-file=@/proxy.crt",
            "--proxy-client-key-file=@/proxy.key",
            "--peer-ca-file=@/ca.crt",
            "--peer=flagged=https://10.0.0.1:1",
            "--peers-file=@/peers.yaml",
            "--etcd-servers=https://127.0.0.1:2379",
            "--etcd-cafile=@/etcd-ca.crt",
            "--etcd-certfile=@/etcd.crt",
            "--etcd-keyfile=@/etcd.key",
            "--membership=static,etcd",
            "--peer-advertise-ip=10.0.0.3",
        ]
        .iter()
        .chain(more)
        .map(|argument| argument.replace('@', &shown.to_string()).into())
        .collect();
        let now = SystemTime::now();
        let Ok(Invocation::Serve(args, origins, _)) = cli::parse(argv) else { panic!() };
        let config = ServeConfig::check(*args, &origins, now).unwrap();
        let in_force = InForce {
            tls: ReloadableTls::new(tls::server(&config).unwrap()),
            outbound_local: tls::outbound_local(&config).unwrap().into(),
            outbound_peers: Some(tls::outbound_local(&config).unwrap().into()),
            egress: selector::ways(&config).unwrap().into(),
            members: watch::Sender::new(members(&config)),
            etcd: watch::Sender::new(tls::etcd(&config).unwrap()),
        };
        Reloader::new(config, in_force, ReloadMetrics::default(), now)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A certificate without usages, as configuration files may name it for anything.
fn issue(ca: &Ca, name: &str) -> Pair {
    ca.issue(Leaf::named(name))
}

impl Reloader {
    /// Reads the files until they no longer change.
    fn settle(&mut self) {
        while self.look(SystemTime::now()) == SETTLING {}
    }

    fn serves(&self, certificate: &str) -> bool {
        self.config.serving.chain.pem == certificate.as_bytes()
    }

    /// The values of `mvp_reload_total` with both results, and of `mvp_reload_failing`.
    fn counts(&self, flag: &str) -> (u64, u64, u64) {
        let text = self.report.encoded();
        let value = |start: String| -> u64 {
            let line = text.lines().find(|line| line.starts_with(&start));
            let line = line.unwrap_or_else(|| panic!("no {start} in\n{text}"));
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        let total = |result: &str| {
            value(format!("mvp_reload_total{{flag=\"{flag}\",result=\"{result}\"}}"))
        };
        let failing = value(format!("mvp_reload_failing{{flag=\"{flag}\"}}"));
        (total("ok"), total("failed"), failing)
    }
}

const SERVING: &str = "tls-cert-file";
const PROXY: &str = "proxy-client-cert-file";

#[test]
fn unchanged_files_are_not_reloaded() {
    let place = Place::new("nothing");
    let mut reloader = place.reloader();
    let before = reloader.in_force.tls.current();
    for _ in 0..3 {
        assert_eq!(reloader.look(SystemTime::now()), INTERVAL);
    }
    assert!(Arc::ptr_eq(&before, &reloader.in_force.tls.current()));
    assert_eq!(reloader.counts(SERVING), (0, 0, 0));
}

#[test]
fn a_renamed_file_is_reloaded() {
    let place = Place::new("rename");
    let mut reloader = place.reloader();
    let new = issue(&place.servers, "new");
    place.write_pair("next", &new);
    fs::rename(place.path("next.key"), place.path("server.key")).unwrap();
    fs::rename(place.path("next.crt"), place.path("server.crt")).unwrap();
    let before = reloader.in_force.tls.current();
    reloader.settle();
    assert!(reloader.serves(&new.certificate));
    assert!(!Arc::ptr_eq(&before, &reloader.in_force.tls.current()));
    assert_eq!(reloader.counts(SERVING), (1, 0, 0));
}

#[test]
fn a_reload_that_panics_is_repeated() {
    let place = Place::new("panic");
    let mut reloader = place.reloader();
    let mut restarts = Supervisor::default().watch("reload");
    let (old, new) =
        (fs::read_to_string(place.path("server.crt")).unwrap(), issue(&place.servers, "new"));
    place.write_pair("server", &new);
    assert_eq!(reloader.look_again(SystemTime::now(), &mut restarts), SETTLING);
    reloader.panics = true;
    for pause in [100, 200] {
        let paused = reloader.look_again(SystemTime::now(), &mut restarts);
        assert_eq!(paused, Duration::from_millis(pause));
        assert!(reloader.serves(&old), "the old one is in use");
    }
    reloader.panics = false;
    assert_eq!(reloader.look_again(SystemTime::now(), &mut restarts), INTERVAL);
    assert!(reloader.serves(&new.certificate));
    assert_eq!(reloader.counts(SERVING), (1, 0, 0));
}

#[test]
fn a_file_written_in_place_is_reloaded() {
    let place = Place::new("in-place");
    let mut reloader = place.reloader();
    let new = issue(&place.servers, "new");
    place.write_pair("server", &new);
    reloader.settle();
    assert!(reloader.serves(&new.certificate));
}

#[test]
fn a_volume_that_kubernetes_swaps_is_reloaded() {
    let place = Place::new("volume");
    let version = |name: &str, pair: &Pair| {
        fs::create_dir_all(place.path(name)).unwrap();
        place.write_pair(&format!("{name}/server"), pair);
        let _ = fs::remove_file(place.path("..data_tmp"));
        symlink(name, place.path("..data_tmp")).unwrap();
        fs::rename(place.path("..data_tmp"), place.path("..data")).unwrap();
    };
    version("..first", &issue(&place.servers, "first"));
    for file in ["server.crt", "server.key"] {
        fs::remove_file(place.path(file)).unwrap();
        symlink(format!("..data/{file}"), place.path(file)).unwrap();
    }
    let mut reloader = place.reloader();
    let second = issue(&place.servers, "second");
    version("..second", &second);
    reloader.settle();
    assert!(reloader.serves(&second.certificate));
    assert_eq!(reloader.counts(SERVING), (1, 0, 0));
}

#[test]
fn a_pair_is_reloaded_when_certificate_and_key_match() {
    let place = Place::new("halves");
    let mut reloader = place.reloader();
    let (old, new) =
        (fs::read_to_string(place.path("server.crt")).unwrap(), issue(&place.servers, "new"));
    place.write("server.crt", &new.certificate);
    for _ in 0..5 {
        reloader.settle();
        assert!(reloader.serves(&old));
        assert_eq!(reloader.counts(SERVING), (0, 1, 1), "reported once");
    }
    place.write("server.key", &new.key);
    reloader.settle();
    assert!(reloader.serves(&new.certificate));
    assert_eq!(reloader.counts(SERVING), (1, 1, 0));
}

#[test]
fn a_file_that_still_changes_is_not_used() {
    let place = Place::new("writing");
    let mut reloader = place.reloader();
    let new = [Ca::new("clients").pem(), Ca::new("clients").pem()].concat();
    // Each half is a valid bundle by itself.
    for length in [new.len() / 2, new.len()] {
        place.write("client-ca.crt", &new[..length]);
        assert_eq!(reloader.look(SystemTime::now()), SETTLING);
        assert_eq!(reloader.counts("client-ca-file"), (0, 0, 0));
    }
    reloader.settle();
    assert_eq!(reloader.counts("client-ca-file"), (1, 0, 0));
    assert_eq!(reloader.config.client_ca.as_ref().unwrap().certificates.len(), 2);
}

#[test]
fn an_invalid_file_keeps_the_old_one_and_each_reason_is_reported_once() {
    let place = Place::new("broken");
    let mut reloader = place.reloader();
    let old = place.clients.pem();
    let before = reloader.in_force.tls.current();
    fs::remove_file(place.path("client-ca.crt")).unwrap();
    for (text, failures) in [(None, 1), (Some(""), 2), (Some("nonsense"), 2), (Some(&old[..99]), 3)]
    {
        if let Some(text) = text {
            place.write("client-ca.crt", text);
        }
        reloader.settle();
        reloader.settle();
        assert_eq!(reloader.counts("client-ca-file"), (0, failures, 1), "{text:?}");
    }
    // Other files are reloaded all the same.
    let new = issue(&place.servers, "new");
    place.write_pair("server", &new);
    reloader.settle();
    assert!(reloader.serves(&new.certificate));
    assert!(!Arc::ptr_eq(&before, &reloader.in_force.tls.current()));

    place.write("client-ca.crt", old);
    reloader.settle();
    assert_eq!(reloader.counts("client-ca-file"), (0, 3, 0), "the file is as before");
}

#[test]
fn a_new_client_ca_replaces_the_old_one() {
    let place = Place::new("client-ca");
    let mut reloader = place.reloader();
    let clients = Ca::new("clients");
    place.write("client-ca.crt", clients.pem());
    reloader.settle();
    let trust = Arc::clone(reloader.in_force.tls.current().trust());
    for (ca, known) in [(&clients, true), (&place.clients, false)] {
        let chain = issue(ca, "alice").chain();
        assert_eq!(trust.judge(&chain, UnixTime::now()).user.is_some(), known);
    }
}

#[test]
fn one_ca_file_is_reloaded_for_the_local_server_and_for_peers() {
    let place = Place::new("both");
    let mut reloader = place.reloader();
    let in_force = reloader.in_force.clone();
    let peers = in_force.outbound_peers.unwrap();
    let before = (in_force.outbound_local.current(), peers.current());
    place.write("ca.crt", &[place.servers.pem(), Ca::new("servers").pem()].concat());
    reloader.settle();
    assert_eq!(reloader.counts("peer-ca-file"), (1, 0, 0));
    assert!(!Arc::ptr_eq(&before.0, &in_force.outbound_local.current()));
    assert!(!Arc::ptr_eq(&before.1, &peers.current()));
}

#[test]
fn members_follow_the_peers_file() {
    let place = Place::new("peers");
    let mut reloader = place.reloader();
    let members = reloader.in_force.members.subscribe();
    let ids = || {
        let named = members.borrow().claims.clone();
        named.iter().filter_map(|claim| Some(claim.id.as_ref()?.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(ids(), ["flagged", "b"]);
    place.write("peers.yaml", "peers: [{id: c, address: 'https://10.0.0.3:1'}]");
    reloader.settle();
    assert_eq!(ids(), ["flagged", "c"]);
    for broken in ["peers: [", "peers: [{id: flagged, address: 'https://10.0.0.3:1'}]", ""] {
        place.write("peers.yaml", broken);
        reloader.settle();
        assert_eq!(ids(), ["flagged", "c"]);
    }
    assert_eq!(reloader.counts("peers-file"), (1, 3, 1));
    place.write("peers.yaml", "peers: []");
    reloader.settle();
    assert_eq!(ids(), ["flagged"]);
    assert_eq!(reloader.counts("peers-file"), (2, 3, 0));
}

#[test]
fn the_expiry_of_certificates_is_a_metric_and_a_warning() {
    let place = Place::new("expiry");
    let mut reloader = place.reloader();
    let now = SystemTime::now();
    let in_hours = |hours: u64| now + Duration::from_hours(hours);
    let leaf = Leaf::named("server").valid_until(in_hours(30));
    place.write_pair("server", &place.servers.issue(leaf));
    reloader.settle();
    let text = reloader.report.encoded();
    let until = crate::config::pem::unix_seconds(in_hours(30));
    let line = "mvp_certificate_expiration_timestamp_seconds{flag=\"tls-cert-file\"}";
    assert!(text.contains(&format!("{line} {until}")), "{until} is not in\n{text}");
    for (hours, expected) in [(0, Validity::Good), (7, Validity::Near), (31, Validity::Expired)] {
        reloader.look(in_hours(hours));
        assert_eq!(reloader.expiry.told(SERVING), Some(expected), "after {hours} hours");
        let has_expired = reloader.expiry.metrics.serving_has_expired(in_hours(hours));
        assert_eq!(has_expired, expected == Validity::Expired, "after {hours} hours");
    }
}
