//! An archive that the system's tar and sha256sum read.

use std::path::PathBuf;
use std::process::Command;

use super::*;

fn workspace() -> PathBuf {
    crate::cargo::workspace().unwrap()
}

fn packed() -> Vec<u8> {
    let workspace = workspace();
    let contents = Contents {
        program: b"program",
        manual: vec![("share/man/man1/mvp.1".to_owned(), b"page".to_vec())],
        third_party: "licences".to_owned(),
        workspace: &workspace,
    };
    pack("mvp-1.2.3-linux-amd64", &contents, 1_000_000_000).unwrap()
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn two_archives_are_equal() {
    assert_eq!(packed(), packed());
}

#[test]
fn tar_unpacks_program_plugin_pages_and_manifests() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mvp.tar.gz");
    fs::write(&file, packed()).unwrap();
    output(
        Command::new("tar")
            .args(["--strip-components=1", "-xzf"])
            .arg(&file)
            .current_dir(directory.path()),
    );
    let read = |path: &str| fs::read(directory.path().join(path)).unwrap();
    assert_eq!(read("bin/kubectl-mvp"), b"program");
    assert_eq!(read("share/man/man1/mvp.1"), b"page");
    assert_eq!(read("deploy/rbac.yaml"), fs::read(workspace().join("deploy/rbac.yaml")).unwrap());
    assert_eq!(read("LICENSE"), fs::read(workspace().join("LICENSE")).unwrap());
    assert!(!directory.path().join("deploy/tests").exists());
    assert!(!directory.path().join("deploy/Dockerfile").exists());
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(directory.path().join("bin/mvp")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111);
}

#[test]
fn sha256sum_accepts_the_sums_and_finds_a_changed_file() {
    let directory = tempfile::tempdir().unwrap();
    let files = [("a".to_owned(), b"one".to_vec()), ("b".to_owned(), b"two".to_vec())];
    for (name, bytes) in &files {
        fs::write(directory.path().join(name), bytes).unwrap();
    }
    fs::write(directory.path().join("SHA256SUMS"), sums(&files)).unwrap();
    let mut check = Command::new("sha256sum");
    check.args(["--check", "SHA256SUMS"]).current_dir(directory.path());
    assert_eq!(output(&mut check), "a: OK\nb: OK\n");
    fs::write(directory.path().join("b"), "changed").unwrap();
    assert!(!check.output().unwrap().status.success());
}
