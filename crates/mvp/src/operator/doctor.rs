//! `mvp doctor`. Entry: [`run`].
mod certificates;
mod check;
mod local;
mod probe;
mod report;
mod rights;
mod settings;

use std::process::ExitCode;

use crate::cli::{DoctorArgs, Origins};

/// Runs the command.
pub(crate) fn run(args: DoctorArgs, _origins: &Origins) -> anyhow::Result<ExitCode> {
    report::print(&[], args.output)
}
