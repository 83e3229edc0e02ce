//! Files that a test changes while a gateway uses them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory like a Kubernetes volume: each file is a symlink into `..data`, a symlink that is
/// swapped atomically.
pub(crate) struct Folder {
    directory: PathBuf,
    files: Vec<(&'static str, String)>,
    version: usize,
}

impl Folder {
    pub(crate) fn new(files: &[(&'static str, &str)]) -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gateway-folder-{}-{number}", std::process::id());
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&directory).unwrap();
        let mut folder = Folder { directory, files: Vec::new(), version: 0 };
        folder.swap(files);
        folder
    }

    /// Changes or adds files, all at once.
    pub(crate) fn swap(&mut self, files: &[(&'static str, &str)]) {
        for (name, text) in files {
            self.files.retain(|(known, _)| known != name);
            self.files.push((*name, (*text).to_owned()));
        }
        self.version += 1;
        let version = format!("..{}", self.version);
        fs::create_dir(self.directory.join(&version)).unwrap();
        for (name, text) in &self.files {
            fs::write(self.directory.join(&version).join(name), text).unwrap();
            let link = self.directory.join(name);
            if !link.exists() {
                symlink(format!("..data/{name}"), link).unwrap();
            }
        }
        let (new, data) = (self.directory.join("..data_tmp"), self.directory.join("..data"));
        symlink(version, &new).unwrap();
        fs::rename(new, data).unwrap();
    }

    /// A flag whose value is one of the files.
    pub(crate) fn flag(&self, flag: &str, file: &str) -> String {
        format!("--{flag}={}", self.directory.join(file).display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
