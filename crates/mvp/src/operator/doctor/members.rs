//! The members: each reachable, verified, trusting us, and the one that it should be. Entry: [`check`].
//!
//! A member that is in order is one line; each thing that is wrong has a line of its own.

mod compare;

use std::fmt;

use futures_util::StreamExt;
use futures_util::stream;
use mvp_core::member::MemberKind;

use super::check::{Check, Group, Outcome};
use super::local;
use super::probe::{Link, Review, Seen, Way, Who};
use super::settings::Settings;
use crate::cli::ServerUrl;
use crate::config::egress::has_proxies;

const GROUP: Group = Group::Members;
/// How many members are asked at a time.
const PARALLEL: usize = 16;

/// A member as a source or a running gateway names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its ID; none if only its address is known.
    pub(crate) id: Option<String>,
    pub(crate) url: ServerUrl,
    /// Whether it should be a gateway or a server without one; none if either is fine.
    pub(crate) kind: Option<MemberKind>,
    /// Where it comes from.
    pub(crate) source: &'static str,
    /// Whether the running gateway knows that it left.
    pub(crate) left: bool,
}

impl fmt::Display for Candidate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => out.write_str(id),
            None => out.write_str(&self.url.authority()),
        }
    }
}

/// This gateway, among the members.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ourselves {
    /// The ID of the local server.
    pub(crate) id: Option<String>,
    /// The release of the local server.
    pub(crate) release: Option<String>,
}

/// Asks every member, and compares what they tell.
pub(crate) async fn check(
    settings: &Settings,
    members: Vec<Candidate>,
    own: &Ourselves,
) -> Vec<Check> {
    let Some(authorities) = settings.peer_authorities() else {
        let why = "there is no usable --peer-ca-file, so that nothing is sent to peers";
        return vec![GROUP.skip("members", why)];
    };
    if members.is_empty() {
        let why = "no other member is known: a single server, or nobody has announced itself";
        return vec![GROUP.skip("members", why)];
    }
    if settings.config.as_ref().is_ok_and(has_proxies) {
        let why = "mvp doctor asks members directly, but a proxy is on the way to them; see \
                   /debug/snapshot of the gateway";
        return vec![GROUP.skip("members", why)];
    }
    let asked = members.into_iter().map(|member| async move {
        let seen = match Way::to(&member.url, authorities, settings) {
            Ok(way) => way.probe().await,
            Err(error) => Seen { link: Link::Untrusted(format!("{error:#}")), ..Seen::default() },
        };
        (member, seen)
    });
    let seen: Vec<(Candidate, Seen)> = stream::iter(asked).buffered(PARALLEL).collect().await;
    let mut checks: Vec<Check> =
        seen.iter().flat_map(|(member, seen)| judged(member, seen)).collect();
    checks.extend(compare::ids(&seen, own));
    checks.extend(compare::releases(&seen, own));
    checks.extend(compare::mvp_releases(&seen, env!("CARGO_PKG_VERSION")));
    checks
}

/// What the answers of one member mean.
fn judged(member: &Candidate, seen: &Seen) -> Vec<Check> {
    let named = |aspect: &str| format!("{member} {aspect}");
    let at = format!("{} ({})", member.url, member.source);
    let http2 = match &seen.link {
        Link::Unreachable(error) if member.left => {
            let why = format!("{at} left, and does not answer: {error}");
            return vec![GROUP.skip(named("reachable"), why)];
        }
        Link::Unreachable(error) => {
            let fix = "start it, let its port through the firewall, or correct its address; if it is \
                       gone for good, remove it from its source and run mvp forget ID";
            return vec![GROUP.fail(named("reachable"), format!("{at}: {error}"), fix)];
        }
        Link::Untrusted(sentence) => {
            return vec![local::untrusted(GROUP, named("certificate"), sentence)];
        }
        Link::Open { http2 } => *http2,
    };
    let mut checks = vec![local::ready(GROUP, named("ready"), &seen.ready)];
    if !http2 {
        let fix = "give the address of the gateway or API server itself, not that of a proxy";
        checks.push(GROUP.fail(named("HTTP/2"), format!("{at} does not offer HTTP/2"), fix));
    }
    checks.extend(trust(named("trusts us"), &seen.review));
    checks.extend(identity(member, seen));
    checks.push(local::clock(GROUP, named("clock"), seen.skew));
    checks.extend(local::latency(GROUP, named("latency"), seen.latency));
    checks.retain(|check| check.result != Outcome::Ok);
    if checks.iter().all(|check| check.result == Outcome::Skip) {
        checks.insert(0, GROUP.ok(member.to_string(), summary(&at, seen)));
    }
    checks
}

fn summary(at: &str, seen: &Seen) -> String {
    let kind = match seen.who {
        Who::Gateway(_) => "gateway",
        Who::Server => "server without a gateway",
    };
    let release = seen.release.as_deref().unwrap_or("unknown release");
    let latency = seen.latency.unwrap_or_default().as_millis();
    let trust = match seen.review {
        Review::Accepted { .. } => ", trusts us",
        _ => "",
    };
    format!("{at}: {kind}, {release}, verified, HTTP/2{trust}, {latency} ms")
}

/// Whether it trusts the proxy client certificate.
fn trust(name: String, review: &Review) -> Option<Check> {
    let what = match review {
        Review::Accepted { .. } => return None,
        Review::NotAsked => "there is no usable proxy client certificate".to_owned(),
        Review::NoApi => "it has no SelfSubjectReview (before Kubernetes 1.28)".to_owned(),
        Review::Failed(why) => why.clone(),
        Review::OtherHeaders | Review::Other(_) | Review::Refused(_) => {
            let what = match review {
                Review::OtherHeaders => {
                    "it reads users from other headers than mvp sends".to_owned()
                }
                Review::Refused(status) => {
                    format!("it does not trust the proxy client certificate: {status}")
                }
                _ => "it takes mvp for another user than its headers name".to_owned(),
            };
            let fix = "give all members the same --requestheader-* flags, and proxy client \
                       certificates of that CA with an allowed name";
            return Some(GROUP.fail(name, what, fix));
        }
    };
    Some(GROUP.skip(name, what))
}

/// Whether the member that answers is the one that is expected.
fn identity(member: &Candidate, seen: &Seen) -> Option<Check> {
    let name = |aspect: &str| format!("{member} {aspect}");
    match (&seen.who, member.kind, &member.id) {
        (Who::Server, Some(MemberKind::Mvp), _) => {
            let what = "a kube-apiserver without a gateway answers";
            let fix = "add ,kind=bare to its --peer (kind: bare in the peers file), or give the \
                       address of its gateway";
            Some(GROUP.fail(name("kind"), what, fix))
        }
        (Who::Gateway(_), Some(MemberKind::Bare), _) if member.source.starts_with("--") => {
            let fix = "remove kind=bare, or give the address of the kube-apiserver itself";
            Some(GROUP.warn(name("kind"), "a gateway answers, although it has kind=bare", fix))
        }
        (Who::Gateway(Some(told)), _, Some(id)) if **told != **id => {
            let what = format!("the gateway that answers there has the ID {told:?}");
            let fix = "correct the ID or the address: each --server-id belongs to one server";
            Some(GROUP.fail(name("ID"), what, fix))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
