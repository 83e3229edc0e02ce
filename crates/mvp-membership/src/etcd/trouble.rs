//! Failures of etcd and their reports: at once where an operator must act, and after a while where
//! the failure may be transient. Entry item: [`Reporter`].

use std::error::Error;
use std::fmt::Write as _;

use mvp_proxy::control::ReportOnce;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::rustls;
use tonic::{Code, Status};

use super::connect::Line;
use crate::limits::ETCD_LEASE;

/// The reason why etcd cannot be used, if it cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trouble {
    /// A problem that an operator must solve.
    pub problem: Option<String>,
    /// A failure that may be transient, but has lasted.
    pub lasting: Option<String>,
}

/// Reports the failures of one use of etcd.
pub(super) struct Reporter {
    /// What fails, and its consequence.
    use_case: &'static str,
    since: Option<Instant>,
    /// When it last failed with a problem that an operator must solve.
    explained: Option<Instant>,
    lasting: ReportOnce,
    trouble: watch::Sender<Trouble>,
}

impl Reporter {
    pub(super) fn new(use_case: &'static str, trouble: watch::Sender<Trouble>) -> Reporter {
        let lasting = ReportOnce::default();
        Reporter { use_case, since: None, explained: None, lasting, trouble }
    }

    /// An attempt succeeded.
    pub(super) fn recovered(&mut self) {
        (self.since, self.explained) = (None, None);
        self.lasting.clear();
        let was = self.trouble.send_replace(Trouble::default());
        if was != Trouble::default() {
            tracing::info!("etcd recovered");
        }
    }

    /// An attempt failed, and is retried.
    pub(super) fn failed(&mut self, status: &Status, line: &Line) {
        let since = *self.since.get_or_insert_with(Instant::now);
        let use_case = self.use_case;
        let reason = described(status);
        match explained(status, line) {
            Some(problem) => {
                let is_new = self.trouble.borrow().problem.as_ref() != Some(&problem);
                if is_new {
                    tracing::warn!(error = %problem, "etcd failed");
                }
                self.explained = Some(Instant::now());
                self.lasting.clear();
                self.trouble.send_replace(Trouble { problem: Some(problem), lasting: None });
            }
            // A transient failure does not replace a problem at once: the problem may remain.
            None if self.explained.unwrap_or(since).elapsed() < ETCD_LEASE => {
                tracing::debug!(error = %reason, "etcd failed: {use_case}");
            }
            None => {
                if self.lasting.report() {
                    let seconds = since.elapsed().as_secs();
                    tracing::warn!(seconds, error = %reason, "etcd failed: {use_case}");
                }
                let lasting = Some(format!("{use_case}: {reason}"));
                self.trouble.send_replace(Trouble { problem: None, lasting });
            }
        }
    }
}

/// The problem that an operator must solve, if it is one.
fn explained(status: &Status, line: &Line) -> Option<String> {
    use rustls::{AlertDescription, Error};
    let message = status.message();
    // The end of a watch has these words instead of a code.
    let words = ["permission denied", "user name is empty", "user name not found"];
    if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
        || words.iter().any(|words| message.contains(words))
    {
        return Some(format!(
            "etcd denies access ({message}); check --etcd-certfile, whose common name is the user, \
             and the permissions of that user"
        ));
    }
    let wrong = line.refusal()?;
    Some(match wrong {
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "etcd requires a client certificate; set --etcd-certfile and --etcd-keyfile".to_owned()
        }
        Error::AlertReceived(_) => format!(
            "etcd rejects the client certificate ({wrong}); set --etcd-certfile to one that is signed \
             by etcd's --trusted-ca-file"
        ),
        Error::InvalidCertificate(_) => format!(
            "etcd's certificate cannot be verified ({wrong}); check --etcd-cafile, and whether the \
             certificate is valid for the names in --etcd-servers"
        ),
        wrong => format!("TLS with etcd failed ({wrong}); check --etcd-servers"),
    })
}

/// The message and its causes.
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
