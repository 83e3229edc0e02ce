//! The members that a planned configuration would find: those of flags and the peers file, and those of
//! Leases, EndpointSlices and etcd, each read once. Nothing is announced. Entry: [`find`].

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use mvp_core::member::MemberKind;
use mvp_membership::etcd::{self, Trouble};
use mvp_membership::leases::{self, Announcement, Board, OwnLease};
use mvp_membership::{Claims, endpoints};
use mvp_proxy::Body;
use mvp_proxy::control::{Ask, AskError, Clock};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::check::{Check, Group};
use super::members::Candidate;
use super::probe::Way;
use super::settings::Settings;
use crate::cli::{MembershipSource, Peer};
use crate::config::ServeConfig;

/// The time limit of each source.
const WITHIN: Duration = Duration::from_secs(8);

/// Reads all sources. `way` leads to the server that has Leases and EndpointSlices.
pub(crate) async fn find(settings: &Settings, way: Option<&Way>) -> (Vec<Candidate>, Vec<Check>) {
    let mut found = written(settings);
    let mut checks = Vec::new();
    let Ok(config) = &settings.config else { return (found, checks) };
    let mut sources = Sources { config, read: JoinSet::new() };
    if let Some(way) = way.filter(|way| way.is_vouched()) {
        sources.of_server(way);
    }
    let etcd = sources.etcd();
    while let Some(Ok((source, outcome))) = sources.read.join_next().await {
        match outcome {
            Ok(claims) => found.extend(claimed(source, &claims, config)),
            Err(why) => checks.push(unread(source, &why)),
        }
    }
    if etcd && !checks.iter().any(|check| check.group == Group::Etcd) {
        checks.push(Group::Etcd.ok("readable", "the members' keys were read"));
    }
    (distinct(found, config), checks)
}

/// The members of flags and the peers file.
fn written(settings: &Settings) -> Vec<Candidate> {
    let file = settings.config.as_ref().ok().and_then(|config| config.peers.file.as_ref());
    let peers = settings.args.peer.iter().map(|peer| (peer, "--peer"));
    let peers =
        peers.chain(file.iter().flat_map(|file| &file.peers).map(|peer| (peer, "--peers-file")));
    let named = peers.map(|(Peer { id, url, kind }, source)| Candidate {
        id: Some(id.clone()),
        url: url.clone(),
        kind: Some(*kind),
        source,
        left: false,
    });
    let servers = settings.args.servers.iter().map(|url| Candidate {
        id: None,
        url: url.clone(),
        kind: None,
        source: "--servers",
        left: false,
    });
    named.chain(servers).collect()
}

struct Sources<'a> {
    config: &'a ServeConfig,
    read: JoinSet<(&'static str, Result<Claims, String>)>,
}

impl Sources<'_> {
    fn uses(&self, source: MembershipSource) -> bool {
        self.config.peers.membership.contains(&source)
    }

    /// Leases and EndpointSlices.
    fn of_server(&mut self, way: &Way) {
        let clock = Clock::start();
        if let Some(announcement) =
            self.announcement().filter(|_| self.uses(MembershipSource::Leases))
        {
            let one_host = announcement.address.ip().to_canonical().is_loopback();
            let (ask, own) = (Asking(way.clone()), Arc::new(OwnLease::new(announcement)));
            self.read("Leases", move |claims| {
                leases::read(ask, clock, own, Board::default(), claims)
            });
            let ask = Asking(way.clone());
            self.read("identity Leases", move |claims| {
                leases::read_identities(ask, clock, one_host, claims)
            });
        }
        if self.uses(MembershipSource::Endpoints) {
            let (ask, options) = (Asking(way.clone()), endpoints::Options::default());
            self.read("EndpointSlices", move |claims| endpoints::read(ask, clock, options, claims));
        }
    }

    /// etcd. Returns whether it is asked.
    fn etcd(&mut self) -> bool {
        let Some(etcd) = &self.config.peers.etcd else { return false };
        if !self.uses(MembershipSource::Etcd) {
            return false;
        }
        let Ok(tls) = etcd.tls() else { return false };
        let (_sender, tls) = watch::channel(tls);
        let etcd = etcd.etcd(tls);
        let advertised = self.config.advertise;
        let one_host = advertised.is_some_and(|address| address.ip().to_canonical().is_loopback());
        self.read.spawn(async move {
            let (gateways, mut read) = watch::channel(Claims::default());
            let (servers, mut bare) = watch::channel(Claims::default());
            let (trouble, mut troubles) = watch::channel(Trouble::default());
            let reading = etcd::read(etcd, Clock::start(), one_host, gateways, servers, trouble);
            let both = async {
                let gateways = read.wait_for(|claims| claims.read).await.map(|read| read.clone());
                let servers = bare.wait_for(|claims| claims.read).await.map(|read| read.clone());
                gateways.and_then(|mut all| {
                    servers.map(|servers| {
                        all.claims.extend(servers.claims);
                        all
                    })
                })
            };
            let problem = troubles.wait_for(|trouble| trouble.problem.is_some());
            let outcome = tokio::select! {
                claims = timeout(WITHIN, both) => match claims {
                    Ok(claims) => claims.map_err(|error| error.to_string()),
                    Err(_) => Err(format!("no response within {WITHIN:?}")),
                },
                Ok(trouble) = problem => Err(trouble.problem.clone().unwrap_or_default()),
                () = reading => Err("it was not read".to_owned()),
            };
            ("etcd", outcome)
        });
        true
    }

    /// Starts to read a source, until it was read once.
    fn read<F>(
        &mut self,
        source: &'static str,
        start: impl FnOnce(watch::Sender<Claims>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.read.spawn(async move {
            let (sender, mut claims) = watch::channel(Claims::default());
            let reading = start(sender);
            let settled = claims.wait_for(|claims| claims.read || claims.deaf_since.is_some());
            let outcome = tokio::select! {
                claims = timeout(WITHIN, settled) => match claims {
                    Ok(Ok(claims)) if claims.read => Ok(claims.clone()),
                    Ok(_) => Err("the server does not list them".to_owned()),
                    Err(_) => Err(format!("no response within {WITHIN:?}")),
                },
                () = reading => Err("they were not read".to_owned()),
            };
            (source, outcome)
        });
    }

    /// What this gateway would announce; only its address matters.
    fn announcement(&self) -> Option<Announcement> {
        let (id, address) = (self.config.local.as_ref()?.id.clone(), self.config.advertise?);
        Some(Announcement { id, address, instance: "doctor".to_owned() })
    }
}

fn unread(source: &'static str, why: &str) -> Check {
    let (group, name, fix) = match source {
        "etcd" => {
            let fix = "correct the --etcd-* flags: they are those of kube-apiserver";
            (Group::Etcd, "readable".to_owned(), fix)
        }
        _ => {
            let fix = "correct what fails at the local server and in its rights";
            (Group::Members, format!("found by {source}"), fix)
        }
    };
    match source {
        // The checks of rights name the reason.
        "Leases" | "identity Leases" | "EndpointSlices" => group.skip(name, why),
        _ => group.fail(name, why, fix),
    }
}

fn claimed<'a>(
    source: &'static str,
    claims: &'a Claims,
    config: &'a ServeConfig,
) -> impl Iterator<Item = Candidate> + 'a {
    let own = config.local.as_ref().map(|local| local.id.as_str());
    claims.claims.iter().filter_map(move |claim| {
        // Our server, or an earlier process of ours.
        if claim.id.as_deref().is_some_and(|id| Some(id) == own) {
            return None;
        }
        let address = claim.address.as_deref()?;
        Some(Candidate {
            id: claim.id.as_deref().map(str::to_owned),
            url: crate::cli::server_url(&format!("https://{address}")).ok()?,
            // Only answers tell whether an address of EndpointSlices has a gateway.
            kind: claim.id.as_ref().map(|_| claim.kind),
            source,
            left: false,
        })
    })
}

/// Leaves out our own addresses, addresses that a member with an ID has, and servers whose gateway is a
/// member.
fn distinct(mut found: Vec<Candidate>, config: &ServeConfig) -> Vec<Candidate> {
    let mut own = vec![config.listen.to_string()];
    own.extend(config.advertise.map(|address| address.to_string()));
    own.extend(config.local.iter().map(|local| local.url.authority()));
    // With an ID first, then gateways first.
    found.sort_by_key(|member| (member.id.is_none(), member.kind == Some(MemberKind::Bare)));
    let mut kept: Vec<Candidate> = Vec::new();
    for member in found {
        let address = member.url.authority();
        let is_flag = member.source.starts_with("--");
        let known = |other: &Candidate| {
            other.url.authority() == address || (member.id.is_some() && other.id == member.id)
        };
        if is_flag || (!own.contains(&address) && !kept.iter().any(known)) {
            kept.push(member);
        }
    }
    kept
}

/// A server that sources ask.
#[derive(Clone)]
struct Asking(Way);

impl Ask for Asking {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        // Reading once is enough: a watch would only end at its time limit.
        if mvp_proxy::control::is_watch(&request) {
            std::future::pending::<()>().await;
        }
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let answer = self.0.get(path).await.map_err(|error| AskError::new(format!("{error:#}")))?;
        let mut response = Response::new(Body::from(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}
