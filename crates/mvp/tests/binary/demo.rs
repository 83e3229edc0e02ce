//! `mvp demo`: its checks, its story, its ports, and what it leaves behind.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::Value;
use testkit::process::{Process, Signal};

use crate::folder::Folder;

/// A running demo.
pub(crate) struct Demo {
    process: Process,
    out: BufReader<ChildStdout>,
    input: Option<ChildStdin>,
}

impl Demo {
    /// Starts it with its files below a folder of the test.
    pub(crate) fn start(folder: &Folder, arguments: &[&str]) -> Demo {
        let mut child: Child = folder
            .command(&[&["demo"], arguments].concat())
            .env("TMPDIR", temporary(folder))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take();
        Demo { process: Process::new("mvp", child, Path::new("/dev/null")), out, input }
    }

    /// Sends it a signal. Returns its exit code.
    pub(crate) fn end(&mut self, signal: Signal) -> Option<i32> {
        self.process.signal(signal).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.process.exited(Duration::from_secs(10))).unwrap().code()
    }

    /// The next line of its output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// Its output up to the line with these words.
    fn until(&mut self, words: &str) -> String {
        let mut text = String::new();
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "the demo ended: {text}");
            text.push_str(&line);
            if line.contains(words) {
                return text;
            }
        }
    }
}

fn temporary(folder: &Folder) -> PathBuf {
    let path = folder.path("tmp");
    fs::create_dir_all(&path).unwrap();
    path
}

fn files_below(folder: &Folder) -> usize {
    fs::read_dir(temporary(folder)).unwrap().count()
}

#[test]
fn every_promise_is_kept() {
    let folder = Folder::new();
    let run = folder
        .command(&["demo", "--check", "-o", "json"])
        .env("TMPDIR", temporary(&folder))
        .output()
        .unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let broken: Vec<_> = checks.iter().filter(|check| check["ok"] != true).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(checks.len() >= 20, "{} checks", checks.len());
    assert_eq!((run.status.code(), &report["ok"]), (Some(0), &Value::Bool(true)));
    for check in checks {
        let is_text = |key: &str| check[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text("name") && is_text("detail"), "{check}");
    }
    assert_eq!(files_below(&folder), 0, "files are left");
}

#[test]
fn the_story_counts_false_404s_without_the_layer_and_none_with_it() {
    let folder = Folder::new();
    let run = folder.mvp(&["demo", "--story", "-o", "json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let story: Value = serde_json::from_str(&run.stdout).unwrap();
    let [without, with] = story["runs"].as_array().unwrap().as_slice() else {
        unreachable!("two runs")
    };
    assert_eq!((&without["proxy"], &with["proxy"]), (&false.into(), &true.into()));
    let count = |run: &Value, key: &str| run["total"][key].as_u64().unwrap();
    assert!(count(without, "false404") > 0, "{without}");
    assert_eq!(count(with, "false404"), 0, "{with}");
    assert!(count(with, "answered") > 100, "{with}");
    let seconds = without["seconds"].as_array().unwrap();
    let sum: u64 = seconds.iter().map(|second| second["false404"].as_u64().unwrap()).sum();
    assert_eq!(sum, count(without, "false404"));
    for key in ["jobsLeftBehind", "liveDependentsDeleted"] {
        assert_eq!((&without[key], &with[key]), (&1.into(), &0.into()), "{key}");
    }
}

#[test]
fn two_demos_run_at_once_and_leave_nothing() {
    let folder = Folder::new();
    // The usual ports may be taken already; the second demo must take others in any case.
    let usual = TcpListener::bind("127.0.0.1:7443");
    let (mut one, mut other) = (Demo::start(&folder, &[]), Demo::start(&folder, &[]));
    let mut ports = Vec::new();
    for demo in [&mut one, &mut other] {
        let text = demo.until("Ctrl-C");
        assert!(text.contains("server-c"), "{text}");
        ports.extend(
            text.lines()
                .filter_map(|line| line.split("https://127.0.0.1:").nth(1))
                .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next())
                .map(str::to_owned),
        );
        if usual.is_ok() {
            assert!(text.contains("Ports 7443 to 7445 are taken"), "{text}");
        }
    }
    ports.sort();
    ports.dedup();
    assert!(ports.len() >= 6, "{ports:?}");
    assert_eq!(files_below(&folder), 2);

    assert_eq!(one.end(Signal::INT), Some(0));
    assert_eq!(other.end(Signal::TERM), Some(0));
    assert_eq!(files_below(&folder), 0, "files are left");
}

#[test]
fn the_end_of_its_terminal_ends_the_demo() {
    let folder = Folder::new();
    let mut demo = Demo::start(&folder, &["-o", "json", "--port-base", "0"]);
    demo.line();
    assert_eq!(demo.end(Signal::HUP), Some(0));
    assert_eq!(files_below(&folder), 0, "files are left");
}

#[test]
fn an_interrupted_story_is_no_success() {
    let folder = Folder::new();
    let mut story = Demo::start(&folder, &["--story"]);
    story.until("Without mvp");
    assert_eq!(story.end(Signal::INT), Some(1));
}

#[test]
fn ports_that_were_asked_for_are_not_replaced() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let run = Folder::new().mvp(&["demo", "--port-base", &port.to_string()]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("choose other ports with --port-base"), "{}", run.stderr);
}

#[test]
fn the_introduction_is_json_for_scripts() {
    let folder = Folder::new();
    let mut demo = Demo::start(&folder, &["-o", "json", "--port-base", "0"]);
    let line = demo.line();
    let introduction: Value = serde_json::from_str(&line).unwrap();
    let servers = introduction["servers"].as_array().unwrap();
    let versions: Vec<_> =
        servers.iter().map(|server| server["version"].as_str().unwrap()).collect();
    assert_eq!(versions.len(), 3);
    assert!(versions[0].starts_with("v1.34") && versions[2].starts_with("v1.36"), "{versions:?}");
    let has_jobs = |server: &Value| {
        server["serves"].as_array().unwrap().iter().any(|name| name == "jobs.v1.batch")
    };
    assert_eq!(servers.iter().map(has_jobs).collect::<Vec<_>>(), [true, false, true]);
    let kubeconfig = fs::read_to_string(introduction["kubeconfig"].as_str().unwrap()).unwrap();
    let kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    let names: Vec<_> =
        kubeconfig["contexts"].as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["server-a", "server-b", "server-c", "viewer"]);
    demo.process.kill();
    let mut rest = String::new();
    demo.out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn enter_upgrades_one_server_after_the_other() {
    let folder = Folder::new();
    let mut demo = Demo::start(&folder, &["-o", "json", "--port-base", "0"]);
    let introduction: Value = serde_json::from_str(&demo.line()).unwrap();
    let versions = introduction["servers"].as_array().unwrap().iter();
    let newest = versions.map(|server| server["version"].as_str().unwrap()).max().unwrap();
    let mut input = demo.input.take().unwrap();
    for id in ["server-a", "server-b", "server-c", "server-a"] {
        input.write_all(b"\n").unwrap();
        let said: Value = serde_json::from_str(&demo.line()).unwrap();
        assert_eq!(said, serde_json::json!({"restarted": id, "version": newest}));
    }
    // The end of its input is not the end of the demo.
    drop(input);
    assert_eq!(demo.end(Signal::INT), Some(0));
    assert_eq!(files_below(&folder), 0, "files are left");
}

#[test]
fn a_killed_demo_leaves_its_folder_to_the_next_one() {
    let folder = Folder::new();
    let mut killed = Demo::start(&folder, &["-o", "json", "--port-base", "0"]);
    killed.line();
    let mut running = Demo::start(&folder, &["-o", "json", "--port-base", "0"]);
    running.line();
    killed.process.kill();
    assert_eq!(files_below(&folder), 2);
    let mut next = Demo::start(&folder, &["-o", "json", "--port-base", "0"]);
    next.line();
    assert_eq!(files_below(&folder), 2, "those of the two that run");
    for demo in [&mut running, &mut next] {
        assert_eq!(demo.end(Signal::TERM), Some(0));
    }
    assert_eq!(files_below(&folder), 0, "files are left");
}
