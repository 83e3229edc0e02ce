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
        let not_config = |id: &&clap::Id| !matches!(id.as_str(), "config" | "help" | "like");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Invocation, parse, serve_args};

    fn invocation(arguments: &[&str]) -> Invocation {
        parse(["mvp"].iter().chain(arguments).map(OsString::from).collect()).unwrap()
    }

    #[test]
    fn flags_make_the_same_settings_again() {
        let Invocation::Serve(args, _, flags) = invocation(&[
            "serve",
            "--peer",
            "b=https://b:1,kind=bare",
            "--peer=c=https://c:1",
            "--requestheader-allowed-names=x,y",
            "--admin-socket=",
            "--permit-port-sharing",
            "--forget-after=90s",
        ]) else {
            panic!()
        };
        assert_eq!(flags.flags["peer"], ["b=https://b:1,kind=bare", "c=https://c:1"]);
        assert_eq!(flags.flags["secure-port"], ["6443"], "defaults are in force, too");
        assert!(!flags.flags.contains_key("config"));
        let text = serde_json::to_string(&flags).unwrap();
        let again = serve_args(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{args:?}"));
        let other = serve_args(&flags.with("server-id", "me".to_owned())).unwrap();
        assert_eq!(other.server_id.as_deref(), Some("me"));
    }

    #[test]
    fn the_doctor_checks_a_running_gateway_unless_flags_are_given() {
        let planned = |arguments: &[&str]| {
            let Invocation::Doctor(args, _) = invocation(arguments) else { panic!() };
            args.planned
        };
        assert!(!planned(&["doctor"]));
        assert!(!planned(&["doctor", "-o", "json", "--admin-socket=/x"]));
        assert!(!planned(&["doctor", "--admin-address=127.0.0.1:1"]));
        assert!(planned(&["doctor", "--secure-port=6443"]));
        assert!(planned(&["doctor", "--admin-socket=/x", "--server-id=a"]));
    }
}
