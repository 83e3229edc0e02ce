//! What the fuzz targets in `fuzz/` reach of the command line. Exists with `cfg(fuzzing)` alone.

use std::ffi::OsString;
use std::path::Path;

use clap::FromArgMatches;

use super::file::ConfigFile;
use super::{Cli, Flags, Origins, Stop, command, like, parse_with, serve_args};
use crate::mistake::Mistake;

/// A config file as flags, and these flags as settings. The same settings follow from the flags that are
/// in force.
pub(crate) fn config(bytes: &[u8]) -> Result<(), Mistake> {
    let file = ConfigFile::parse(Path::new("c.yaml"), bytes.to_vec())?;
    let mut command = command();
    let argv = ["mvp", "serve"].map(OsString::from);
    let matches = command.try_get_matches_from_mut(&argv).map_err(|error| error.to_string());
    let matches = matches.expect("no flags are good flags");
    let given = matches.subcommand_matches("serve").expect("serve");
    let serve = command.find_subcommand("serve").expect("serve");
    let (arguments, origins) = file.arguments(serve, given)?;
    let matches = parsed(parse_with(&argv, &arguments, &origins))?;
    let Some(matches) = matches else { return Ok(()) };
    let flags = Flags::of(serve, matches.subcommand_matches("serve").expect("serve"));
    let cli = Cli::from_arg_matches(&matches).map_err(|error| Stop::from_clap(error, &origins));
    let Some(cli) = parsed(cli)? else { return Ok(()) };
    let super::Command::Serve(args) = cli.command else { panic!("another command") };
    let again = serve_args(&flags).expect("flags that are in force");
    assert_eq!(without_files(&again), without_files(&args), "{flags:?}");
    Ok(())
}

/// The settings that are not about the files that they come from.
fn without_files(args: &super::ServeArgs) -> String {
    let text = format!("{args:?}");
    text.split("config: ").next().unwrap_or_default().to_owned()
}

/// What `--like` takes over of a manifest, as flags, and these flags as settings. Files of the host are
/// not read.
pub(crate) fn like(bytes: &[u8]) -> Result<(), Mistake> {
    let taken = like::fuzzing(bytes)?;
    let argv = ["mvp", "serve"].map(OsString::from);
    let more: Vec<OsString> = taken.arguments();
    let origins = Origins::default().with_like(taken);
    parsed(parse_with(&argv, &more, &origins)).map(drop)
}

/// `None` for a help page.
fn parsed<T>(outcome: Result<T, Stop>) -> Result<Option<T>, Mistake> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Page(_)) => Ok(None),
        Err(Stop::Mistake(mistake)) => Err(mistake),
    }
}
