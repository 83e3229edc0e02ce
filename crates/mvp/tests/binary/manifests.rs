//! `mvp manifests`: its errors, and what the programs say that read its output.

use std::path::Path;
use std::process::{Command, Output};

use crate::folder::Folder;

/// The kinds that `mvp manifests --help` lists.
fn kinds(place: &Folder) -> Vec<String> {
    let page = place.mvp(&["manifests", "--help"]).stdout;
    let (_, list) = page.split_once("<KIND>").unwrap();
    let list = list.split_once("Options:").unwrap().0;
    let names = list.lines().filter_map(|line| line.trim_start().strip_prefix("- "));
    names.map(|line| line.split(':').next().unwrap().to_owned()).collect()
}

#[test]
fn every_kind_says_how_to_install_it_and_how_to_go_back() {
    let place = Folder::new();
    let kinds = kinds(&place);
    assert_eq!(kinds.len(), 8, "{kinds:?}");
    for kind in kinds.iter().filter(|kind| *kind != "rbac") {
        let text = place.mvp(&["manifests", kind]).stdout;
        let comments: String = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(comments.contains(&format!("`mvp manifests {kind}")), "{kind}: {comments}");
        let has =
            |words: &[&str]| words.iter().any(|word| comments.contains(&format!("#   {word}")));
        assert!(has(&["install ", "running cluster "]), "{kind}: {comments}");
        assert!(has(&["check "]), "{kind}: {comments}");
        assert!(has(&["remove ", "back "]), "{kind}: {comments}");
    }
}

#[test]
fn mistakes_are_named() {
    let place = Folder::new();
    let unknown = place.mvp(&["manifests", "helm"]);
    assert_eq!(unknown.code, Some(2));
    let said = "error: <KIND>: \"helm\" is not a valid value; use daemonset or static-pod or ";
    assert!(unknown.stderr.starts_with(said), "{}", unknown.stderr);
    place.mvp(&["manifests"]).is_mistake(2, "<KIND>: is missing; see --help");
    for image in ["", "a b", "mvp:1\nprivileged: true", "-mvp", "mvp:"] {
        place.mvp(&["manifests", "daemonset", &format!("--image={image}")]).is_mistake(
            2,
            &format!(
                "--image: {image:?} is not the name of an image; give a name such as \
                 registry.example.com/mvp:0.1.0"
            ),
        );
    }
    let http = place.mvp(&["manifests", "before", "--servers=http://10.0.0.1"]);
    assert_eq!(http.code, Some(2));
    assert!(http.stderr.starts_with("error: --servers: "), "{}", http.stderr);
    place
        .mvp(&["manifests", "systemd", "--image=mvp:1"])
        .is_mistake(2, "--image: is only for daemonset, static-pod, node-local, node-local-static-pod and before; leave it out");
    place
        .mvp(&["status", "--probe=readyz", "--all"])
        .is_mistake(2, "--probe: cannot be used with --all; remove one of them");
}

/// The outcome of a program, and what it said; `None` if it is not installed.
fn run(program: &str, arguments: &[&str], file: &Path) -> Option<(bool, String)> {
    let output = Command::new(program).args(arguments).arg(file).output();
    let Ok(Output { status, stdout, stderr }) = output else {
        eprintln!("skipped: {program} is not installed");
        return None;
    };
    Some((status.success(), String::from_utf8([stdout, stderr].concat()).unwrap()))
}

#[test]
fn systemd_accepts_the_unit() {
    let place = Folder::new();
    let unit = place.mvp(&["manifests", "systemd"]).stdout;
    // systemd-analyze wants programs that exist.
    place.write("mvp.service", unit.replace("/usr/local/bin/mvp", "/bin/sh"));
    let verify = ["verify", "--man=no"];
    let Some((accepted, said)) = run("systemd-analyze", &verify, &place.path("mvp.service")) else {
        return;
    };
    assert!(accepted && !said.contains("mvp.service"), "{said}");
    // It finds a setting that does not exist.
    place.write("wrong.service", unit.replace("ProtectClock=", "ProtectClocks="));
    let (_, said) = run("systemd-analyze", &verify, &place.path("wrong.service")).unwrap();
    assert!(said.contains("ProtectClocks"), "{said}");
}
