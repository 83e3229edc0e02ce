//! The command line. Entry: [`main`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

use crate::binary::Program;
use crate::facts::Facts;
use crate::{archive, binary, cargo, image, licences, sbom};

/// Builds mvp and writes what a release consists of
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  The whole release, built with the profile dist (takes about 8 minutes):
    cargo run -p release -- archive --out target/dist-files
  An image of a binary that is there already, and its import on a node:
    cargo run -p release -- image --binary target/release/mvp --out mvp.tar
    ctr --namespace k8s.io images import mvp.tar
  An image for a registry:
    cargo run -p release -- image --name registry.example/infra/mvp:1 --out mvp.tar
  What mvp is made of:
    cargo run -p release -- sbom --out mvp.cdx.json

Timestamps are SOURCE_DATE_EPOCH, or the time of the commit that the binary names.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write archive, image, SBOM and SHA256SUMS into a directory
    Archive {
        /// Directory for the files; created if it is missing
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        #[command(flatten)]
        input: Input,
    },
    /// Write an OCI image, which `ctr images import`, `docker load` and `skopeo` read
    Image {
        /// File for the image, a tar
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        input: Input,
    },
    /// Write the SBOM, CycloneDX 1.5 in JSON
    Sbom {
        /// File for the SBOM
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Input {
    /// A binary of mvp; it is stripped [default: built with the profile dist]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Name of the image [default: mvp:VERSION]; without a tag, the version is the tag
    #[arg(long, value_name = "NAME", value_parser = image::Name::parse)]
    name: Option<image::Name>,
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("release: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Archive { out, input } => {
            // Before the build, which takes minutes.
            fs::create_dir_all(&out)
                .with_context(|| format!("--out: cannot create {}", out.display()))?;
            check_writable(&out.join("SHA256SUMS"))?;
            archive(&out, &input)
        }
        Command::Image { out, input } => {
            check_writable(&out)?;
            let (_, program, facts) = prepare(&input)?;
            write_image(&out, &program, &facts, &input).map(drop)
        }
        Command::Sbom { out } => {
            let facts = Facts::of_checkout()?;
            write(&out, &sbom::document(&cargo::inputs()?, &facts)?)?;
            println!("{}", out.display());
            Ok(())
        }
    }
}

/// The whole release.
fn archive(out: &Path, input: &Input) -> anyhow::Result<()> {
    let (path, program, facts) = prepare(input)?;
    let inputs = cargo::inputs()?;
    let name = archive::name(&program, &facts);
    let contents = archive::Contents {
        program: &program.bytes,
        manual: binary::manual(&path)?,
        third_party: licences::document(&inputs)?,
        workspace: &cargo::workspace()?,
    };
    let packed = archive::pack(&name, &contents, facts.time)?;
    let files = [
        (format!("{name}.tar.gz"), packed),
        (format!("mvp-{}.cdx.json", facts.version), sbom::document(&inputs, &facts)?),
    ];
    let mut sums = Vec::new();
    for (name, bytes) in files {
        write(&out.join(&name), &bytes)?;
        println!("{}", out.join(&name).display());
        sums.push((name, bytes));
    }
    let image = format!("{name}.oci.tar");
    let bytes = write_image(&out.join(&image), &program, &facts, input)?;
    sums.push((image, bytes));
    let path = out.join("SHA256SUMS");
    write(&path, archive::sums(&sums).as_bytes())?;
    println!("{}", path.display());
    match &program.needs_glibc {
        Some(version) => println!("on hosts, the binary needs glibc {version} or newer"),
        None => eprintln!(
            "release: warning: the binary is statically linked; on hosts with NSS modules of another glibc it may \
             crash when it looks up a name, see docs/decisions/0020-image.md"
        ),
    }
    Ok(())
}

/// The path of the binary, built if none is given, its stripped copy, and the facts of the release.
fn prepare(input: &Input) -> anyhow::Result<(PathBuf, Program, Facts)> {
    let path = match &input.binary {
        Some(path) => path.clone(),
        None => binary::build()?,
    };
    let program = binary::load(&path)?;
    let facts = Facts::of_program(&program)?;
    Ok((path, program, facts))
}

fn write_image(
    out: &Path,
    program: &Program,
    facts: &Facts,
    input: &Input,
) -> anyhow::Result<Vec<u8>> {
    let name = input.name.clone().unwrap_or_else(|| image::Name::of_mvp(&facts.version));
    let image = image::build(program, facts, &name.with_default_tag(&facts.version))?;
    write(out, &image.bytes)?;
    println!("{}  {}  {}", out.display(), image.name, image.digest);
    Ok(image.bytes)
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| unwritable(path))
}

/// Fails if a file cannot be written. What is in it stays.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    let is_new = !path.exists();
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| unwritable(path))?;
    if is_new {
        fs::remove_file(path).with_context(|| unwritable(path))?;
    }
    Ok(())
}

fn unwritable(path: &Path) -> String {
    format!("--out: cannot write {}; give a path in a directory that you may write", path.display())
}
