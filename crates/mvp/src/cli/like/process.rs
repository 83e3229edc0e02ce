//! The running kube-apiserver of this host, by `/proc`. Entry: [`find`].

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use super::command::{NAME, ServerCommand, is_kube_apiserver};
use super::{Found, MANIFESTS, Origin};
use crate::mistake::Mistake;

/// The largest command line that is read.
const LIMIT: u64 = 1 << 20;

/// The one process that is named kube-apiserver. `proc` is `/proc`.
///
/// Any process can take that name and any command line, and its flags say whom we trust. So it must
/// belong to root or to our own user, and to our PID namespace: a pod may have a root of its own.
pub(super) fn find(proc: &Path) -> Result<Found, Mistake> {
    let wrong = |what: String| Mistake::trouble("--like", what);
    let listed = fs::read_dir(proc)
        .map_err(|error| wrong(format!("auto: {} cannot be read ({error})", proc.display())))?;
    let ours = Owner::read(&proc.join("self"));
    let (mut found, mut strange, mut k3s) = (Vec::new(), Vec::new(), None);
    for entry in listed.flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let (Some(id), Some(bytes)) = (id, command_line(&entry.path())) else { continue };
        let words = words(&bytes);
        let name = words.first().map(String::as_str).unwrap_or_default();
        if is_kube_apiserver(name) {
            let owner = Owner::read(&entry.path());
            match owner.is_some_and(|owner| owner.is_trusted(ours.as_ref())) {
                true => found.push((id, words, bytes)),
                false => strange.push(id),
            }
        } else if is_k3s_server(&words) {
            k3s = Some(id);
        }
    }
    found.sort_by_key(|(id, ..)| *id);
    match (&mut *found, k3s) {
        ([(id, words, bytes)], _) => {
            let folder = fs::read_link(proc.join(id.to_string()).join("cwd"));
            let command = ServerCommand {
                arguments: words.drain(1..).collect(),
                folder: folder.unwrap_or_else(|_| "/".into()),
                mounts: Vec::new(),
            };
            Ok(Found { origin: Origin::Process(*id), command, bytes: std::mem::take(bytes) })
        }
        ([], Some(id)) => Err(wrong(format!(
            "auto: k3s (process {id}) runs {NAME} as a part of itself, so that its flags cannot be \
             read, and its port also serves k3s; run mvp without --like and --steer, on another port"
        ))),
        ([], None) if !strange.is_empty() => Err(wrong(format!(
            "auto: process {} is named {NAME}, but is in a container or of another user, so that its \
             flags are not trusted; give the manifest of {NAME} as --like=FILE, or the flags of mvp \
             serve instead of --like",
            listed_ids(&strange)
        ))),
        ([], None) => Err(wrong(format!(
            "auto: there is neither {} nor a process named {NAME}; give the manifest of {NAME} as \
             --like=FILE. In a pod, mount the folder of the manifest",
            MANIFESTS.join(" nor ")
        ))),
        (several, _) => {
            let ids: Vec<u32> = several.iter().map(|(id, ..)| *id).collect();
            Err(wrong(format!(
                "auto: there are several processes named {NAME}: {}; give the flags of mvp serve \
                 instead of --like, or the manifest of one as --like=FILE",
                listed_ids(&ids)
            )))
        }
    }
}

/// The command line of the process now. `known` is that of the process `id`; if it has ended, another one
/// is looked for, whose ID `id` becomes.
pub(super) fn command_line_now(
    proc: &Path,
    id: &mut u32,
    known: &[u8],
) -> Result<Vec<u8>, Mistake> {
    match command_line(&proc.join(id.to_string())) {
        Some(same) if same == known => Ok(same),
        _ => {
            let found = find(proc)?;
            if let Origin::Process(new) = found.origin {
                *id = new;
            }
            Ok(found.bytes)
        }
    }
}

fn listed_ids(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(", ")
}

/// The command line of a process; `None` for one that has ended, and for threads of the kernel.
fn command_line(process: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(process.join("cmdline")).ok()?.take(LIMIT).read_to_end(&mut bytes).ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

fn words(command_line: &[u8]) -> Vec<String> {
    let bytes = command_line.strip_suffix(b"\0").unwrap_or(command_line);
    let word = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    bytes.split(|byte| *byte == 0).map(word).collect()
}

/// Who runs a process.
struct Owner {
    /// Real, effective, saved and of the file system.
    users: Vec<u32>,
    /// How many PID namespaces it is in, from that of `/proc` on: one more in a container.
    namespaces: usize,
}

impl Owner {
    fn read(process: &Path) -> Option<Owner> {
        let status = fs::read_to_string(process.join("status")).ok()?;
        let values = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let users: Result<_, _> = values("Uid:")?.iter().map(|user| user.parse()).collect();
        Some(Owner { users: users.ok()?, namespaces: values("NSpid:")?.len() })
    }

    fn is_trusted(&self, ours: Option<&Owner>) -> bool {
        let is_ours = |user: &u32| ours.is_some_and(|ours| ours.users.contains(user));
        let namespaces = ours.map_or(1, |ours| ours.namespaces);
        self.users.iter().all(|user| *user == 0 || is_ours(user)) && self.namespaces == namespaces
    }
}

/// Whether this is `k3s server`, which writes its command line anew as one word.
fn is_k3s_server(words: &[String]) -> bool {
    let mut words = words.iter().flat_map(|word| word.split_whitespace());
    let program = words.next().map(Path::new).and_then(Path::file_name);
    program.is_some_and(|name| name == "k3s" || name == "k3s-server")
        && words.next().is_none_or(|word| word == "server")
}
