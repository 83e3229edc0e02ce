//! What the answers of a server mean, as pure functions. Entry: [`Seen`].

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use rustls::{CertificateError, OtherError};
use serde_json::Value;

use crate::operator::https::Answer;

/// What a server told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) link: Link,
    /// Its release, such as `v1.34.2`, or why it is unknown.
    pub(crate) release: Result<String, String>,
    /// The release of `mvp`, if a gateway tells it.
    pub(crate) mvp: Option<String>,
    pub(crate) ready: Ready,
    pub(crate) review: Review,
    pub(crate) who: Who,
    /// The time of the quickest of several requests, each over its own connection.
    pub(crate) latency: Option<Duration>,
    /// Seconds by which its clock is ahead of ours; negative if it is behind.
    pub(crate) skew: Option<i64>,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            link: Link::Unreachable(String::new()),
            release: Err("it was not asked".to_owned()),
            mvp: None,
            ready: Ready::Unknown("it was not asked".to_owned()),
            review: Review::NotAsked,
            who: Who::Server,
            latency: None,
            skew: None,
        }
    }
}

/// The connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Link {
    Unreachable(String),
    /// TLS failed, mostly over the certificate of the server.
    Untrusted(String),
    Open {
        http2: bool,
    },
}

/// Its `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ready {
    Yes,
    /// The checks that fail.
    No(String),
    Unknown(String),
}

/// For whom it takes us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Review {
    /// For the user that our headers name.
    Accepted {
        groups: bool,
        uid: bool,
        extra: bool,
    },
    /// It reads the usual headers, not those of our flags.
    OtherHeaders,
    /// For another user.
    Other(String),
    Refused(StatusCode),
    /// It has no SelfSubjectReview of version 1: it is older than 1.28.
    NoApi,
    Failed(String),
    /// There is no proxy client certificate.
    NotAsked,
}

/// Who answers at the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Who {
    /// A gateway with this ID; none if it did not tell its ID to us.
    Gateway(Option<Arc<str>>),
    Server,
}

/// Why TLS failed, in words that say what to do where there are some.
pub(super) fn explained(error: &std::io::Error) -> String {
    let reason = error.get_ref().and_then(|reason| reason.downcast_ref::<rustls::Error>());
    match reason {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(reason)))) => {
            reason.to_string()
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => {
            let fix = "issue it again with that DNS name, as kubeadm does";
            format!("the certificate of the server lacks the name kubernetes.default.svc; {fix}")
        }
        _ => format!("{error}; renew or replace the certificate of that server"),
    }
}

/// The release in the answer of `/version`.
pub(super) fn release(answer: anyhow::Result<Answer>) -> Result<String, String> {
    let answer = answer.map_err(|error| format!("{error:#}"))?;
    if answer.status != StatusCode::OK {
        return Err(format!("/version answers {}", answer.status));
    }
    let version: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let release = version.get("gitVersion").and_then(Value::as_str);
    release.map(str::to_owned).ok_or_else(|| "/version has no gitVersion".to_owned())
}

/// The most that is shown of an answer.
const MAX_SHOWN: usize = 300;

/// Whether `/readyz?verbose` says that the server is ready.
pub(super) fn ready(status: StatusCode, text: &str) -> Ready {
    if status == StatusCode::OK {
        return Ready::Yes;
    }
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Ready::Unknown(format!("/readyz answers {status}"));
    }
    let failing: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
    let failing: String = failing.join(", ").chars().take(MAX_SHOWN).collect();
    Ready::No(format!("/readyz answers {status}: {failing}"))
}

/// For whom the server takes us, if our headers name this user, and `mark` as a group, as the UID and
/// as an extra attribute.
pub(super) fn review(status: StatusCode, answer: &Value, user: &str, mark: &str) -> Review {
    match status {
        StatusCode::CREATED | StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Review::NoApi,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Review::Refused(status),
        _ => return Review::Failed(format!("the server answers {status}")),
    }
    let info = answer.pointer("/status/userInfo").cloned().unwrap_or_default();
    let told = |key: &str| info.get(key).and_then(Value::as_str).unwrap_or_default();
    if told("username") != user {
        return Review::Other(told("username").to_owned());
    }
    let groups = info.get("groups").and_then(Value::as_array);
    Review::Accepted {
        groups: groups.is_some_and(|groups| groups.iter().any(|found| found == mark)),
        uid: told("uid") == mark,
        extra: info.get("extra").is_some_and(|all| all.get(mark).is_some()),
    }
}

/// Seconds by which a clock is ahead of ours. A `Date` has whole seconds, and the response was made at
/// some moment between `sent` and `received`: within that there is no skew.
pub(super) fn skew(
    date: Option<SystemTime>,
    sent: SystemTime,
    received: SystemTime,
) -> Option<i64> {
    let date = date?;
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let second = Duration::from_secs(1);
    let ahead = date.duration_since(received).unwrap_or_default();
    let behind = sent.duration_since(date + second).unwrap_or_default();
    Some(seconds(ahead) - seconds(behind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn skew_counts_only_outside_of_the_exchange() {
        let at = |seconds: f64| SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds);
        // The server is slow, not late.
        assert_eq!(skew(Some(at(100.0)), at(100.9), at(109.0)), Some(0));
        assert_eq!(skew(Some(at(105.0)), at(100.0), at(109.0)), Some(0));
        assert_eq!(skew(Some(at(116.0)), at(100.0), at(109.0)), Some(7));
        assert_eq!(skew(Some(at(90.0)), at(100.0), at(100.1)), Some(-9));
        assert_eq!(skew(None, at(1.0), at(2.0)), None);
    }

    #[test]
    fn a_review_tells_what_arrived() {
        let told = |info: Value| {
            review(StatusCode::CREATED, &json!({"status": {"userInfo": info}}), "me", "m")
        };
        assert_eq!(
            told(json!({"username": "me", "groups": ["m"], "uid": "m", "extra": {"m": ["x"]}})),
            Review::Accepted { groups: true, uid: true, extra: true }
        );
        assert_eq!(
            told(json!({"username": "me", "groups": ["other"]})),
            Review::Accepted { groups: false, uid: false, extra: false }
        );
        assert_eq!(told(json!({"username": "front"})), Review::Other("front".to_owned()));
        assert_eq!(told(json!(null)), Review::Other(String::new()));
        let no = |status| review(status, &json!(null), "me", "m");
        assert_eq!(no(StatusCode::NOT_FOUND), Review::NoApi);
        assert_eq!(no(StatusCode::UNAUTHORIZED), Review::Refused(StatusCode::UNAUTHORIZED));
        assert!(matches!(no(StatusCode::BAD_GATEWAY), Review::Failed(_)));
    }

    #[test]
    fn failing_checks_of_readyz_are_named() {
        let text = "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n";
        let Ready::No(why) = ready(StatusCode::INTERNAL_SERVER_ERROR, text) else { panic!() };
        assert!(why.ends_with(": etcd failed: reason withheld"), "{why}");
        assert_eq!(ready(StatusCode::OK, "ok"), Ready::Yes);
        assert!(matches!(ready(StatusCode::UNAUTHORIZED, ""), Ready::Unknown(_)));
    }
}
