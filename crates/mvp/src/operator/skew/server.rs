//! The servers to compare, as they answered. Entry: [`Server`].

use mvp_core::member::Version;

use super::surface::Surface;
use crate::operator::https::Https;

/// A server, and what it answered.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Its ID, context or address.
    pub(crate) name: String,
    /// Its release, as it names it.
    pub(crate) release: Option<String>,
    pub(crate) answer: Answer,
    /// The way to it, if it was asked directly.
    pub(crate) way: Option<Https>,
}

/// What is known of a server's APIs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Serves(Surface),
    /// What it served when it last answered, and what happened since.
    Served(Surface, String),
    /// Nothing, and the reason.
    None(String),
}

impl Server {
    /// What it serves, as far as known.
    pub(crate) fn surface(&self) -> Option<&Surface> {
        match &self.answer {
            Answer::Serves(surface) | Answer::Served(surface, _) => Some(surface),
            Answer::None(_) => None,
        }
    }

    /// Why it does not answer.
    pub(crate) fn problem(&self) -> Option<&str> {
        match &self.answer {
            Answer::Serves(_) => None,
            Answer::Served(_, reason) | Answer::None(reason) => Some(reason),
        }
    }

    /// The minor version whose APIs it has.
    pub(crate) fn version(&self) -> Option<Version> {
        self.release.as_deref().and_then(Version::parse)
    }

    /// Its release for people.
    pub(crate) fn shown_release(&self) -> &str {
        match (&self.release, self.surface()) {
            (Some(release), _) => release,
            (None, Some(_)) => "unknown release",
            (None, None) => "no answer",
        }
    }
}

/// The APIs of all servers that answered.
pub(crate) fn together(servers: &[Server]) -> Surface {
    Surface::union(servers.iter().filter_map(Server::surface))
}
