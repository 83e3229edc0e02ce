mod listener_flags;

use std::fs;
use std::path::Path;

use testkit::certificates::{Ca, SERVER_NAME};

use super::*;

/// What kubeadm 1.36 writes, with the files in `folder`; older releases differ in the image, in
/// `creationTimestamp: null` and in the paths of probes.
fn kubeadm(folder: &str, more: &str) -> String {
    let template = include_str!("tests/kubeadm-1.36.yaml");
    template.replace("/etc/kubernetes/pki", folder).replace("    #more\n", more)
}

fn taken(bytes: &str, given: &Given) -> Result<TakenOver, String> {
    let command = manifest::command(bytes.as_bytes()).map_err(|problem| problem.to_string())?;
    let origin = Origin::Manifest("/m/kube-apiserver.yaml".into());
    let found = Found { origin, command, bytes: bytes.into() };
    found.take_over(given).map_err(|mistake| mistake.to_string())
}

/// A pki folder as kubeadm creates it, as far as it is read here.
fn pki() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (ca, front) = (Ca::new("kubernetes"), Ca::new("front-proxy-ca"));
    fs::write(folder.path().join("ca.crt"), ca.pem()).unwrap();
    fs::write(folder.path().join("front-proxy-ca.crt"), front.pem()).unwrap();
    ca.server(&["node-a", SERVER_NAME]).write(folder.path(), "apiserver").unwrap();
    folder
}

fn steered() -> Given {
    Given { steer: true, ..Given::default() }
}

#[test]
fn a_manifest_of_kubeadm() {
    let folder = pki();
    let at = folder.path().to_str().unwrap();
    let taken = taken(&kubeadm(at, ""), &steered()).unwrap();
    let file = |name: &str| vec![format!("{at}/{name}")];
    let one = |text: &str| vec![text.to_owned()];
    let expected = [
        ("advertise-address", one("10.0.0.1")),
        ("client-ca-file", file("ca.crt")),
        ("local-server", one("https://127.0.0.1:6443")),
        ("peer-ca-file", file("ca.crt")),
        ("proxy-client-cert-file", file("front-proxy-client.crt")),
        ("proxy-client-key-file", file("front-proxy-client.key")),
        ("requestheader-allowed-names", one("front-proxy-client")),
        ("requestheader-client-ca-file", file("front-proxy-ca.crt")),
        ("requestheader-extra-headers-prefix", one("X-Remote-Extra-")),
        ("requestheader-group-headers", one("X-Remote-Group")),
        ("requestheader-username-headers", one("X-Remote-User")),
        ("secure-port", one("6443")),
        ("tls-cert-file", file("apiserver.crt")),
        ("tls-private-key-file", file("apiserver.key")),
    ];
    let expected = expected.map(|(name, values)| (name.to_owned(), values));
    assert_eq!(taken.flags, BTreeMap::from(expected));
    assert_eq!(taken.warnings, Vec::<String>::new());
    let from = "/m/kube-apiserver.yaml";
    let named = |key| taken.name(key).unwrap();
    assert_eq!(named("tls-cert-file"), format!("--tls-cert-file of kube-apiserver in {from}"));
    assert_eq!(named("peer-ca-file"), format!("--peer-ca-file, which --like found with {from}"));
    assert_eq!(taken.name("workers"), None);
}

#[test]
fn other_forms_of_manifests_are_the_same() {
    let folder = pki();
    let at = folder.path().to_str().unwrap();
    let plain = kubeadm(at, "");
    let expected = taken(&plain, &steered()).unwrap().flags;
    for (from, to) in [
        // kubeadm before 1.31, other images, and what older kube-apiservers need.
        ("metadata:", "metadata:\n  creationTimestamp: null"),
        ("kube-apiserver:v1.36.4", "kube-apiserver:v1.24.17"),
        ("    - --allow-privileged=true", "    - --insecure-port=0\n    - --allow-privileged"),
        ("    - kube-apiserver", "    - /usr/local/bin/kube-apiserver"),
        ("    - kube-apiserver", "    - /go-runner\n    - --log-file=/x\n    - kube-apiserver"),
        ("    - kube-apiserver\n", "    - kube-apiserver\n    args:\n"),
        ("  - command:\n    - kube-apiserver\n", "  - args:\n"),
        ("--secure-port=6443", "--secure-port\n    - \"6443\""),
        ("--secure-port=6443", "--secure_port=6443"),
        ("--secure-port=6443", "--secure-port=1\n    - --secure-port=6443"),
        ("--secure-port=6443", "--feature-gates=AllAlpha=true,Other=false"),
        ("=X-Remote-Group", "=\"X-Remote-Group\""),
        ("--secure-port=6443", "-v\n    - \"4\"\n    - --secure-port=6443"),
    ] {
        assert!(plain.contains(from), "{from}");
        let changed = taken(&plain.replacen(from, to, 1), &steered());
        let flags = changed.unwrap_or_else(|error| panic!("{to}: {error}")).flags;
        assert_eq!(flags, expected, "{to}");
    }
}

#[test]
fn files_that_are_no_manifests() {
    let container = |text: &str| format!("kind: Pod\nspec:\n  containers:\n{text}");
    for (text, error) in [
        ("a: b: c".to_owned(), "line 1 is not that of a static pod manifest"),
        ("- a".to_owned(), "is not that of a static pod manifest"),
        ("kind: Pod\nspec: 3\n".to_owned(), "line 2 is not that of a static pod manifest"),
        (String::new(), "not"),
        ("kind: Deployment\n".to_owned(), "the kind is \"Deployment\", not Pod"),
        ("spec: {}\n".to_owned(), "the kind is \"\", not Pod"),
        ("kind: Pod\n".to_owned(), "none of its 0 containers is named kube-apiserver"),
        (container("  - name: etcd\n"), "none of its 1 containers is named kube-apiserver"),
        (
            container("  - name: kube-apiserver\n  - command: [/bin/kube-apiserver]\n"),
            "2 containers are named kube-apiserver or start it",
        ),
        (
            container(
                "  - name: kube-apiserver\n    command: [sh, -c, exec kube-apiserver --v=2]\n",
            ),
            "the container starts \"sh\", and its command does not name kube-apiserver",
        ),
    ] {
        let problem = manifest::command(text.as_bytes()).unwrap_err().to_string();
        assert!(problem.contains(error), "{text}: {problem}");
    }
    assert!(manifest::command(&[0xff, 0]).unwrap_err().to_string().starts_with("not text"));
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.yaml");
    fs::write(&large, "#".repeat(2 << 20)).unwrap();
    let error = Found::manifest(&large).unwrap_err().to_string();
    assert!(error.starts_with("--like: ") && error.contains("larger than 1 MiB"), "{error}");
    let error = Found::manifest(Path::new("/nowhere.yaml")).unwrap_err().to_string();
    assert!(error.starts_with("--like: /nowhere.yaml does not exist"), "{error}");
}

#[test]
fn sidecars_do_not_count() {
    let text = "kind: Pod\nspec:\n  containers:\n  - {name: kms, command: [kms, --secure-port=1]}\n  \
                - {name: api, command: [/x/kube-apiserver, --secure-port=2]}\n";
    let command = manifest::command(text.as_bytes()).unwrap();
    assert_eq!(command.arguments, ["--secure-port=2"]);
}

#[test]
fn variables_are_resolved_as_the_kubelet_does() {
    let text = |argument: &str| {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    args: ['{argument}']\n    \
             env:\n    - {{name: A, value: one}}\n    - {{name: B, value: $(A)-two}}\n    \
             - {{name: EMPTY}}\n    - name: IP\n      valueFrom: {{fieldRef: {{fieldPath: x}}}}\n"
        )
    };
    for (argument, expected) in [
        ("--x=$(A)", "--x=one"),
        ("--x=$(B)/$(A)$(EMPTY)", "--x=one-two/one"),
        ("--x=$(IP)", "--x=$(IP)"),
        ("--x=$(NONE)", "--x=$(NONE)"),
        ("--x=$$(A)", "--x=$(A)"),
        ("--x=$A $", "--x=$A $"),
        ("--x=$(A", "--x=$(A"),
    ] {
        let command = manifest::command(text(argument).as_bytes()).unwrap();
        assert_eq!(command.arguments, [expected]);
    }
    let unresolved = taken(&text("--client-ca-file=$(IP)/ca.crt"), &steered()).unwrap_err();
    assert_eq!(
        unresolved,
        "--client-ca-file of kube-apiserver in /m/kube-apiserver.yaml: $(IP) is not a plain value in \
         the environment of the container; give --client-ca-file to mvp serve"
    );
    let set = Given { steer: true, ..Given::with(&["client-ca-file"]) };
    assert!(taken(&text("--client-ca-file=$(IP)/ca.crt"), &set).is_ok());
    // The default is nearly always the same.
    let address = taken(&text("--advertise-address=$(IP)"), &steered()).unwrap();
    assert!(!address.flags.contains_key("advertise-address"));
    assert!(address.warnings[0].contains("address of the default interface"), "{address:?}");
}

#[test]
fn paths_are_those_of_the_host() {
    let text = "kind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    workingDir: /srv\n    \
                args: [--client-ca-file=/pki/ca.crt, --tls-cert-file=/pki/own/a.crt,\n      \
                --tls-private-key-file=rel.key, --requestheader-client-ca-file=/one/file.crt,\n      \
                '--tls-sni-cert-key=/pki/x.crt,/pki/x.key:*.example']\n    volumeMounts:\n    \
                - {name: pki, mountPath: /pki}\n    - {name: own, mountPath: /pki/own, subPath: sub}\n    \
                - {name: file, mountPath: /one/file.crt}\n    - {name: secret, mountPath: /srv}\n  \
                volumes:\n  - {name: pki, hostPath: {path: /host/pki}}\n  \
                - {name: own, hostPath: {path: /host/own}}\n  \
                - {name: file, hostPath: {path: /host/f.crt}}\n  - {name: secret}\n";
    let taken = taken(text, &steered()).unwrap();
    for (flag, path) in [
        ("client-ca-file", "/host/pki/ca.crt"),
        ("tls-cert-file", "/host/own/sub/a.crt"),
        ("tls-private-key-file", "/srv/rel.key"),
        ("requestheader-client-ca-file", "/host/f.crt"),
        ("tls-sni-cert-key", "/host/pki/x.crt,/host/pki/x.key:*.example"),
    ] {
        assert_eq!(taken.flags[flag], [path], "{flag}");
    }
}

#[test]
fn flags_are_read_as_kube_apiserver_reads_them() {
    let flags = ServerFlags::of(&[
        "--allow-privileged",
        "--etcd-servers=https://a:1",
        "--tls_cert_file",
        "--odd.crt",
        "--unknown",
        "value",
        "--etcd-servers",
        "https://b:1,https://c:1",
        "-v=2",
        "--",
        "--secure-port=1",
    ])
    .unwrap();
    assert_eq!(flags.all("etcd-servers"), ["https://a:1", "https://b:1,https://c:1"]);
    // Its flag library takes the next word, whatever it is.
    assert_eq!(flags.last("tls-cert-file").unwrap(), Some("--odd.crt"));
    assert_eq!((flags.all("unknown"), flags.all("allow-privileged")), (vec!["value"], vec![""]));
    assert_eq!(flags.last("secure-port").unwrap(), None);
    let error = ServerFlags::of(&["--client-ca-file"]).unwrap_err().to_string();
    let expected = "--client-ca-file of kube-apiserver in m.yaml: has no value; correct it there";
    assert_eq!(error, expected);
}

#[test]
fn etcd_is_taken_over_only_for_membership_in_etcd() {
    let folder = pki();
    let text = kubeadm(folder.path().to_str().unwrap(), "");
    let without = taken(&text, &steered()).unwrap().flags;
    assert!(!without.keys().any(|flag| flag.starts_with("etcd-")), "{without:?}");
    let flags = taken(&text, &Given { etcd_membership: true, ..steered() }).unwrap().flags;
    assert_eq!(flags["etcd-servers"], ["https://127.0.0.1:2379"]);
    assert!(flags["etcd-keyfile"][0].ends_with("/apiserver-etcd-client.key"));
    assert!(flags.contains_key("etcd-cafile") && flags.contains_key("etcd-certfile"));
}

/// Kubernetes' own proxy may be off because `mvp` takes its place.
#[test]
fn the_gate_of_kubernetes_own_proxy_is_not_taken_over() {
    let folder = pki();
    let gates = "    - --feature-gates=UnknownVersionInteroperabilityProxy=false\n";
    let flags = taken(&kubeadm(folder.path().to_str().unwrap(), gates), &steered()).unwrap().flags;
    assert!(!flags.contains_key("feature-gates"), "{flags:?}");
}

#[test]
fn what_cannot_be_taken_over_is_named() {
    let folder = pki();
    let more = "    - --disable-http2-serving\n    - --tls-curve-preferences=29,23\n    \
                - --goaway-chance=0.001\n    - --http2-max-streams-per-connection=9\n";
    let taken = taken(&kubeadm(folder.path().to_str().unwrap(), more), &steered()).unwrap();
    let from = "of kube-apiserver in /m/kube-apiserver.yaml is not taken over";
    assert_eq!(
        taken.warnings,
        [
            format!("--disable-http2-serving {from}: mvp offers HTTP/2, too"),
            format!("--tls-curve-preferences {from}: mvp offers its own key exchange groups"),
            format!(
                "--goaway-chance {from}: mvp has a flag of that name of its own, for its clients"
            ),
        ]
    );
    assert!(!taken.flags.contains_key("goaway-chance"));
    assert_eq!(taken.flags["http2-max-streams-per-connection"], ["9"]);
}

#[test]
fn the_peer_ca_is_the_one_that_verifies_the_serving_certificate() {
    let folder = pki();
    let path = |name: &str| folder.path().join(name);
    let at = folder.path().to_str().unwrap();
    let peer_ca = |text: &str, given: &Given| {
        taken(text, given).map(|taken| taken.peer_ca.map(|found| (found.flag, found.path)))
    };
    let expected = Some(("client-ca-file", path("ca.crt")));
    assert_eq!(peer_ca(&kubeadm(at, ""), &steered()), Ok(expected));

    // RKE2 has a separate CA for servers.
    let servers = Ca::new("servers");
    fs::write(path("server-ca.crt"), servers.pem()).unwrap();
    servers.server(&[SERVER_NAME]).write(folder.path(), "apiserver").unwrap();
    let more = format!("    - --kubelet-certificate-authority={at}/server-ca.crt\n");
    let expected = Some(("kubelet-certificate-authority", path("server-ca.crt")));
    assert_eq!(peer_ca(&kubeadm(at, &more), &steered()), Ok(expected));

    let error = peer_ca(&kubeadm(at, ""), &steered()).unwrap_err();
    assert!(error.starts_with("--peer-ca-file: missing, and kube-apiserver"), "{error}");
    assert!(error.contains(&format!("--client-ca-file {at}/ca.crt (")), "{error}");
    let set = Given { steer: true, ..Given::with(&["peer-ca-file"]) };
    assert_eq!(peer_ca(&kubeadm(at, ""), &set), Ok(None));

    // The right CA, but not the name that members verify.
    servers.server(&["node-a"]).write(folder.path(), "apiserver").unwrap();
    assert!(peer_ca(&kubeadm(at, &more), &steered()).is_err());

    // kube-apiserver's own flag is taken as it is.
    let own = format!("    - --peer-ca-file={at}/any.crt\n");
    let taken = taken(&kubeadm(at, &own), &steered()).unwrap();
    assert_eq!(taken.flags["peer-ca-file"], [format!("{at}/any.crt")]);
}

#[test]
fn the_process_of_kube_apiserver() {
    let proc = tempfile::tempdir().unwrap();
    let process_of = |id: &str, command: &str, status: &str| {
        fs::create_dir(proc.path().join(id)).unwrap();
        fs::write(proc.path().join(id).join("cmdline"), command).unwrap();
        fs::write(proc.path().join(id).join("status"), status).unwrap();
    };
    let root = "Name:\tx\nUid:\t0\t0\t0\t0\nGid:\t0\nNSpid:\t7\n";
    let process = |id: &str, command: &str| process_of(id, command, root);
    let error = || process::find(proc.path()).unwrap_err().to_string();
    process("1", "/sbin/init\0");
    process("2", "");
    process("self", "kube-apiserver\0--secure-port=1\0");
    process("3", "vi\0kube-apiserver\0");
    let told = error();
    assert!(told.contains("nor a process named kube-apiserver; give the manifest"), "{told}");
    // Others can take any name: somebody else, a pod with a root of its own, one that says nothing.
    let name = "kube-apiserver\0--client-ca-file=/dev/shm/mine.crt\0";
    process_of("20", name, &root.replace("Uid:\t0", "Uid:\t1000"));
    assert!(
        error().contains(
            "process 20 is named kube-apiserver, but is in a container or of another user"
        )
    );
    process_of("21", name, &root.replace("NSpid:\t7", "NSpid:\t7\t1"));
    process_of("22", name, "");
    process("40", "/usr/local/bin/k3s server\0");
    assert!(error().contains("k3s (process 40) runs kube-apiserver as a part of itself"));
    let command = "/usr/bin/kube-apiserver\0--secure-port=7\0--client-ca-file=ca.crt\0";
    process("50", command);
    let found = process::find(proc.path()).unwrap();
    assert_eq!((found.origin, &*found.bytes), (Origin::Process(50), command.as_bytes()));
    assert_eq!(found.command.arguments, ["--secure-port=7", "--client-ca-file=ca.crt"]);
    let mut id = 49;
    let mut now = || process::command_line_now(proc.path(), &mut id, command.as_bytes());
    assert_eq!(now().unwrap(), command.as_bytes(), "it restarted with the same flags");
    assert_eq!(id, 50);
    let mut now = || process::command_line_now(proc.path(), &mut id, b"other");
    process("60", "kube-apiserver\0");
    assert!(error().contains("several processes named kube-apiserver: 50, 60;"), "{}", error());
    assert!(now().is_err());
}
