//! `mvp doctor`. Entry: [`run`].

use std::process::ExitCode;

use crate::cli::DoctorArgs;

/// Runs the command.
pub(crate) fn run(_args: DoctorArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("mvp doctor does not exist yet")
}
