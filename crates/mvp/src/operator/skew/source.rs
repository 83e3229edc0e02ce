//! Which servers are compared: the members of a gateway, those of a kubeconfig, or those that flags name.
//! Entry: [`Source::choose`].

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::ask::{Target, ask_all};
use super::server::{Answer, Server};
use super::surface::{Listed, Surface};
use crate::admin;
use crate::cli::{DirectArgs, ServerUrl, SkewArgs};
use crate::files;
use crate::mistake::{Mistake, Problem};
use crate::operator::gateway::GatewayArgs;
use crate::operator::kubeconfig::{Access, Credentials, Kubeconfig, token};
use endpoints::Endpoints;

mod endpoints;

/// The most servers that are asked.
const MAX_SERVERS: usize = 64;

/// Where the servers come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The members that a gateway knows.
    Gateway(GatewayArgs),
    /// These servers.
    Servers(Vec<Target>),
    /// The endpoints behind one server.
    Endpoints(Box<Endpoints>),
}

/// The servers as they answered, and remarks for standard error.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) servers: Vec<Server>,
    pub(crate) remarks: Vec<String>,
}

impl Source {
    /// The source that the flags ask for. It reads the kubeconfig, but asks no server.
    pub(crate) fn choose(args: &SkewArgs) -> Result<Source, Mistake> {
        let direct = &args.direct;
        let names_gateway = args.gateway.admin_address.is_some()
            || args.gateway.admin_socket != Path::new(admin::socket::DEFAULT);
        let wants_kubeconfig = direct.names_kubeconfig() || (args.plugin && !names_gateway);
        if !direct.server.is_empty() {
            let access = match wants_kubeconfig {
                true => context(direct)?.1,
                false => Access::default(),
            };
            let credentials = with_flags(access.credentials, direct)?;
            return servers(direct.server.iter().map(|url| (url.authority(), url, &credentials)));
        }
        if !wants_kubeconfig {
            return Ok(Source::Gateway(args.gateway.clone()));
        }
        if direct.context.len() <= 1 && !direct.all_contexts {
            let (name, access) = context(direct)?;
            let credentials = with_flags(access.credentials, direct)?;
            let url =
                access.url.ok_or_else(|| Mistake::usage("--kubeconfig", "it has no server"))?;
            let way = credentials.way(&url).map_err(|what| Mistake::trouble(&name, what))?;
            let through = Target { name, way };
            return Ok(Source::Endpoints(Box::new(Endpoints { through, credentials })));
        }
        let config = Kubeconfig::load(direct.kubeconfig.as_deref())?;
        let names: Vec<&str> = match direct.all_contexts {
            true => config.contexts().collect(),
            false => direct.context.iter().map(String::as_str).collect(),
        };
        let mut found: Vec<(String, ServerUrl, Credentials)> = Vec::new();
        for name in names {
            let Access { url: Some(url), credentials } = config.access(name)? else { continue };
            // Several users of one server are one server.
            if !found.iter().any(|(_, known, _)| *known == url) {
                found.push((name.to_owned(), url, with_flags(credentials, direct)?));
            }
        }
        servers(found.iter().map(|(name, url, credentials)| (name.clone(), url, credentials)))
    }

    /// Asks all servers.
    pub(crate) async fn ask(&self) -> anyhow::Result<Found> {
        match self {
            Source::Gateway(gateway) => members(gateway),
            Source::Servers(targets) => {
                Ok(Found { servers: ask_all(targets).await, remarks: Vec::new() })
            }
            Source::Endpoints(endpoints) => endpoints.ask().await,
        }
    }
}

/// The one context that the flags name, or the current one.
fn context(direct: &DirectArgs) -> Result<(String, Access), Mistake> {
    let config = Kubeconfig::load(direct.kubeconfig.as_deref())?;
    let name = match direct.context.as_slice() {
        [] => config.current()?,
        [name] => name,
        _ => return Err(Mistake::usage("--context", "with --server, give only one")),
    };
    Ok((name.to_owned(), config.access(name)?))
}

/// The credentials with those of the flags in place of their own.
fn with_flags(mut credentials: Credentials, direct: &DirectArgs) -> Result<Credentials, Mistake> {
    let read = |flag: &str, path: &PathBuf| {
        files::read(path).map_err(|problem| Mistake::trouble(format!("--{flag}"), problem))
    };
    if let Some(path) = &direct.certificate_authority {
        let origin = format!("--certificate-authority {}", path.display());
        credentials.ca = Some((read("certificate-authority", path)?, origin));
    }
    if let (Some(chain), Some(key)) = (&direct.client_certificate, &direct.client_key) {
        let pair = (read("client-certificate", chain)?, read("client-key", key)?);
        credentials.identity = Some(pair);
        credentials.token = None;
    }
    if let Some(path) = &direct.token_file {
        let found = token(path).map_err(|problem| Mistake::trouble("--token-file", problem))?;
        credentials.token = Some(found);
    }
    if let Some(name) = &direct.tls_server_name {
        credentials.server_name = Some(name.clone());
    }
    Ok(credentials)
}

fn servers<'a>(
    named: impl Iterator<Item = (String, &'a ServerUrl, &'a Credentials)>,
) -> Result<Source, Mistake> {
    let targets = named.map(|(name, url, credentials)| {
        let wrong = |problem: Problem| Mistake::trouble(&name, problem);
        Ok(Target { way: credentials.way(url).map_err(wrong)?, name: name.clone() })
    });
    let targets = targets.collect::<Result<Vec<_>, Mistake>>()?;
    match targets.len() {
        0 => Err(Mistake::usage("--kubeconfig", "it has no contexts; give one that has")),
        1..=MAX_SERVERS => Ok(Source::Servers(targets)),
        count => {
            let sentence = format!("{count} servers are too many; give at most {MAX_SERVERS}");
            Err(Mistake::Usage(sentence))
        }
    }
}

/// A member in the document of a gateway: see [`crate::inside::apis`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Member {
    id: String,
    present: bool,
    release: Option<String>,
    stale_seconds: Option<f64>,
    last_error: Option<String>,
    resources: Option<Vec<Listed>>,
}

/// The members in the document of a gateway, as servers.
pub(super) fn of_document(document: &serde_json::Value) -> serde_json::Result<Vec<Server>> {
    #[derive(Deserialize)]
    struct Document {
        members: Vec<Member>,
    }
    let Document { members } = Document::deserialize(document)?;
    Ok(members.into_iter().map(|member| member.known().server()).collect())
}

fn members(gateway: &GatewayArgs) -> anyhow::Result<Found> {
    let answer = gateway.get("/debug/apis").map_err(|error| {
        anyhow::anyhow!("{error:#}; or ask servers directly, with --kubeconfig or --server")
    })?;
    if answer.status != 200 {
        anyhow::bail!("the gateway at {gateway} is older than mvp skew: it has no /debug/apis");
    }
    let servers = serde_json::from_str(&answer.body).and_then(|document| of_document(&document));
    let servers = servers.map_err(|error| anyhow::anyhow!("/debug/apis of {gateway}: {error}"))?;
    Ok(Found { servers, remarks: Vec::new() })
}

impl Member {
    fn known(self) -> Known {
        let Member { id, present, release, stale_seconds, last_error, resources } = self;
        let surface = resources.map(|listed| listed.into_iter().collect());
        Known { id, present, release, stale_seconds, last_error, surface }
    }
}

/// What a gateway knows of a member.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: String,
    pub(crate) present: bool,
    pub(crate) release: Option<String>,
    /// The age of its view, if that is old.
    pub(crate) stale_seconds: Option<f64>,
    pub(crate) last_error: Option<String>,
    /// What it serves; none if that was never fetched.
    pub(crate) surface: Option<Surface>,
}

impl Known {
    pub(crate) fn server(self) -> Server {
        let because = self.last_error.map(|error| format!(": {error}")).unwrap_or_default();
        let answer = match (self.surface, self.present, self.stale_seconds) {
            (None, ..) => {
                Answer::None(format!("the gateway could not fetch its discovery{because}"))
            }
            (Some(_), false, _) => Answer::None(
                "it left the cluster; if it is gone for good, run mvp forget".to_owned(),
            ),
            (Some(surface), true, Some(age)) => {
                Answer::Served(surface, format!("silent for {age:.0} s{because}"))
            }
            (Some(surface), true, None) => Answer::Serves(surface),
        };
        Server { name: self.id, release: self.release, answer, way: None }
    }
}
