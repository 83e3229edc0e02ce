//! What is installed into the cache of programs: downloaded or built once, whole or not at all. Entry
//! item: [`once`].

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Creates a folder in the cache once, atomically, and returns a file in it. `make` fills the folder.
pub fn once(
    cache: &Path,
    name: &str,
    file: &Path,
    make: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let folder = cache.join(name);
    if !folder.join(file).exists() {
        std::fs::create_dir_all(cache)?;
        let beside = tempfile::tempdir_in(cache)?;
        make(beside.path())?;
        ensure!(beside.path().join(file).exists(), "there is no {file:?} in it");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::rename(beside.path(), &folder)?;
    }
    Ok(folder.join(file))
}

/// Runs a command that asks nothing, and returns its output. Fails with its messages.
pub fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_once_and_not_at_all_if_that_fails() {
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path().join("not there yet");
        let file = Path::new("program");
        let install = |text: &'static str| {
            once(&cache, "name", file, move |folder| Ok(std::fs::write(folder.join(file), text)?))
        };
        assert!(once(&cache, "name", file, |_| Ok(())).is_err(), "the file is missing");
        assert!(!cache.join("name").exists());
        assert_eq!(std::fs::read_to_string(install("first").unwrap()).unwrap(), "first");
        assert_eq!(std::fs::read_to_string(install("second").unwrap()).unwrap(), "first");
    }

    #[test]
    fn a_failed_command_says_why() {
        let error = run(Command::new("sh").args(["-c", "echo no space >&2; exit 1"])).unwrap_err();
        assert!(error.to_string().ends_with("no space"), "{error}");
        assert_eq!(run(Command::new("echo").arg("yes")).unwrap(), "yes\n");
    }
}
