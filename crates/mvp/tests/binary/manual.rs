//! What installers put beside the binary: completions and manual pages. And `mvp version`.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::folder::Folder;

/// The commands that `mvp --help` lists.
fn commands(place: &Folder) -> Vec<String> {
    let page = place.mvp(&["--help"]).stdout;
    let (_, list) = page.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    // The rest of a description is indented by more.
    let names = lines.filter(|line| !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn the_help_of_every_command_has_examples_of_it() {
    let place = Folder::new();
    let commands = commands(&place);
    for known in ["serve", "demo", "forget", "status", "version", "completions", "man"] {
        assert!(commands.iter().any(|command| command == known), "{known}: {commands:?}");
    }
    for command in commands {
        let page = place.mvp(&[&command, "--help"]).stdout;
        let (_, examples) = page.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{page}"));
        assert!(examples.contains(&format!("mvp {command}")), "{command}: {examples}");
        let widest = page.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{command}: {widest:?}");
    }
}

/// Runs a program with this text as its input. `None` if the program is not installed.
fn given(program: &str, arguments: &[&str], text: &str) -> Option<(bool, String, String)> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: {program} is not installed");
        return None;
    };
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    // On a thread: it may write before it has read everything.
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Some((output.status.success(), text(output.stdout), text(output.stderr)))
}

#[test]
fn completions_parse_and_cover_every_command() {
    let place = Folder::new();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let outcome = place.mvp(&["completions", shell]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{shell}");
        for command in commands(&place) {
            assert!(outcome.stdout.contains(&command), "{shell}: {command}");
        }
        for flag in ["local-server", "admin-socket", "version"] {
            assert!(outcome.stdout.contains(flag), "{shell}: {flag}");
        }
        if let Some((parses, _, said)) = given(shell, &[check], &outcome.stdout) {
            assert!(parses && said.is_empty(), "{shell}: {said}");
        }
    }
    place
        .mvp(&["completions", "powershell"])
        .is_mistake(2, "<SHELL>: no shell that is supported; give bash, zsh or fish");
}

/// What bash offers after these words.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let count = words.len() - 1;
    let (last, before) = (words[count], words[count - 1]);
    let question = format!(
        "{script}\nCOMP_WORDS=({})\nCOMP_CWORD={count}\n_mvp mvp '{last}' '{before}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
    );
    let (done, said, error) = given("bash", &[], &question).unwrap();
    assert!(done && error.is_empty(), "{error}");
    said.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_flags_but_no_hidden_ones() {
    let place = Folder::new();
    let script = place.mvp(&["completions", "bash"]).stdout;
    assert_eq!(offered(&script, &["mvp", "for"]), ["forget"]);
    assert_eq!(offered(&script, &["mvp", "serve", "--local-s"]), ["--local-server"]);
    assert_eq!(offered(&script, &["mvp", "forget", "--admin"]), ["--admin-socket"]);
    assert_eq!(offered(&script, &["mvp", "version", "-o", ""]), ["text", "json"]);
}

#[test]
fn each_command_has_a_manual_page_that_renders() {
    let place = Folder::new();
    let outcome = place.mvp(&["man", "--out", "pages"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let mut names: Vec<String> =
        commands(&place).iter().map(|command| format!("mvp-{command}")).collect();
    names.insert(0, "mvp".to_owned());
    let expected: BTreeSet<String> = names.iter().map(|name| format!("pages/{name}.1")).collect();
    let written: BTreeSet<String> = outcome.stdout.lines().map(str::to_owned).collect();
    assert_eq!(written, expected);
    for name in names {
        let page = std::fs::read_to_string(place.path(&format!("pages/{name}.1"))).unwrap();
        if let Some(command) = name.strip_prefix("mvp-") {
            assert_eq!(place.mvp(&["man", command]).stdout, page, "{name}");
            assert!(page.contains(".SH EXAMPLES\n"), "{name}: {page}");
        } else {
            assert_eq!(place.mvp(&["man"]).stdout, page);
        }
        // With all warnings, for a terminal of 100 columns, without bold.
        let flags = ["-man", "-Tutf8", "-ww", "-Kutf8", "-rLL=100n", "-P-cbou"];
        let Some((done, text, said)) = given("groff", &flags, &page) else { continue };
        assert!(done && said.is_empty(), "{name}: {said}");
        assert!(text.contains(&name) && text.contains("SYNOPSIS"), "{name}: {text}");
    }
    let forget = std::fs::read_to_string(place.path("pages/mvp-forget.1")).unwrap();
    assert!(!forget.contains("admin\\-address"), "{forget}");
}

#[test]
fn mistakes_in_the_manual_are_named() {
    let place = Folder::new();
    let unknown = place.mvp(&["man", "nothing"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""));
    let said = "error: mvp man: no such command; give one of serve, demo, forget, status";
    assert!(unknown.stderr.starts_with(said), "{}", unknown.stderr);
    place.write("file", "");
    let nowhere = place.mvp(&["man", "--out", "file/pages"]);
    assert_eq!(nowhere.code, Some(1));
    assert!(nowhere.stderr.starts_with("error: --out: cannot create file/pages: "), "{nowhere:?}");
}

#[test]
fn version_tells_what_the_binary_was_built_from() {
    let place = Folder::new();
    let version = env!("CARGO_PKG_VERSION");
    for flag in ["--version", "-V"] {
        let outcome = place.mvp(&[flag]);
        assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("mvp {version}\n")), "{flag}");
    }
    let text = place.mvp(&["version"]).stdout;
    assert!(text.starts_with(&format!("mvp {version}\n  commit ")), "{text}");
    let json = place.mvp(&["version", "-o", "json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["version"], version);
    let releases: Vec<&str> =
        mvp_apiserver::Release::ALL.into_iter().map(mvp_apiserver::Release::name).collect();
    assert_eq!(json["kubernetesReleases"], serde_json::json!(releases));
    for key in ["rustc", "target", "profile"] {
        assert!(!json[key].as_str().unwrap().is_empty(), "{key}: {json}");
    }
    assert_eq!(Value::from(commit().unwrap_or_default()), json["commit"]);
}

/// The commit that git knows, or that the build was told; none without either.
fn commit() -> Option<String> {
    if let Some(named) = option_env!("MVP_COMMIT").filter(|named| !named.is_empty()) {
        return Some(named.to_owned());
    }
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize();
    // Another repository around a tarball has other commits.
    let ours = git(&["rev-parse", "--show-toplevel"])? == root.ok()?.display().to_string();
    if ours { git(&["rev-parse", "HEAD"]) } else { None }
}
