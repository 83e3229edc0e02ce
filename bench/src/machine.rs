//! The machine and the versions of a run.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine, the versions and the commit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) system: String,
    pub(crate) versions: Vec<String>,
    /// Load averages of the last minute, before and after: they show other work on the machine.
    pub(crate) load_before: String,
    pub(crate) load_after: String,
}

impl Machine {
    pub(crate) fn look(workspace: &Path) -> Machine {
        let git = |arguments: &[&str]| {
            let mut all = vec!["-C", workspace.to_str().unwrap_or(".")];
            all.extend(arguments);
            first_line("git", &all)
        };
        let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
        let commit = git(&["rev-parse", "--short=10", "HEAD"]);
        Machine {
            date: first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            commit: if changed { format!("{commit}, with changes") } else { commit },
            processor: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!(
                "{}, Linux {}",
                field("/etc/os-release", "PRETTY_NAME").trim_matches('"'),
                first_line("uname", &["-r"])
            ),
            versions: Vec::new(),
            load_before: load(),
            load_after: String::new(),
        }
    }
}

/// The load average of the last minute.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Finds a program in `PATH` or in the folders of root.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The first line that a command prints, on either output.
pub(crate) fn first_line(program: &str, arguments: &[&str]) -> String {
    output(program, arguments).lines().next().unwrap_or_default().trim().to_owned()
}

/// What a command prints, on either output.
pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        return String::new();
    };
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&text).into_owned()
}

fn field(file: &str, name: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let (key, value) = line.split_once([':', '='])?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    found.unwrap_or_default()
}
