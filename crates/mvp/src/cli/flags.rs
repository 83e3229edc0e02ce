//! The flags that are in force, from the command line, the config file, the environment and the
//! defaults. A running gateway tells them to `mvp doctor`, over the admin socket. Entry: [`Flags`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command};
use serde::{Deserialize, Serialize};

/// The values of each flag of `mvp serve` that has one, and the folder that relative paths start at.
/// No flag has a secret as its value: keys are in files, and URLs have no passwords.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flags {
    pub(crate) folder: PathBuf,
    pub(crate) flags: BTreeMap<String, Vec<String>>,
}

impl Flags {
    /// The values of the flags of this command.
    pub(super) fn of(serve: &Command, given: &ArgMatches) -> Flags {
        let not_config = |id: &&clap::Id| !matches!(id.as_str(), "config" | "help");
        let arguments = serve.get_arguments().filter(|a| not_config(&a.get_id()));
        let flags = arguments.filter_map(|argument| {
            let values = given.get_raw(argument.get_id().as_str())?;
            let values = values.map(|value| value.to_string_lossy().into_owned());
            Some((argument.get_long()?.to_owned(), values.collect()))
        });
        Flags { folder: std::env::current_dir().unwrap_or_default(), flags: flags.collect() }
    }

    /// The same with another value of one flag.
    pub(crate) fn with(mut self, flag: &str, value: String) -> Flags {
        self.flags.insert(flag.to_owned(), vec![value]);
        self
    }

    /// The flags as arguments.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = OsString> {
        self.flags.iter().flat_map(|(flag, values)| {
            values.iter().map(move |value| format!("--{flag}={value}").into())
        })
    }
}
