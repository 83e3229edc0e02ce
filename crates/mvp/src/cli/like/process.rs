//! The running kube-apiserver of this host, by `/proc`. Entry: [`find`].

use std::fs;
use std::path::Path;

use super::command::{NAME, ServerCommand, is_kube_apiserver};
use super::{Found, MANIFESTS, Origin};
use crate::mistake::Mistake;

/// The largest command line that is read.
const LIMIT: usize = 1 << 20;

/// The one process that is named kube-apiserver. `proc` is `/proc`.
pub(super) fn find(proc: &Path) -> Result<Found, Mistake> {
    let wrong = |what: String| Mistake::trouble("--like", what);
    let listed = fs::read_dir(proc)
        .map_err(|error| wrong(format!("auto: {} cannot be read ({error})", proc.display())))?;
    let (mut found, mut k3s) = (Vec::new(), None);
    for entry in listed.flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let (Some(id), Some(words)) = (id, words(&entry.path())) else { continue };
        let name = words.first().map(String::as_str).unwrap_or_default();
        if is_kube_apiserver(name) {
            found.push((id, words));
        } else if is_k3s_server(&words) {
            k3s = Some(id);
        }
    }
    found.sort_by_key(|(id, _)| *id);
    match (&mut *found, k3s) {
        ([(id, words)], _) => {
            let folder = fs::read_link(proc.join(id.to_string()).join("cwd"));
            let command = ServerCommand {
                arguments: words.drain(1..).collect(),
                folder: folder.unwrap_or_else(|_| "/".into()),
                mounts: Vec::new(),
            };
            Ok(Found { origin: Origin::Process(*id), command, bytes: Vec::new() })
        }
        ([], Some(id)) => Err(wrong(format!(
            "auto: k3s (process {id}) runs {NAME} as a part of itself, so that its flags cannot be \
             read, and its port also serves k3s; run mvp without --like and --steer, on another port"
        ))),
        ([], None) => Err(wrong(format!(
            "auto: there is neither {} nor a process named {NAME}; give the manifest of {NAME} as \
             --like=FILE. In a pod, mount the folder of the manifest",
            MANIFESTS.join(" nor ")
        ))),
        (several, _) => {
            let ids: Vec<String> = several.iter().map(|(id, _)| id.to_string()).collect();
            Err(wrong(format!(
                "auto: there are several processes named {NAME}: {}; give the flags of mvp serve \
                 instead of --like, or the manifest of one as --like=FILE",
                ids.join(", ")
            )))
        }
    }
}

/// The command line of a process; `None` for one that has ended, and for threads of the kernel.
fn words(process: &Path) -> Option<Vec<String>> {
    let bytes = fs::read(process.join("cmdline")).ok()?;
    let bytes = bytes.get(..bytes.len().min(LIMIT))?;
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return None;
    }
    let word = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    Some(bytes.split(|byte| *byte == 0).map(word).collect())
}

/// Whether this is `k3s server`, which writes its command line anew as one word.
fn is_k3s_server(words: &[String]) -> bool {
    let mut words = words.iter().flat_map(|word| word.split_whitespace());
    let program = words.next().map(Path::new).and_then(Path::file_name);
    program.is_some_and(|name| name == "k3s" || name == "k3s-server")
        && words.next().is_none_or(|word| word == "server")
}
