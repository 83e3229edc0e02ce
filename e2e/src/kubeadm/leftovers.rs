//! What a lab leaves on the machine, and its removal however the lab ends. Namespaces, mounts and
//! processes end with the first process of each node; control groups and files do not. Entry item:
//! [`Cleaner::start`].

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

/// Waits for the end of its input, then removes the groups, which are empty once their processes
/// have ended, and the folders.
const SCRIPT: &str = r#"
read -r _
for attempt in $(seq 100); do
    left=
    for folder; do
        case $folder in
        /sys/fs/cgroup/*) find "$folder" -depth -type d -exec rmdir {} ';' 2>/dev/null ;;
        *) rm -rf "$folder" 2>/dev/null ;;
        esac
        [ ! -e "$folder" ] || left=yes
    done
    [ -n "$left" ] || exit 0
    sleep 0.2
done
exit 1
"#;

/// A process that outlives this one for as long as it takes to clean up.
pub(super) struct Cleaner {
    process: Child,
}

impl Cleaner {
    /// Will remove these control groups and folders, once this is dropped or this process has ended.
    pub(super) fn start(left: &[PathBuf]) -> anyhow::Result<Cleaner> {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", SCRIPT, "cleaner"]).args(left);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context("cannot run setsid, of util-linux")?;
        Ok(Cleaner { process })
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        match self.process.wait() {
            Ok(status) if status.success() => {}
            other => eprintln!("e2e: control groups or files of the lab are left: {other:?}"),
        }
    }
}

/// The control groups of a node: a child of our own group for each controller. Only version 1.
pub(super) fn groups(name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/cgroup").context("cannot read our groups")?;
    let groups: Vec<PathBuf> = text.lines().filter_map(|line| group(line, name)).collect();
    let fits = groups.len() > 1 && Path::new("/sys/fs/cgroup/memory").is_dir();
    ensure!(fits, "kubeadm nodes need a machine with control groups of version 1");
    Ok(groups)
}

/// `4:memory:/ours` is the group `/sys/fs/cgroup/memory/ours`.
fn group(line: &str, name: &str) -> Option<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controller, ours) = (fields.next()?, fields.next()?);
    let controller = controller.strip_prefix("name=").unwrap_or(controller);
    let folder = Path::new("/sys/fs/cgroup").join(controller);
    (!controller.is_empty()).then(|| folder.join(ours.trim_start_matches('/')).join(name))
}

/// Makes a control group. A group of CPUs starts without any.
pub(super) fn make(group: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(group).with_context(|| format!("cannot make the group {group:?}"))?;
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let ours = group.parent().unwrap_or(group).join(file);
        if ours.exists() {
            std::fs::write(group.join(file), std::fs::read(&ours)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_child_of_ours() {
        let of = |line| group(line, "n1");
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(of("4:memory:/ours"), path("/sys/fs/cgroup/memory/ours/n1"));
        assert_eq!(of("9:name=systemd:/"), path("/sys/fs/cgroup/systemd/n1"));
        assert_eq!(of("0::/unified"), None);
    }

    #[test]
    fn folders_are_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("left");
        std::fs::create_dir_all(left.join("deeper")).unwrap();
        let cleaner = Cleaner::start(std::slice::from_ref(&left)).unwrap();
        assert!(left.exists());
        drop(cleaner);
        assert!(!left.exists());
    }
}
