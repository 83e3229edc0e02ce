//! Writes a release of `mvp`: an archive for hosts, an OCI image, an SBOM and checksums. Equal inputs
//! give equal bytes. docs/release.md is the guide; docs/decisions/0020-image.md has the reasons.
//!
//! The order of a release: `binary` builds and strips the program, `image` and `archive` pack it,
//! `sbom` lists what it is made of. `tarball` writes the tar format for both. Only `cli`, `binary`,
//! `cargo` and `facts` run programs or touch files.
//!
//! It is a library, too, so that the end-to-end tests run the image that users get: [`write_image`].

mod archive;
mod binary;
mod cargo;
mod cli;
mod facts;
mod image;
mod licences;
mod sbom;
mod tarball;

use std::path::Path;

use anyhow::Context;

pub use cli::main;

/// Writes the image of a binary of `mvp` under this name into a file, as `release image` does.
///
/// # Errors
/// The binary is none of `mvp`, the name is none of an image, the time of its commit is unknown, or the
/// file cannot be written.
pub fn write_image(binary: &Path, name: &str, out: &Path) -> anyhow::Result<()> {
    let program = binary::load(binary)?;
    let facts = facts::Facts::of_program(&program)?;
    let name = image::Name::parse(name).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
    let image = image::build(&program, &facts, &name)?;
    std::fs::write(out, &image.bytes).with_context(|| format!("cannot write {}", out.display()))
}
