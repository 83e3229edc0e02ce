//! The headers in which the cluster's servers read users, from the ConfigMap that they keep for
//! extension servers. Requests of callers go out under our certificate, so in a header that we do not
//! remove a caller could name any user. Runs beside the control loop, for the life of the process. Entry item: [`watch`].
//!
//! The ConfigMap is a union: every server adds its names, and nobody removes any. So a name in it
//! proves little, and never stops us; a name that it lacks is read by no server.

use std::time::Duration;

use http::StatusCode;
use mvp_core::Snapshot;
use mvp_core::member::{Member, Presence};
use serde_json::Value;
use tokio::time::timeout;

use super::fetch::{SMALL_TIMEOUT, get};
use super::publish::SnapshotReader;
use super::reach::Reach;
use super::report_once::ReportOnce;
use crate::ask::Ask;
use crate::identity::{HeadersState, NEEDED, RemoteHeaders, Screen};

/// Read from the server's cache, which is cheap.
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication\
?resourceVersion=0";
/// The size limit. A ConfigMap has at most 1 MiB, and more in JSON.
const MAX_BYTES: usize = 4 << 20;
/// Failures in a row after which we are ready without it, and denials in a row that are reported. A
/// server that starts forbids everything for about a second, and writes the ConfigMap only then.
const FINAL: u32 = 3;
/// How many names a log line has.
const MAX_NAMED: usize = 20;

/// Keeps `screen` up to date, by a read in each interval. Never returns.
pub(crate) async fn watch<R: Reach>(
    screen: &Screen,
    reader: &SnapshotReader,
    reach: &R,
    interval: Duration,
) {
    let mut watcher = Watcher::new(screen);
    loop {
        let found = match watcher.choose(&reader.load(), reach) {
            Some(ask) => find(&ask).await,
            None => Found::Failed("no server can be asked yet".to_owned()),
        };
        watcher.apply(found);
        // A server that just started answers soon.
        let settled = screen.state() != HeadersState::Awaited;
        tokio::time::sleep(if settled { interval } else { interval.min(RETRY) }).await;
    }
}

/// The interval until the first answer.
const RETRY: Duration = Duration::from_millis(500);

struct Watcher<'a> {
    screen: &'a Screen,
    /// Results in a row without a ConfigMap: each one moves on to the next member.
    without: u32,
    /// Those among the last that were denials.
    denials: u32,
    reported: ReportOnce,
    /// What was last read.
    last: Option<ServerHeaders>,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum Found {
    Names(ServerHeaders),
    /// The server has no such ConfigMap.
    Missing,
    /// The proxy may not read it.
    Forbidden,
    Failed(String),
}

impl Watcher<'_> {
    fn new(screen: &Screen) -> Watcher<'_> {
        Watcher { screen, without: 0, denials: 0, reported: ReportOnce::default(), last: None }
    }

    /// The local server, or any other while that one fails: the ConfigMap belongs to the cluster.
    fn choose<R: Reach>(&self, snapshot: &Snapshot, reach: &R) -> Option<R::Ask> {
        let local = snapshot.local().map(|local| &local.id);
        let present = |member: &&Member| member.presence == Presence::Present;
        let mut members: Vec<&Member> = snapshot.members().filter(present).collect();
        members.sort_by_key(|member| Some(&member.id) != local);
        let place = usize::try_from(self.without).ok()?.checked_rem(members.len())?;
        reach.reach(members.get(place)?)
    }

    fn apply(&mut self, found: Found) {
        let denied = !matches!(found, Found::Failed(_));
        let why = match &found {
            Found::Names(_) => "",
            Found::Missing => "it does not exist",
            Found::Forbidden => "user system:apiserver may not read it; apply deploy/rbac.yaml",
            Found::Failed(error) => error,
        };
        if let Found::Names(headers) = found {
            (self.without, self.denials) = (0, 0);
            if self.reported.clear() {
                tracing::info!("the request headers of servers can be read again");
            }
            return self.learn(headers);
        }
        self.without = self.without.saturating_add(1);
        self.denials = if denied { self.denials.saturating_add(1) } else { 0 };
        let settled = denied || self.without >= FINAL;
        if settled && self.screen.state() == HeadersState::Awaited {
            self.screen.set_state(HeadersState::Unknown);
        }
        if self.denials >= FINAL && self.reported.report() {
            tracing::warn!(
                reason = why,
                "cannot read ConfigMap kube-system/extension-apiserver-authentication; only the \
                 usual headers (X-Remote-*) and those of the --requestheader-* flags are removed from \
                 requests; if a server has further ones, give them to mvp, too"
            );
        } else {
            tracing::debug!(reason = why, "the request headers of servers cannot be read");
        }
    }

    fn learn(&mut self, headers: ServerHeaders) {
        if self.last.as_ref() == Some(&headers) {
            return;
        }
        let own = &*self.screen.own;
        let names = || headers.names().map(String::as_str);
        let prefixes = || headers.extra_prefix.iter().map(String::as_str);
        if self.screen.reserve(names(), prefixes()) {
            let further = names().chain(prefixes()).filter(|name| !own.reserves(name));
            tracing::info!(
                headers = listed(&further.collect::<Vec<_>>()),
                "servers read users from headers that the --requestheader-* flags of mvp do not name; \
                 they are removed from all requests"
            );
        }
        let needed = headers.needed();
        if !needed.is_empty() {
            tracing::warn!(
                headers = listed(&needed),
                "ConfigMap kube-system/extension-apiserver-authentication names headers that requests \
                 need; they are forwarded, and a server with such a flag may take their values for \
                 users: correct its --requestheader-* flags, then the ConfigMap"
            );
        }
        if !headers.invalid.is_empty() {
            tracing::warn!(
                keys = listed(&headers.invalid),
                "ConfigMap kube-system/extension-apiserver-authentication has entries that are no \
                 header names; they are ignored"
            );
        }
        self.screen.set_state(headers.compared_with(own));
        self.last = Some(headers);
    }
}

fn listed(names: &[&str]) -> String {
    let named: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("{name:?}")).collect();
    let named = named.join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

pub(super) async fn find(ask: &impl Ask) -> Found {
    let fetched = timeout(SMALL_TIMEOUT, get(ask, PATH, "application/json", None, MAX_BYTES));
    let answer = match fetched.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Found::Failed(error),
        Err(_) => return Found::Failed(format!("{PATH}: timed out after {SMALL_TIMEOUT:?}")),
    };
    match answer.status {
        StatusCode::FORBIDDEN => return Found::Forbidden,
        StatusCode::NOT_FOUND => return Found::Missing,
        _ => {}
    }
    let parsed = answer
        .ok()
        .and_then(|body| serde_json::from_slice(&body).map_err(|error| format!("{PATH}: {error}")));
    parsed.map_or_else(Found::Failed, |object: Value| Found::Names(ServerHeaders::of(&object)))
}

/// The headers that servers read, as the ConfigMap has them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ServerHeaders {
    username: Vec<String>,
    group: Vec<String>,
    uid: Vec<String>,
    extra_prefix: Vec<String>,
    /// The keys with entries that cannot be header names.
    invalid: Vec<&'static str>,
}

impl ServerHeaders {
    /// Takes what can be read, and ignores everything else. Each key has a JSON array as a string.
    fn of(object: &Value) -> ServerHeaders {
        let mut headers = ServerHeaders::default();
        let ServerHeaders { username, group, uid, extra_prefix, invalid } = &mut headers;
        for (key, names) in [
            ("requestheader-username-headers", username),
            ("requestheader-group-headers", group),
            ("requestheader-uid-headers", uid),
            ("requestheader-extra-headers-prefix", extra_prefix),
        ] {
            let Some(text) = object.get("data").and_then(|data| data.get(key)) else { continue };
            let entries = match text.as_str() {
                Some("" | "null") => Some(Vec::new()),
                Some(text) => serde_json::from_str::<Vec<Value>>(text).ok(),
                None => None,
            };
            let is_prefix = key.ends_with("-prefix");
            let valid = |entry: &Value| match entry.as_str()? {
                // To a server, every header starts with it.
                "" if is_prefix => Some(String::new()),
                name => {
                    let name = name.trim();
                    http::HeaderName::try_from(name).ok().map(|_| name.to_owned())
                }
            };
            let found: Option<Vec<Option<String>>> =
                entries.map(|entries| entries.iter().map(valid).collect());
            if found.as_ref().is_none_or(|found| found.contains(&None)) {
                invalid.push(key);
            }
            names.extend(found.into_iter().flatten().flatten());
        }
        headers
    }

    /// All names, without the prefixes.
    fn names(&self) -> impl Iterator<Item = &String> {
        [&self.username, &self.group, &self.uid].into_iter().flatten()
    }

    /// Which headers that we send no server reads.
    fn compared_with(&self, own: &RemoteHeaders) -> HeadersState {
        let lacks = |known: &[String], key: &str, sent: Option<&str>| {
            let sent =
                sent.filter(|_| !self.invalid.iter().any(|invalid| invalid.contains(key)))?;
            let is_read = known.iter().any(|name| name.eq_ignore_ascii_case(sent));
            (!is_read).then(|| sent.to_owned())
        };
        let unread = [
            lacks(&self.username, "username", own.sent_username()),
            lacks(&self.group, "group", own.sent_group()),
            lacks(&self.extra_prefix, "extra", own.sent_extra_prefix()),
        ];
        HeadersState::Known {
            unread: unread.into_iter().flatten().collect(),
            // Kubernetes has it off by default.
            loses_uid: lacks(&self.uid, "uid", own.sent_uid()).is_some(),
        }
    }

    /// The names and prefixes that cover headers which requests need.
    fn needed(&self) -> Vec<&str> {
        let names = self.names().filter(|name| NEEDED.iter().any(|n| n.eq_ignore_ascii_case(name)));
        let covers = |prefix: &&String| {
            let prefix = prefix.to_ascii_lowercase();
            NEEDED.iter().any(|needed| needed.starts_with(&prefix))
        };
        let prefixes = self.extra_prefix.iter().filter(covers);
        names.chain(prefixes).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests;
