//! `mvp skew` against the servers of `mvp demo`. What each serves comes from the demo's own list.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::process::Signal;

use crate::demo::Demo;
use crate::folder::{Folder, Outcome, outcome};

/// A demo, and the first line of its output.
struct Place {
    folder: Folder,
    demo: Demo,
    described: Value,
}

impl Place {
    fn new() -> Place {
        let folder = Folder::new();
        let mut demo = Demo::start(&folder, &["-o", "json", "--port-base", "0"]);
        let described = serde_json::from_str(&demo.line()).unwrap();
        Place { folder, demo, described }
    }

    fn kubeconfig(&self) -> &str {
        self.described["kubeconfig"].as_str().unwrap()
    }

    /// Runs `mvp skew` with the demo's kubeconfig.
    fn skew(&self, more: &[&str]) -> Outcome {
        let first = ["skew", "--kubeconfig", self.kubeconfig()];
        self.folder.mvp(&[&first[..], more].concat())
    }

    /// The resources of a server, as `NAME.VERSION.GROUP`.
    fn serves(&self, place: usize) -> BTreeSet<String> {
        let names = self.described["servers"][place]["serves"].as_array().unwrap();
        names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    /// The kubeconfig with a change, in a file of the folder.
    fn changed(&self, change: impl FnOnce(&mut Value)) {
        let mut config: Value =
            serde_json::from_str(&fs::read_to_string(self.kubeconfig()).unwrap()).unwrap();
        change(&mut config);
        self.folder.write("changed", config.to_string());
    }
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// The names in a list of APIs, subresources left out, as the demo writes them.
fn names(apis: &Value) -> BTreeSet<String> {
    let text = |api: &Value, key: &str| api[key].as_str().unwrap_or_default().to_owned();
    let whole = apis.as_array().unwrap().iter().filter(|api| api["subresource"].is_null());
    let name = |api: &Value| {
        let name =
            format!("{}.{}.{}", text(api, "resource"), text(api, "version"), text(api, "group"));
        name.trim_end_matches('.').to_owned()
    };
    whole.map(name).collect()
}

#[test]
fn the_differences_are_those_of_the_servers() {
    let place = Place::new();
    let [a, b, c] = [0, 1, 2].map(|server| place.serves(server));
    let all: BTreeSet<String> = a.iter().chain(&b).chain(&c).cloned().collect();
    let everywhere = |name: &&String| a.contains(*name) && b.contains(*name) && c.contains(*name);
    let differ: BTreeSet<String> = all.iter().filter(|name| !everywhere(name)).cloned().collect();
    assert!(differ.contains("jobs.v1.batch"), "{differ:?}");

    let found = place.skew(&["--all-contexts", "-o", "json"]);
    assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""));
    let found = json(&found);
    // The context of the viewer leads to a server that is there already.
    let servers = found["servers"].as_array().unwrap();
    let column = |server: &Value| (server["name"].clone(), server["resources"].clone());
    let expected = [("server-a", a.len()), ("server-b", b.len()), ("server-c", c.len())];
    assert_eq!(
        servers.iter().map(column).collect::<Vec<_>>(),
        expected.map(|(n, r)| (json!(n), json!(r)))
    );
    assert_eq!(names(&found["apis"]), differ);
    let jobs = found["apis"].as_array().unwrap().iter().find(|api| api["resource"] == "jobs");
    assert_eq!(jobs.unwrap()["servers"]["server-b"], Value::Null);
    let every = json(&place.skew(&["--all-contexts", "--all-apis", "-o", "json"]));
    assert_eq!(names(&every["apis"]), all);

    let table = place.skew(&["--context", "server-a", "--context", "server-b"]).stdout;
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["GROUP/VERSION", "RESOURCE", "server-a", "server-b"]);
    assert_eq!(lines[1], ["v1.34.10", "v1.34.10"]);
    assert!(lines.contains(&vec!["batch/v1", "jobs", "yes", "-"]), "{table}");
}

#[test]
fn a_step_that_strands_something_ends_with_3() {
    let place = Place::new();
    let [a, b] = [0, 1].map(|server| place.serves(server));
    let pair = ["--context", "server-a,server-b", "-o", "json"];
    let lost = place.skew(&[&pair[..], &["--without", "server-a"]].concat());
    assert_eq!(lost.code, Some(3), "{lost:?}");
    let lost = json(&lost);
    assert_eq!(names(&lost["without"]["lost"]), a.difference(&b).cloned().collect());
    assert_eq!(lost["without"]["lost"][0]["objects"], 0, "they are counted");
    let safe = place.skew(&["--context", "server-a,server-b", "--without", "server-b"]);
    assert_eq!((safe.code, safe.stderr.as_str()), (Some(0), ""));
    assert!(safe.stdout.starts_with("Without server-b, nothing is lost"), "{}", safe.stdout);

    let next = place.skew(&["--context", "server-a", "--with", "1.36", "-o", "json"]);
    assert_eq!(next.code, Some(0), "{next:?}");
    let next = json(&next);
    assert!(
        names(&next["with"]["added"])
            .contains("mutatingadmissionpolicies.v1.admissionregistration.k8s.io")
    );
    assert_eq!(next["with"]["removed"], json!([]));
    // Back to 1.34, server-c loses what is new in 1.36. Nothing uses it.
    let back = place.skew(&["--context", "server-c", "--with", "1.34", "-o", "json"]);
    assert_eq!(back.code, Some(0), "{back:?}");
    let [a, c] = [0, 2].map(|server| place.serves(server));
    assert_eq!(names(&json(&back)["with"]["removed"]), c.difference(&a).cloned().collect());

    let unknown = place.skew(&["--context", "server-a,server-b", "--without", "node-9"]);
    unknown.is_mistake(
        2,
        "--without: there is no server \"node-9\"; the servers are server-a, server-b",
    );
    place
        .skew(&["--with", "2.0"])
        .is_mistake(2, "--with: \"2.0\" is not a recorded release; use 1.34, 1.35, 1.36");
}

#[test]
fn a_server_that_does_not_answer_is_never_an_empty_column() {
    let place = Place::new();
    // Nobody listens there once it is dropped.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    place.changed(|config| {
        config["clusters"][1]["cluster"]["server"] = json!(format!("https://{closed}"));
    });
    let run = |more: &[&str]| {
        let first = ["skew", "--kubeconfig=changed", "--all-contexts"];
        place.folder.mvp(&[&first[..], more].concat())
    };
    let found = run(&["-o", "json"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    let found = json(&found);
    assert_eq!(found["servers"][1]["resources"], Value::Null);
    let problem = found["servers"][1]["problem"].as_str().unwrap();
    assert!(problem.contains("cannot be reached"), "{problem}");
    assert!(!names(&found["apis"]).contains("jobs.v1.batch"), "only server-b lacks it");
    let table = run(&[]).stdout;
    assert!(table.contains("\nserver-b: no answer: "), "{table}");
    let lost = run(&["--without", "server-b"]);
    assert_eq!((lost.code, lost.stdout.as_str()), (Some(1), ""));
    assert!(lost.stderr.starts_with("error: --without: it is unknown what server-b serves"));

    // A wrong CA and a rejected token are problems of that server alone.
    place.changed(|config| {
        config["clusters"][0]["cluster"]["certificate-authority"] =
            json!(place.folder.path("ca.crt"));
        config["users"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "nobody", "user": {"token": "no"}}));
        config["contexts"][2]["context"]["user"] = json!("nobody");
    });
    let found = json(&run(&["-o", "json"]));
    let problem = |server: usize| found["servers"][server]["problem"].to_string();
    assert!(problem(0).contains("was issued by"), "{}", problem(0));
    assert_eq!(found["servers"][1]["problem"], Value::Null);
    assert!(problem(2).contains("status 401"), "{}", problem(2));
}

#[test]
fn kubectl_calls_it_by_a_link_with_the_kubeconfig_of_the_user() {
    let place = Place::new();
    let link = place.folder.path("kubectl-mvp");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mvp"), &link).unwrap();
    let call = |more: &[&str]| {
        let mut command = Command::new(&link);
        command.arg("skew").args(more).stdin(Stdio::null());
        command.current_dir(place.folder.path("")).env_remove("KUBECONFIG");
        command
    };
    let listed = format!("missing:{}", place.kubeconfig());
    let found = outcome(call(&["--all-contexts"]).env("KUBECONFIG", listed).output().unwrap());
    assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""));
    assert!(found.stdout.contains("server-c"), "{}", found.stdout);
    let home = place.folder.path("home");
    fs::create_dir_all(home.join(".kube")).unwrap();
    fs::copy(place.kubeconfig(), home.join(".kube/config")).unwrap();
    let own = outcome(call(&["--context=server-b,server-c"]).env("HOME", &home).output().unwrap());
    assert_eq!((own.code, own.stderr.as_str()), (Some(0), ""));
    let none = outcome(call(&[]).env("HOME", place.folder.path("nobody")).output().unwrap());
    let sentence = "there is no kubeconfig; give --kubeconfig=FILE, or set KUBECONFIG";
    none.is_mistake(1, sentence);
    let help = outcome(call(&["--help"]).output().unwrap());
    assert!(help.stdout.contains("Usage: kubectl mvp skew "), "{}", help.stdout);

    // By name, mvp itself asks the gateway of this host.
    let missing = place.folder.path("no.sock");
    let gateway = place.folder.mvp(&["skew", "--admin-socket", missing.to_str().unwrap()]);
    assert_eq!(gateway.code, Some(1));
    assert!(gateway.stderr.contains("or ask servers directly, with --kubeconfig or --server"));
}

#[test]
fn servers_are_asked_by_address_with_the_credentials_of_flags_or_of_a_plugin() {
    let place = Place::new();
    let files = std::path::Path::new(place.kubeconfig()).parent().unwrap();
    let url = |server: usize| place.described["servers"][server]["url"].as_str().unwrap();
    let ca = format!("--certificate-authority={}", files.join("ca.crt").display());
    place.folder.write("token", "demo-viewer\n");
    let urls = [format!("--server={}", url(0)), format!("--server={}", url(2))];
    let flags = ["skew", &urls[0], &urls[1], &ca];
    let found = place.folder.mvp(&[&flags[..], &["--token-file=token", "-o", "json"]].concat());
    assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""));
    let [a, c] = [0, 2].map(|server| place.serves(server));
    assert_eq!(names(&json(&found)["apis"]), c.symmetric_difference(&a).cloned().collect());
    let nobody = place.folder.mvp(&flags);
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    let bare = place.folder.mvp(&flags[..3]);
    assert!(bare.stderr.contains("give --certificate-authority"), "{}", bare.stderr);

    // A program gives the token.
    let program = place.folder.path("give-token");
    fs::write(&program, "#!/bin/sh\necho '{\"status\": {\"token\": \"demo-viewer\"}}'\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    place.changed(|config| {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": program});
        config["users"][0]["user"] = json!({ "exec": exec });
    });
    let found = place.folder.mvp(&["skew", "--kubeconfig=changed", "--context=server-a,server-b"]);
    assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_watch_in_a_pipe_prints_a_line_for_each_change() {
    let mut place = Place::new();
    let mut command = place.folder.command(&["skew", "--kubeconfig", place.kubeconfig()]);
    let mut watch =
        command.args(["--all-contexts", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut three = || [0, 1, 2].map(|_| lines.next().unwrap().unwrap());
    let [a, b, c] = [0, 1, 2].map(|server| place.serves(server).len());
    let expected = [("a", "v1.34.10", a), ("b", "v1.34.10", b), ("c", "v1.36.4", c)];
    assert_eq!(
        three(),
        expected
            .map(|(name, release, count)| format!("server-{name}: {release}, {count} resources"))
    );
    place.demo.end(Signal::TERM);
    // They end one after the other, so that a line may come later.
    let gone: BTreeSet<String> = three().map(|line| line.chars().take(21).collect()).into();
    assert_eq!(gone, ["a", "b", "c"].map(|name| format!("server-{name}: no answer: ")).into());
    watch.kill().unwrap();
    watch.wait().unwrap();
    place
        .folder
        .mvp(&["skew", "--watch", "-o", "yaml"])
        .is_mistake(2, "--output: with --watch, use table, wide or json");
}
