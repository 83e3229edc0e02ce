//! The local server: whether it can be used, and what it accepts of us. Entry: [`check`].

mod accepts;

use std::time::Duration;

use super::check::{Check, Group, split};
use super::probe::{Link, Ready, Seen, Way, Who};
use super::settings::Settings;

const GROUP: Group = Group::LocalServer;

/// A server whose quickest answer takes longer than this is slow.
pub(crate) const SLOW: Duration = Duration::from_secs(1);
/// Seconds of skew that are worth a warning, and those that break tokens and certificates.
const SKEW: u64 = 5;
const LARGE_SKEW: u64 = 60;

/// Asks the local server everything. Also returns what it told, for comparison with the members.
pub(crate) async fn check(settings: &Settings, way: &Way) -> (Vec<Check>, Seen) {
    let seen = way.probe().await;
    let mut checks = judged(&way.url().to_string(), &seen);
    if matches!(seen.link, Link::Open { .. }) {
        checks.extend(accepts::identity(&seen.review));
        checks.extend(accepts::config_map(settings, way).await);
    }
    (checks, seen)
}

/// What the answers mean.
fn judged(url: &str, seen: &Seen) -> Vec<Check> {
    let http2 = match &seen.link {
        Link::Unreachable(error) => {
            let fix = "start the server, or correct --local-server";
            return vec![GROUP.fail("reachable", format!("{url}: {error}"), fix)];
        }
        Link::Untrusted(sentence) => {
            let reached = GROUP.ok("reachable", url);
            return vec![reached, GROUP.mistake("certificate", sentence)];
        }
        Link::Open { http2 } => *http2,
    };
    let mut checks = vec![
        GROUP.ok("reachable", url),
        GROUP.ok("certificate", "verified, for kubernetes.default.svc"),
    ];
    checks.push(match http2 {
        true => GROUP.ok("HTTP/2", "supported"),
        false => {
            let fix = "give the address of the API server itself, not that of a proxy; or enable \
                       HTTP/2 there";
            GROUP.fail("HTTP/2", "it does not offer HTTP/2 (ALPN h2), which mvp needs", fix)
        }
    });
    checks.push(match &seen.who {
        Who::Server => GROUP.ok("is no gateway", "an API server answers, not mvp"),
        Who::Gateway(id) => {
            let id = id.as_ref().map_or_else(String::new, |id| format!(" of {id:?}"));
            let what = format!("{url} is a gateway{id}: requests would make a detour, or a loop");
            let fix = "give the address of the API server itself as --local-server";
            GROUP.fail("is no gateway", what, fix)
        }
    });
    checks.push(ready(GROUP, "ready", &seen.ready));
    checks.push(match &seen.release {
        Ok(release) => GROUP.ok("release", release),
        Err(why) => GROUP.skip("release", why),
    });
    checks.push(clock(GROUP, "clock", seen.skew));
    checks.extend(latency(GROUP, "latency", seen.latency));
    checks
}

/// Whether a server is ready.
pub(crate) fn ready(group: Group, name: impl Into<String>, ready: &Ready) -> Check {
    match ready {
        Ready::Yes => group.ok(name, "/readyz passes"),
        Ready::Unknown(why) => group.skip(name, why),
        Ready::No(why) => {
            let fix = "wait until it has started; else see its log, and /readyz?verbose";
            group.fail(name, why, fix)
        }
    }
}

/// Whether the clock of a server agrees with ours.
pub(crate) fn clock(group: Group, name: impl Into<String>, skew: Option<i64>) -> Check {
    let Some(skew) = skew else { return group.skip(name, "it sends no Date") };
    let seconds = skew.unsigned_abs();
    let side = if skew > 0 { "ahead of" } else { "behind" };
    let what = format!("its clock is {seconds} s {side} that of this host");
    let fix = "synchronize both hosts with NTP: tokens and certificates are valid by the clock";
    match (seconds > SKEW, seconds > LARGE_SKEW) {
        (false, _) => group.ok(name, "agrees with that of this host"),
        (true, false) => group.warn(name, what, fix),
        (true, true) => group.fail(name, what, fix),
    }
}

/// How long a server takes for the cheapest request.
pub(crate) fn latency(
    group: Group,
    name: impl Into<String>,
    latency: Option<Duration>,
) -> Option<Check> {
    let latency = latency?;
    let shown = format!("{} ms for a connection and /version", latency.as_millis());
    Some(match latency > SLOW {
        false => group.ok(name, shown),
        true => group.warn(name, shown, "see whether the host or its network is overloaded"),
    })
}

/// A sentence about a failed connection as a check.
pub(crate) fn untrusted(group: Group, name: impl Into<String>, sentence: &str) -> Check {
    let (what, fix) = split(sentence);
    group.fail(name, what, fix.unwrap_or_else(|| "see the log of that server".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::doctor::check::Outcome;

    fn open() -> Seen {
        Seen {
            link: Link::Open { http2: true },
            release: Ok("v1.34.1".to_owned()),
            ready: Ready::Yes,
            latency: Some(Duration::from_millis(3)),
            skew: Some(0),
            ..Seen::default()
        }
    }

    /// The names of checks that are not ok, with their outcome.
    fn found(seen: &Seen) -> Vec<(String, Outcome)> {
        let checks = judged("https://a:1", seen).into_iter();
        let wrong = checks.filter(|check| check.result != Outcome::Ok);
        wrong.map(|check| (check.name, check.result)).collect()
    }

    #[test]
    fn each_fault_of_the_local_server_is_its_own_check() {
        assert_eq!(found(&open()), []);
        let fault = |name: &str, outcome| vec![(name.to_owned(), outcome)];
        for (seen, name, outcome) in [
            (Seen { link: Link::Unreachable("no".into()), ..open() }, "reachable", Outcome::Fail),
            (
                Seen { link: Link::Untrusted("no; do".into()), ..open() },
                "certificate",
                Outcome::Fail,
            ),
            (Seen { link: Link::Open { http2: false }, ..open() }, "HTTP/2", Outcome::Fail),
            (Seen { who: Who::Gateway(None), ..open() }, "is no gateway", Outcome::Fail),
            (Seen { ready: Ready::No("etcd".into()), ..open() }, "ready", Outcome::Fail),
            (Seen { ready: Ready::Unknown("403".into()), ..open() }, "ready", Outcome::Skip),
            (Seen { release: Err("403".into()), ..open() }, "release", Outcome::Skip),
            (Seen { skew: Some(-6), ..open() }, "clock", Outcome::Warn),
            (Seen { skew: Some(61), ..open() }, "clock", Outcome::Fail),
            (Seen { skew: None, ..open() }, "clock", Outcome::Skip),
            (Seen { latency: Some(SLOW * 2), ..open() }, "latency", Outcome::Warn),
        ] {
            assert_eq!(found(&seen), fault(name, outcome));
        }
    }
}
