//! Container images of Kubernetes' programs that were built here: the program and the libraries that it
//! is linked to. The image of `mvp` is that of a release (`tools/release`). Entry item:
//! [`Image::write`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

/// An image with one program.
#[derive(Debug)]
pub(super) struct Image<'a> {
    /// The whole name, with registry and tag.
    pub(super) name: &'a str,
    pub(super) program: &'a Path,
    /// Runs the program with these arguments by default.
    pub(super) arguments: &'a [&'a str],
}

impl Image<'_> {
    /// Writes it into a folder as a docker archive, which `ctr images import` reads.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        self.try_write(folder).with_context(|| format!("the image {}", self.name))
    }

    fn try_write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let scratch = tempfile::tempdir_in(folder)?;
        let (root, parts) = (scratch.path().join("root"), scratch.path().join("parts"));
        let file_name = self.program.file_name().context("the program has no name")?;
        let entry = Path::new("/usr/local/bin").join(file_name);
        copy(self.program, &root, &entry)?;
        for library in libraries(self.program)? {
            copy(&library, &root, &library)?;
        }
        std::fs::create_dir_all(root.join("etc"))?;
        std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/\n")?;
        std::fs::create_dir_all(&parts)?;
        tar(&parts.join("layer.tar"), &root, ["."])?;

        let layer = digest(&std::fs::read(parts.join("layer.tar"))?);
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let mut entrypoint = vec![entry.to_string_lossy().into_owned()];
        entrypoint.extend(self.arguments.iter().map(|word| (*word).to_owned()));
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": {"Entrypoint": entrypoint, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        });
        let config = config.to_string();
        let config_file = format!("{}.json", digest(config.as_bytes()));
        std::fs::write(parts.join(&config_file), &config)?;
        let manifest =
            json!([{"Config": config_file, "RepoTags": [self.name], "Layers": ["layer.tar"]}]);
        std::fs::write(parts.join("manifest.json"), manifest.to_string())?;
        let archive = folder.join(format!("{}.tar", self.name.replace(['/', ':'], "_")));
        tar(&archive, &parts, ["manifest.json", &config_file, "layer.tar"])?;
        Ok(archive)
    }
}

/// The dynamic libraries of a program and the loader, by their paths. None for a static program.
fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.lines().filter_map(|line| {
        // `libc.so.6 => /lib/… (0x…)`, or `/lib64/ld-linux… (0x…)`.
        let path = line.rsplit("=> ").next()?.split_whitespace().next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    Ok(paths.collect())
}

fn copy(from: &Path, root: &Path, to: &Path) -> anyhow::Result<()> {
    let to = root.join(to.strip_prefix("/").unwrap_or(to));
    std::fs::create_dir_all(to.parent().unwrap_or(root))?;
    std::fs::copy(from, &to).with_context(|| format!("cannot copy {from:?}"))?;
    Ok(())
}

fn tar<A: AsRef<OsStr>>(
    archive: &Path,
    folder: &Path,
    files: impl IntoIterator<Item = A>,
) -> anyhow::Result<()> {
    let mut command = Command::new("tar");
    command.arg("--create").arg("--file").arg(archive).arg("--directory").arg(folder).args(files);
    let output = command.output().context("cannot run tar")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", errors.trim());
    Ok(())
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_the_program_and_its_loader() {
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new("/bin/sleep");
        let image = Image { name: "example.com/sleep:1", program, arguments: &["infinity"] };
        let archive = image.write(folder.path()).unwrap();
        let unpacked = folder.path().join("unpacked");
        std::fs::create_dir(&unpacked).unwrap();
        let untar = |file: &Path| {
            let mut command = Command::new("tar");
            command.arg("-xf").arg(file).arg("-C").arg(&unpacked);
            assert!(command.status().unwrap().success());
        };
        untar(&archive);
        untar(&unpacked.join("layer.tar"));
        assert!(unpacked.join("usr/local/bin/sleep").is_file());
        for library in libraries(program).unwrap() {
            assert!(unpacked.join(library.strip_prefix("/").unwrap()).is_file(), "{library:?}");
        }
    }
}
