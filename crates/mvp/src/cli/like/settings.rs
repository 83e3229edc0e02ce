//! What the command line, the environment and the config file already set. Entry: [`Given`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::super::values::MembershipSource;

/// The settings that win over those of kube-apiserver, and those that decide which ones are needed.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    /// The names of all flags that are set.
    pub(super) set: BTreeSet<String>,
    pub(super) steer: bool,
    pub(super) etcd_membership: bool,
    pub(super) bind_address: Option<IpAddr>,
    pub(super) secure_port: Option<u16>,
    pub(super) advertise_address: Option<IpAddr>,
    pub(super) tls_cert_file: Option<PathBuf>,
}

impl Given {
    /// The settings among these matches.
    pub(super) fn of(matches: &ArgMatches) -> Given {
        let is_set = |id: &str| {
            let source = matches.value_source(id);
            matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        };
        let ids = matches.ids().map(clap::Id::as_str).filter(|id| is_set(id));
        let mut sources = matches.get_many::<MembershipSource>("membership").into_iter().flatten();
        Given {
            set: ids.map(|id| id.replace('_', "-")).collect(),
            steer: matches.get_one("steer").is_some_and(|steer| *steer),
            etcd_membership: sources.any(|source| *source == MembershipSource::Etcd),
            bind_address: matches
                .get_one("bind_address")
                .filter(|_| is_set("bind_address"))
                .copied(),
            secure_port: matches.get_one("secure_port").filter(|_| is_set("secure_port")).copied(),
            advertise_address: matches.get_one("advertise_address").copied(),
            tls_cert_file: matches.get_one("tls_cert_file").cloned(),
        }
    }

    /// Whether a flag is set.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    #[cfg(test)]
    pub(super) fn with(names: &[&str]) -> Given {
        Given { set: names.iter().map(ToString::to_string).collect(), ..Given::default() }
    }
}
