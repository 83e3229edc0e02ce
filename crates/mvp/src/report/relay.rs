//! The reports of all other members, asked over their API ports. Entry: [`Relay::ask`].
//!
//! A member may be slow, send too much, or something else than a report: that is one line for the
//! operator, and has no other effect.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{ACCEPT, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use mvp_core::member::{Member, MemberKind, Presence};
use mvp_proxy::control::SnapshotReader;
use mvp_proxy::{Body, Forwarder, Identity, Target, server_name};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::pages::Page;
use super::{Answered, MAX_MEMBERS, clipped};

/// The largest answer of a member.
const MAX_BYTES: usize = 256 << 10;
/// The number of members that are asked at the same time.
const AT_ONCE: usize = 32;
/// The time that one member has for its answer, and all of them together.
const TIME_LIMIT: Duration = Duration::from_secs(3);
pub(crate) const TOTAL: Duration = Duration::from_secs(8);

/// The ways to all other members.
pub(crate) struct Relay {
    forwarder: Arc<Forwarder>,
    reader: SnapshotReader,
    /// The members that answered before. Locked while members are asked, so that frequent questions
    /// to this gateway do not multiply requests to members.
    answered: Mutex<BTreeSet<Arc<str>>>,
}

impl Relay {
    pub(crate) fn new(forwarder: Arc<Forwarder>, reader: SnapshotReader) -> Relay {
        Relay { forwarder, reader, answered: Mutex::default() }
    }

    /// Asks all other members for a page, in the order of their IDs. Also returns the number of members
    /// that were left out.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, page: Page) -> (Vec<Answered<T>>, usize) {
        let mut before = self.answered.lock().await;
        let snapshot = self.reader.load();
        let local = snapshot.local().map(|local| &local.id);
        let others = snapshot.members().filter(|member| Some(&member.id) != local);
        let members: Vec<Member> = others.cloned().collect();
        before.retain(|id| members.iter().any(|member| member.id == *id));
        let (members, left_out) = chosen(members, &before);
        let ids: Vec<Arc<str>> = members.iter().map(|member| Arc::clone(&member.id)).collect();
        let deadline = Instant::now() + TOTAL;
        let asked = members.into_iter().map(|member| self.answered(member, page, deadline));
        let answers: Vec<Answered<T>> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        let answered = ids.into_iter().zip(&answers).filter(|(_, answer)| answer.status.is_some());
        before.extend(answered.map(|(id, _)| id));
        (answers, left_out)
    }

    async fn answered<T: DeserializeOwned>(
        &self,
        member: Member,
        page: Page,
        deadline: Instant,
    ) -> Answered<T> {
        let answer = self.one(&member, page, deadline).await.and_then(|answer| {
            let unread = |error| format!("its answer is no report: {error}");
            serde_json::from_slice(&answer).map_err(unread)
        });
        let (status, no_answer) = match answer {
            Ok(status) => (Some(status), None),
            Err(reason) => (None, Some(clipped(&reason))),
        };
        Answered {
            id: Some(clipped(&member.id)),
            kind: member.kind.into(),
            release: member.view.release.map(|release| release.to_string()),
            left: member.presence == Presence::Left,
            status,
            no_answer,
        }
    }

    /// The answer of one member, or why there is none.
    async fn one(&self, member: &Member, page: Page, deadline: Instant) -> Result<Bytes, String> {
        if member.presence == Presence::Left {
            return Err("it left".to_owned());
        }
        if member.kind == MemberKind::Bare {
            return Err("a kube-apiserver without a gateway, which reports nothing".to_owned());
        }
        let address = member.address.as_ref().ok_or("its address is not known")?;
        let target = Target {
            id: Arc::clone(&member.id),
            address: Arc::clone(address),
            server_name: server_name(),
            kind: member.kind,
            local: false,
            source: None,
        };
        if Instant::now() >= deadline {
            return Err("not asked: the others took too long".to_owned());
        }
        let limit = deadline.min(Instant::now() + TIME_LIMIT);
        let answer = timeout_at(limit, self.exchange(&target, page)).await;
        answer.map_err(|_| format!("no complete answer within {} s", TIME_LIMIT.as_secs()))?
    }

    async fn exchange(&self, target: &Target, page: Page) -> Result<Bytes, String> {
        let request = Request::get(page.path())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("mvp/", env!("CARGO_PKG_VERSION")))
            .extension(Identity::System)
            .body(Body::empty())
            .map_err(|error| error.to_string())?;
        let response = self.forwarder.send(target, request).await;
        let response = response.map_err(|error| format!("{}: {}", error.stage, error.cause))?;
        match response.status() {
            StatusCode::OK => {}
            // Of its API server, which knows no such path, or does not let us ask for it.
            StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => {
                return Err(
                    "an older mvp, or mvp inside an API server, which reports nothing".to_owned()
                );
            }
            other => return Err(format!("status {other}")),
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|error| format!("its answer: {error}"))?;
        Ok(body.to_bytes())
    }
}

/// The members to ask, by ID, and the number of the others. If there are too many, those that answered
/// before come first, and those that cannot answer last.
fn chosen(mut members: Vec<Member>, before: &BTreeSet<Arc<str>>) -> (Vec<Member>, usize) {
    let left_out = members.len().saturating_sub(MAX_MEMBERS);
    let silent = |one: &Member| one.presence == Presence::Left || one.kind == MemberKind::Bare;
    members.sort_by_cached_key(|one| (!before.contains(&one.id), silent(one), Arc::clone(&one.id)));
    members.truncate(MAX_MEMBERS);
    members.sort_by(|a, b| a.id.cmp(&b.id));
    (members, left_out)
}

#[cfg(test)]
mod tests {
    use mvp_core::Timestamp;
    use mvp_core::member::View;

    use super::*;

    #[test]
    fn of_too_many_members_those_that_answered_before_are_asked() {
        let member = |number: usize| Member {
            id: format!("{number:03}").into(),
            kind: if number == 0 { MemberKind::Bare } else { MemberKind::Mvp },
            address: None,
            presence: if number == 1 { Presence::Left } else { Presence::Present },
            joined: Timestamp::default(),
            heard: Timestamp::default(),
            awaited: false,
            view: View::default(),
        };
        let ids = |members: &[Member]| -> Vec<String> {
            members.iter().map(|member| member.id.to_string()).collect()
        };
        let all: Vec<Member> = (0..MAX_MEMBERS + 4).map(member).collect();
        let last: Arc<str> = format!("{:03}", MAX_MEMBERS + 3).into();
        let (asked, left_out) = chosen(all, &BTreeSet::from([Arc::clone(&last)]));
        assert_eq!((asked.len(), left_out), (MAX_MEMBERS, 4));
        let asked = ids(&asked);
        assert_eq!((&*asked[0], asked.last().unwrap()), ("002", &last.to_string()));
        let (few, left_out) = chosen((0..3).rev().map(member).collect(), &BTreeSet::new());
        assert_eq!((ids(&few), left_out), (["000", "001", "002"].map(str::to_owned).to_vec(), 0));
    }
}
