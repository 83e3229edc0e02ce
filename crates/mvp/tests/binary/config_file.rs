//! The config file: precedence, and mistakes that name its lines.

use crate::folder::{Folder, outcome};

#[test]
fn a_flag_wins_over_its_key() {
    let place = Folder::new();
    place.write("mvp.yaml", "log-level: info\npeer-ca-file: from-file\n");
    let from_file = "mvp.yaml line 2: peer-ca-file: from-file does not exist; create it or correct \
                     the path";
    place.serve(&["--config=mvp.yaml"]).is_mistake(1, from_file);
    place.serve(&["--config=mvp.yaml", "--"]).is_mistake(1, from_file);
    place
        .serve(&["--config=mvp.yaml", "--peer-ca-file=from-flag"])
        .is_mistake(1, "--peer-ca-file: from-flag does not exist; create it or correct the path");
}

#[test]
fn the_environment_wins_over_the_file() {
    let place = Folder::new();
    place.write("mvp.yaml", "log-level: loud\n");
    let run = |level: Option<&str>| {
        let mut command = place.command(&["serve", "--config=mvp.yaml"]);
        command.envs(level.map(|level| ("MVP_LOG", level)));
        outcome(command.output().unwrap())
    };
    let missing =
        "--tls-cert-file: missing; give the serving certificate, and --tls-private-key-file";
    run(Some("info")).is_mistake(2, missing);
    run(None).is_mistake(
        2,
        "mvp.yaml line 1: log-level: \"loud\" is not a log level; use off, error, warn, info, \
         debug or trace, or TARGET=LEVEL for one target",
    );
}

#[test]
fn an_unknown_key_is_reported_with_its_line_and_the_nearest_key() {
    let place = Folder::new();
    for (text, sentence) in [
        (
            "secure-port: 6443\n\npeer-ca-fil: ca.crt\n",
            "mvp.yaml line 3: \"peer-ca-fil\" is not a known key; did you mean peer-ca-file?",
        ),
        (
            "peerCAFile: ca.crt\n",
            "mvp.yaml line 1: \"peerCAFile\" is not a known key; did you mean peer-ca-file?",
        ),
        (
            "--peer-ca-file: ca.crt\n",
            "mvp.yaml line 1: \"--peer-ca-file\" is not a known key; did you mean peer-ca-file?",
        ),
        (
            "kind: MixedVersionProxy\n",
            "mvp.yaml line 1: \"kind\" is not a known key; see mvp serve --help: each flag is a \
             key",
        ),
    ] {
        place.write("mvp.yaml", text);
        place.serve(&["--config=mvp.yaml"]).is_mistake(2, sentence);
    }
}

#[test]
fn a_file_that_is_not_a_config_file_is_rejected() {
    let place = Folder::new();
    place.write("binary", [0, 159, 146, 150]);
    for (file, sentence) in [
        ("none", "--config: none does not exist; create it or correct the path"),
        (".", "--config: . is a directory; name a file in it"),
        ("binary", "--config: binary is not text; give a YAML file in UTF-8"),
    ] {
        place.serve(&[&format!("--config={file}")]).is_mistake(1, sentence);
    }
    place.serve(&["--config=server.crt"]).is_mistake(
        2,
        "server.crt line 1: no key here; write lines of key: value, where a value may be a list",
    );
}
