//! Manifests are valid, consistent, and have flags that `mvp` accepts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::Value;

use super::*;
use crate::cli::{self, Invocation, Stop};

/// A flag that names a file of the node, which is not here.
const OF_THE_NODE: &str = "--like";

fn of(kind: ManifestKind) -> ManifestsArgs {
    ManifestsArgs { kind, image: None, servers: vec![], proxy: None, api_version: None }
}

/// Everything that the command can print, and the file with the same content.
fn all() -> Vec<(ManifestsArgs, Option<String>)> {
    let mut all = Vec::new();
    for kind in ManifestKind::value_variants() {
        let name = match kind {
            ManifestKind::Daemonset => "mvp.yaml",
            ManifestKind::StaticPod => "static-pod.yaml",
            ManifestKind::Systemd => "mvp.service",
            ManifestKind::NodeLocal => "node-local.yaml",
            ManifestKind::NodeLocalStaticPod => "node-local-static-pod.yaml",
            ManifestKind::Before => "before.yaml",
            ManifestKind::Rbac => {
                all.push((of(*kind), None));
                continue;
            }
            ManifestKind::Kubeadm => {
                for (proxy, version, name) in [
                    (Proxy::Mvp, KubeadmVersion::V1beta3, "kubeadm/mvp-v1beta3.yaml"),
                    (Proxy::Mvp, KubeadmVersion::V1beta4, "kubeadm/mvp-v1beta4.yaml"),
                    (Proxy::Kubernetes, KubeadmVersion::V1beta3, "kubeadm/kubernetes-v1beta3.yaml"),
                    (Proxy::Kubernetes, KubeadmVersion::V1beta4, "kubeadm/kubernetes-v1beta4.yaml"),
                ] {
                    let (proxy, api_version) = (Some(proxy), Some(version));
                    let args = ManifestsArgs { proxy, api_version, ..of(*kind) };
                    all.push((args, Some(name.to_owned())));
                }
                continue;
            }
        };
        all.push((of(*kind), Some(name.to_owned())));
    }
    all
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(name: &str) -> String {
    fs::read_to_string(deploy().join(name)).unwrap()
}

/// The YAML documents of a manifest.
fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

fn yaml() -> Vec<(ManifestKind, Vec<Value>)> {
    let all = all().into_iter().filter(|(args, _)| args.kind != ManifestKind::Systemd);
    all.map(|(args, _)| (args.kind, documents(&manifest(&args).unwrap()))).collect()
}

/// The pods in these documents.
fn pods(documents: &[Value]) -> Vec<&Value> {
    let pods = documents.iter().filter_map(|document| match document["kind"].as_str() {
        Some("Pod") => Some(&document["spec"]),
        Some("DaemonSet" | "Deployment") => Some(&document["spec"]["template"]["spec"]),
        _ => None,
    });
    pods.collect()
}

fn strings(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_file_in_deploy_is_what_the_command_prints() {
    let mut printed = BTreeSet::from(["rbac.yaml".to_owned(), "flowschema.yaml".to_owned()]);
    for (args, name) in all() {
        let Some(name) = name else { continue };
        // A new version must be written into the files, too: this is the image by default.
        let args = match check(&ManifestsArgs { image: Some(IMAGE.to_owned()), ..args.clone() }) {
            Ok(()) => ManifestsArgs { image: Some(IMAGE.to_owned()), ..args },
            Err(_) => args,
        };
        let text = manifest(&args).unwrap();
        assert_eq!(text, read(&name), "{name}");
        assert_eq!(text.contains("image: "), args.image.is_some(), "{name}");
        assert_eq!(text.contains(&format!("image: {IMAGE}\n")), args.image.is_some(), "{name}");
        printed.insert(name);
    }
    // Not about the installation.
    printed.insert("prometheus-rules.yaml".to_owned());
    let mut files = BTreeSet::new();
    for folder in ["", "kubeadm/"] {
        for entry in fs::read_dir(deploy().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".yaml") || name.ends_with(".service") {
                files.insert(format!("{folder}{name}"));
            }
        }
    }
    assert_eq!(files, printed, "a file that no command prints, or that is missing");
}

#[test]
fn the_daemonset_contains_the_rights_of_gateways() {
    let rights = manifest(&of(ManifestKind::Rbac)).unwrap();
    assert!(read("mvp.yaml").contains(&format!("---\n{rights}")), "copy both files into mvp.yaml");
}

#[test]
fn the_right_to_write_leases_is_deleted_before_their_owner() {
    for kind in [ManifestKind::Daemonset, ManifestKind::Rbac] {
        let documents = documents(&manifest(&of(kind)).unwrap());
        let place = |kind: &str| {
            let here = |document: &Value| {
                let metadata = &document["metadata"];
                document["kind"] == kind
                    && metadata["name"] == "mixed-version-proxy"
                    && metadata["namespace"] == "kube-system"
            };
            documents.iter().position(here).unwrap()
        };
        assert!(place("RoleBinding") < place("Lease"), "{kind:?}");
        let labels = &documents[place("Lease")]["metadata"]["labels"];
        assert_eq!(labels["mixed-version-proxy/member"], "owner", "{kind:?}");
    }
}

#[test]
fn each_document_is_an_object_with_a_name() {
    for (kind, documents) in yaml() {
        assert!(!documents.is_empty(), "{kind:?}");
        for document in documents {
            assert!(document["apiVersion"].is_string(), "{kind:?}: {document}");
            if kind != ManifestKind::Kubeadm {
                assert!(document["metadata"]["name"].is_string(), "{kind:?}: {document}");
            }
        }
    }
}

#[test]
fn values_are_filled_in_everywhere() {
    let servers = ["https://192.0.2.7:6443", "https://[2001:db8::8]:443"];
    let servers = servers.map(|url| cli::server_url(url).unwrap()).to_vec();
    for (args, name) in all() {
        let image = Some("registry.example.com/team/mvp@sha256:00ff".to_owned());
        let given = ManifestsArgs { image, servers: servers.clone(), ..args };
        let Ok(text) = manifest(&given) else { continue };
        let images: Vec<&str> =
            text.lines().filter(|line| line.trim_start().starts_with("image: ")).collect();
        assert!(!images.is_empty(), "{name:?}");
        for line in images {
            assert!(line.ends_with(" registry.example.com/team/mvp@sha256:00ff"), "{line}");
        }
        let line = "- --servers=https://192.0.2.7:6443,https://[2001:db8::8]:443\n";
        assert_eq!(text.matches(line).count(), 1, "{name:?}");
        assert!(!text.contains(&format!("- --servers={SERVERS}")), "{name:?}");
        documents(&text);
    }
}

#[test]
fn flags_of_another_kind_are_refused() {
    let image = ManifestsArgs { image: Some("mvp:1".to_owned()), ..of(ManifestKind::Systemd) };
    let expected = "--image: is only for daemonset, static-pod, node-local, \
                    node-local-static-pod and before; leave it out";
    assert_eq!(manifest(&image).unwrap_err().to_string(), expected);
    let servers = vec![cli::server_url("https://192.0.2.7:6443").unwrap()];
    let servers = ManifestsArgs { servers, ..of(ManifestKind::Daemonset) };
    let expected = "--servers: is only for node-local, node-local-static-pod and before; leave \
                    it out";
    assert_eq!(manifest(&servers).unwrap_err().to_string(), expected);
    let proxy = ManifestsArgs { proxy: Some(Proxy::Mvp), ..of(ManifestKind::Rbac) };
    let expected = "--for: is only for kubeadm; leave it out";
    assert_eq!(manifest(&proxy).unwrap_err().to_string(), expected);
    let version = Some(KubeadmVersion::V1beta3);
    let version = ManifestsArgs { api_version: version, ..of(ManifestKind::Before) };
    let expected = "--api-version: is only for kubeadm; leave it out";
    assert_eq!(manifest(&version).unwrap_err().to_string(), expected);
}

/// Parses a command line as `mvp` does, without the flag that reads a file of the node.
fn parse(arguments: Vec<String>) -> Result<Invocation, Stop> {
    let command = cli::command();
    let serve = command.find_subcommand("serve").unwrap();
    assert!(serve.get_arguments().any(|flag| flag.get_long() == OF_THE_NODE.strip_prefix("--")));
    let arguments = arguments.into_iter().filter(|flag| !flag.starts_with(OF_THE_NODE));
    cli::parse(std::iter::once("mvp".to_owned()).chain(arguments).map(OsString::from).collect())
}

#[test]
fn every_command_line_is_accepted() {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (_, documents) in yaml() {
        for container in pods(&documents).iter().flat_map(|pod| pod["containers"].as_array()) {
            for container in container {
                let arguments = strings(&container["args"]);
                assert_eq!(arguments[0], "serve");
                lines.push(arguments);
                for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
                    let command = strings(&container[probe]["exec"]["command"]);
                    if let Some((program, arguments)) = command.split_first() {
                        assert_eq!(program, "mvp");
                        lines.push(arguments.to_vec());
                    }
                }
            }
        }
    }
    let unit = manifest(&of(ManifestKind::Systemd)).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/mvp "));
    lines.push(start.unwrap().split(' ').map(str::to_owned).collect());
    assert!(lines.len() >= 9, "{lines:?}");
    for line in lines {
        let outcome = parse(line.clone());
        assert!(
            matches!(outcome, Ok(Invocation::Serve(..) | Invocation::Status(_))),
            "{line:?}: {outcome:?}"
        );
    }
    assert!(parse(vec!["serve".to_owned(), "--no-such-flag".to_owned()]).is_err());
}

/// With host network a port is a host port, which a second pod on the node cannot have: a replacement
/// with a surge would wait for ever.
#[test]
fn pods_with_host_network_declare_no_ports() {
    let mut found = 0;
    for (kind, documents) in yaml() {
        for pod in pods(&documents).into_iter().filter(|pod| pod["hostNetwork"] == true) {
            found += 1;
            for container in pod["containers"].as_array().unwrap() {
                assert!(container.get("ports").is_none(), "{kind:?}");
            }
        }
    }
    assert_eq!(found, 4);
}

#[test]
fn containers_have_the_least_rights_and_mount_what_exists() {
    for (kind, documents) in yaml() {
        for pod in pods(&documents) {
            let no_volumes = Vec::new();
            let volumes = pod["volumes"].as_array().unwrap_or(&no_volumes);
            let volumes: BTreeSet<_> = volumes.iter().map(|it| it["name"].as_str()).collect();
            for container in pod["containers"].as_array().unwrap() {
                let rights = &container["securityContext"];
                assert_eq!(rights["allowPrivilegeEscalation"], false, "{kind:?}");
                assert_eq!(rights["readOnlyRootFilesystem"], true, "{kind:?}");
                assert_eq!(rights["seccompProfile"]["type"], "RuntimeDefault", "{kind:?}");
                assert_eq!(strings(&rights["capabilities"]["drop"]), ["ALL"], "{kind:?}");
                let steers = strings(&container["args"]).iter().any(|flag| flag == "--steer");
                let added: &[&str] = if steers { &["BPF", "NET_ADMIN"] } else { &[] };
                assert_eq!(strings(&rights["capabilities"]["add"]), added, "{kind:?}");
                let mounts = container["volumeMounts"].as_array().unwrap_or(&no_volumes);
                let mounted: BTreeSet<_> = mounts.iter().map(|it| it["name"].as_str()).collect();
                assert_eq!(mounted, volumes, "{kind:?}");
                for mount in mounts {
                    let path = mount["mountPath"].as_str().unwrap();
                    let is_etc = path.starts_with("/etc/");
                    assert_eq!(mount["readOnly"] == true, is_etc, "{kind:?}: {path}");
                }
            }
        }
    }
}

#[test]
fn the_unit_has_the_least_rights() {
    let unit = manifest(&of(ManifestKind::Systemd)).unwrap();
    for directive in [
        "CapabilityBoundingSet=CAP_BPF CAP_NET_ADMIN",
        "NoNewPrivileges=yes",
        "LimitCORE=1",
        "UMask=0077",
        "SystemCallFilter=@system-service bpf",
        "SystemCallArchitectures=native",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
        "RestrictNamespaces=yes",
        "RestrictSUIDSGID=yes",
        "MemoryDenyWriteExecute=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "PrivateDevices=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "ProtectKernelLogs=yes",
    ] {
        assert!(unit.lines().any(|line| line == directive), "{directive}");
    }
    for key in ["ca.key", "sa.key", "front-proxy-ca.key"] {
        assert!(unit.contains(&format!("-/etc/kubernetes/pki/{key}")), "{key} is within reach");
    }
}

#[test]
fn load_balancers_find_members_and_keep_them_on_disk() {
    use ManifestKind::{Before, NodeLocal, NodeLocalStaticPod};
    for kind in [Before, NodeLocal, NodeLocalStaticPod] {
        let documents = documents(&manifest(&of(kind)).unwrap());
        let pod = pods(&documents)[0];
        let container = &pod["containers"][0];
        let flags = strings(&container["args"]);
        let value =
            |name: &str| flags.iter().find_map(|flag| flag.strip_prefix(name)?.strip_prefix('='));
        let mount = |folder: &str| {
            let mounts = container["volumeMounts"].as_array().unwrap();
            mounts.iter().find(|mount| mount["mountPath"] == folder)
        };
        let cache = Path::new(value("--members-cache").unwrap()).parent().unwrap();
        assert!(mount(cache.to_str().unwrap()).is_some(), "{kind:?}");
        // EndpointSlices are read with the certificate of the front proxy, or with a token.
        let finds = match value("--service-account") {
            Some(folder) => mount(folder).is_some(),
            None => {
                value("--membership") == Some("endpoints")
                    || pod["automountServiceAccountToken"] != false
            }
        };
        assert!(finds, "{kind:?}");
    }
}
