//! Why etcd cannot be used, told to whom it concerns: at once where an operator has to mend it, and
//! once it lasts where it may pass by itself. Entry item: [`Teller`].

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::rustls;
use tonic::{Code, Status};

use super::connect::Line;

/// As long as the others may take us for alive without a renewal.
const LASTS: Duration = Duration::from_secs(15);

/// Why etcd cannot be used, where it cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trouble {
    /// What an operator has to mend.
    pub problem: Option<String>,
    /// What may pass by itself, but has lasted.
    pub lasting: Option<String>,
}

/// Tells how it goes with one use of etcd.
pub(super) struct Teller {
    /// What does not come about, and what that means.
    what: &'static str,
    since: Option<Instant>,
    /// When it last failed for a reason that has to be mended.
    explained: Option<Instant>,
    told: watch::Sender<Trouble>,
}

impl Teller {
    pub(super) fn new(what: &'static str, told: watch::Sender<Trouble>) -> Teller {
        Teller { what, since: None, explained: None, told }
    }

    /// It works.
    pub(super) fn well(&mut self) {
        (self.since, self.explained) = (None, None);
        let was = self.told.send_replace(Trouble::default());
        if was != Trouble::default() {
            tracing::info!("etcd can be used again");
        }
    }

    /// It failed, and is tried again.
    pub(super) fn failed(&mut self, status: &Status, line: &Line) {
        let since = *self.since.get_or_insert_with(Instant::now);
        let mut trouble = self.told.borrow().clone();
        let reason = described(status);
        match explained(status, line) {
            Some(problem) => {
                if trouble.problem.as_ref() != Some(&problem) {
                    tracing::warn!("{problem}");
                }
                self.explained = Some(Instant::now());
                trouble = Trouble { problem: Some(problem), lasting: None };
            }
            // What passes by itself leaves what does not, for a while: that may have been mended.
            None if self.explained.unwrap_or(since).elapsed() < LASTS => {
                tracing::debug!("{}: {reason}", self.what);
            }
            None => {
                let lasting = format!("{}: {reason}", self.what);
                if trouble.lasting.is_none() {
                    tracing::warn!("for {} s, {lasting}", since.elapsed().as_secs());
                }
                trouble = Trouble { problem: None, lasting: Some(lasting) };
            }
        }
        self.told.send_replace(trouble);
    }
}

/// What an operator has to mend, if it is that.
fn explained(status: &Status, line: &Line) -> Option<String> {
    use rustls::{AlertDescription, Error};
    let said = status.message();
    // Some of it comes as the reason for which a watch ended, without a code.
    let words = ["permission denied", "user name is empty", "user name not found"];
    if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
        || words.iter().any(|words| said.contains(words))
    {
        return Some(format!(
            "etcd does not let us in ({said}); see --etcd-certfile, whose common name is the user, and \
             what that user may do"
        ));
    }
    let wrong = line.refusal()?;
    Some(match wrong {
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "etcd wants a client certificate; give --etcd-certfile and --etcd-keyfile".to_owned()
        }
        Error::AlertReceived(_) => format!(
            "etcd does not believe our client certificate ({wrong}); give one by --etcd-certfile that \
             etcd's --trusted-ca-file has signed"
        ),
        Error::InvalidCertificate(_) => format!(
            "etcd's certificate cannot be verified ({wrong}); see --etcd-cafile, and whether it is good \
             for the names in --etcd-servers"
        ),
        wrong => format!("no TLS with etcd ({wrong}); see --etcd-servers"),
    })
}

/// What was said, and what is behind it.
fn described(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut next = status.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            let _ = write!(text, ": {more}");
        }
        next = error.source();
    }
    text
}
