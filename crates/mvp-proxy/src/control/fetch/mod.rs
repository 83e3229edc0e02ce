//! What a server serves: the second step of the control loop.
//!
//! `/api`, `/apis`, `/openapi/v3` and `/version` are fetched in parallel, conditionally, as the
//! proxy itself, each with a time limit and a size limit. A failure changes nothing: the last known
//! documents stay in use. A fetch can also ask for some of these documents only. Entry item:
//! [`fetch`].

mod get;
mod legacy;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, join, join3, select};
use http::{HeaderValue, Request, Response, StatusCode};
use mvp_core::discovery::{DocumentError, GroupList, Limits, Parsed, Part, Source};
use mvp_core::member::{Release, Version, ViewDocument};
use mvp_core::openapi::Index;
use serde::Deserialize;
use tokio::time::timeout;

use super::extensions::{self, Found};
use crate::ask::{Ask, AskError};
use crate::body::Body;
use crate::gateway::Who;
use crate::gateway::{Instance, who};
pub(crate) use get::get;
use legacy::walk;

/// Aggregated discovery of that server alone, else the next best format. Servers ignore parameters
/// that they do not know, so that one header works for servers of every version.
pub(crate) const ACCEPT_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList;q=0.9,\
application/json;q=0.8";
/// The time limit for a discovery document.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for small documents, whose failure loses nothing: they must not delay discovery.
pub(super) const SMALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The size limit for `/version`, the list of paths at the root, and APIServices.
pub(super) const MAX_SMALL: usize = 1 << 20;
/// The time limit for small documents after discovery is complete.
const GRACE: Duration = Duration::from_millis(400);

/// What a fetch asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    Everything,
    /// These documents only, because a request needs them.
    Only(BTreeSet<ViewDocument>),
}

impl Scope {
    pub(crate) fn has(&self, document: ViewDocument) -> bool {
        match self {
            Scope::Everything => true,
            Scope::Only(documents) => documents.contains(&document),
        }
    }
}

/// What earlier fetches learned about a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) etags: [Option<HeaderValue>; 2],
    /// The documents themselves: only the groups that changed since are parsed.
    pub(crate) lists: [Option<Arc<GroupList>>; 2],
    pub(crate) openapi: Option<KnownIndex>,
    pub(crate) release: Option<Release>,
}

/// The entity tag of a discovery document, and the document.
type KnownPart<'a> = (Option<&'a HeaderValue>, Option<&'a GroupList>);

impl Known {
    fn part(&self, part: Part) -> KnownPart<'_> {
        let ([api_etag, apis_etag], [api, apis]) = (&self.etags, &self.lists);
        match part {
            Part::Api => (api_etag.as_ref(), api.as_deref()),
            Part::Apis => (apis_etag.as_ref(), apis.as_deref()),
        }
    }
}

/// The OpenAPI index as it was sent last, which needs no parsing if it is sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownIndex {
    /// The index of a server without entity tags.
    body: Option<Bytes>,
    etag: Option<HeaderValue>,
}

impl KnownIndex {
    fn is(&self, body: &Bytes, etag: Option<&HeaderValue>) -> bool {
        match &self.body {
            Some(known) => known == body,
            None => self.etag.as_ref() == etag,
        }
    }
}

/// The result of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) parts: [Outcome; 2],
    pub(crate) openapi: OpenApiOutcome,
    pub(crate) release: Option<Release>,
    pub(crate) extensions: Found,
    /// Who answered, with whatever status.
    pub(crate) who: Option<Who>,
    /// The status with which the server refused a discovery document. 401 rejects us altogether, so
    /// it counts for whatever was asked.
    pub(crate) refused: Option<StatusCode>,
}

impl Fetched {
    /// A fetch in which everything failed.
    pub(crate) fn failed(known: &Known, error: &str) -> Fetched {
        let failed = || Outcome::Failed(error.to_owned());
        let parts = [failed(), failed()];
        let openapi = OpenApiOutcome::Failed(error.to_owned());
        let (release, extensions) = (known.release, Found::Nothing);
        Fetched { parts, openapi, release, extensions, who: None, refused: None }
    }

    /// Whether everything was asked for.
    pub(crate) fn is_whole(&self) -> bool {
        !self.parts.contains(&Outcome::NotAsked) && self.openapi != OpenApiOutcome::NotAsked
    }

    /// Why a discovery document could not be fetched.
    pub(crate) fn error(&self) -> Option<String> {
        self.parts.iter().find_map(|part| match part {
            Outcome::Failed(error) => Some(error.clone()),
            _ => None,
        })
    }
}

/// The result for one discovery document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The document was not asked for.
    NotAsked,
    /// The document is the same as before.
    Unchanged,
    /// The document may have changed.
    Changed { list: Arc<GroupList>, etag: Option<HeaderValue>, complaints: Vec<DocumentError> },
    /// The document could not be fetched.
    Failed(String),
}

/// The result for the OpenAPI index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpenApiOutcome {
    /// The index was not asked for.
    NotAsked,
    /// The index is the same as before.
    Unchanged,
    /// The index may have changed.
    Changed(Arc<Index>, KnownIndex),
    /// The server has no OpenAPI v3.
    None,
    /// The index could not be fetched.
    Failed(String),
}

/// Fetches what a server serves and, if wanted, which groups extension servers serve. Fails as a
/// whole if the server turns out to be this process.
pub(crate) async fn fetch(
    ask: &impl Ask,
    server: &str,
    known: &Known,
    scope: &Scope,
    with_extensions: bool,
    limits: &Limits,
    own: Option<&Instance>,
) -> Fetched {
    let noting = Noting { ask, own, noted: Mutex::default() };
    let fetched = fetch_all(&noting, server, known, scope, with_extensions, limits).await;
    let Noted { who, refused } = noting.noted.into_inner().unwrap_or_else(PoisonError::into_inner);
    match who {
        Some(who) if who == Who::Ourselves => {
            let fetched = Fetched::failed(known, "the address leads back to this gateway");
            Fetched { who: Some(who), ..fetched }
        }
        who => Fetched { who, refused, ..fetched },
    }
}

/// Remembers who answers, and whether it refuses.
struct Noting<'a, A> {
    ask: &'a A,
    own: Option<&'a Instance>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    who: Option<Who>,
    refused: Option<StatusCode>,
}

impl<A: Ask> Ask for Noting<'_, A> {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let path = request.uri().path();
        let is_discovery = Part::ALL.into_iter().any(|part| part.path() == path);
        let response = self.ask.ask(request).await?;
        let (who, status) = (who(response.headers(), self.own), response.status());
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.who = Some(who);
        let is_refused = is_discovery && (status.is_client_error() || status.is_server_error());
        if status == StatusCode::UNAUTHORIZED || (is_refused && noted.refused.is_none()) {
            noted.refused = Some(status);
        }
        drop(noted);
        Ok(response)
    }
}

async fn fetch_all(
    ask: &impl Ask,
    server: &str,
    known: &Known,
    scope: &Scope,
    with_extensions: bool,
    limits: &Limits,
) -> Fetched {
    let whole = *scope == Scope::Everything;
    let part = async |part: Part| match scope.has(part.into()) {
        true => fetch_part(ask, server, part, known.part(part), limits).await,
        false => Outcome::NotAsked,
    };
    let parts = join(part(Part::Api), part(Part::Apis));
    let index = async {
        match scope.has(ViewDocument::OpenApi) {
            true => fetch_index(ask, server, known.openapi.as_ref(), limits).await,
            false => OpenApiOutcome::NotAsked,
        }
    };
    let release = async { if whole { fetch_release(ask).await } else { None } };
    let extensions = async {
        if whole && with_extensions { extensions::find(ask).await } else { Found::Nothing }
    };
    let beside = join3(index, release, extensions);
    // 404s wait for confirmed discovery documents, so nothing else may delay them.
    let ((api, apis), beside) = match select(pin!(parts), pin!(beside)).await {
        Either::Left((parts, beside)) => (parts, timeout(GRACE, beside).await.ok()),
        Either::Right((beside, parts)) => (parts.await, Some(beside)),
    };
    let late = || {
        let error = format!("{INDEX}: timed out {GRACE:?} after discovery");
        (OpenApiOutcome::Failed(error), None, Found::Nothing)
    };
    let (openapi, release, extensions) = beside.unwrap_or_else(late);
    let release = release.or(known.release);
    Fetched { parts: [api, apis], openapi, release, extensions, who: None, refused: None }
}

async fn fetch_index(
    ask: &impl Ask,
    server: &str,
    known: Option<&KnownIndex>,
    limits: &Limits,
) -> OpenApiOutcome {
    match timeout(SMALL_TIMEOUT, try_fetch_index(ask, server, known, limits)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => OpenApiOutcome::Failed(error),
        Err(_) => OpenApiOutcome::Failed(format!("{INDEX}: timed out after {SMALL_TIMEOUT:?}")),
    }
}

/// The OpenAPI index. Routing does not depend on it, so a server without one is no error.
const INDEX: &str = "/openapi/v3";

async fn try_fetch_index(
    ask: &impl Ask,
    server: &str,
    known: Option<&KnownIndex>,
    limits: &Limits,
) -> Result<OpenApiOutcome, String> {
    let etag = known.and_then(|known| known.etag.as_ref());
    let answer = get(ask, INDEX, "application/json", etag, limits.max_bytes).await?;
    match answer.status {
        StatusCode::NOT_MODIFIED if etag.is_some() => return Ok(OpenApiOutcome::Unchanged),
        StatusCode::NOT_FOUND => return Ok(OpenApiOutcome::None),
        _ => {}
    }
    let body = answer.ok()?;
    if known.is_some_and(|known| known.is(&body, answer.etag.as_ref())) {
        return Ok(OpenApiOutcome::Unchanged);
    }
    let source = Source { server, document: INDEX };
    let mut index =
        Index::parse(source, body.clone(), limits).map_err(|error| error.to_string())?;
    index.etag = answer.etag.as_ref().and_then(text);
    let body = answer.etag.is_none().then_some(body);
    Ok(OpenApiOutcome::Changed(Arc::new(index), KnownIndex { body, etag: answer.etag }))
}

async fn fetch_part(
    ask: &impl Ask,
    server: &str,
    part: Part,
    known: KnownPart<'_>,
    limits: &Limits,
) -> Outcome {
    let fetched = timeout(TIMEOUT, try_fetch_part(ask, server, part, known, limits)).await;
    match fetched {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::Failed(error),
        Err(_) => Outcome::Failed(format!("{}: timed out after {TIMEOUT:?}", part.path())),
    }
}

async fn try_fetch_part(
    ask: &impl Ask,
    server: &str,
    part: Part,
    (etag, list): KnownPart<'_>,
    limits: &Limits,
) -> Result<Outcome, String> {
    let answer = get(ask, part.path(), ACCEPT_DISCOVERY, etag, limits.max_bytes).await?;
    if answer.status == StatusCode::NOT_MODIFIED && etag.is_some() {
        return Ok(Outcome::Unchanged);
    }
    let document = answer.ok()?;
    let source = Source { server, document: part.path() };
    let aggregated = answer.content_type.contains("APIGroupDiscoveryList");
    let parsed = if aggregated {
        GroupList::parse_changed(source, part, document, limits, list)
            .map_err(|error| error.to_string())?
    } else {
        walk(ask, source, part, document, limits).await?
    };
    let Parsed { mut value, complaints } = parsed;
    value.etag = answer.etag.as_ref().and_then(text);
    Ok(Outcome::Changed { list: Arc::new(value), etag: answer.etag, complaints })
}

fn text(etag: &HeaderValue) -> Option<Box<str>> {
    etag.to_str().ok().map(Box::from)
}

async fn fetch_release(ask: &impl Ask) -> Option<Release> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Info {
        git_version: String,
        #[serde(default)]
        emulation_major: String,
        #[serde(default)]
        emulation_minor: String,
    }
    let answer = timeout(SMALL_TIMEOUT, get(ask, "/version", "application/json", None, MAX_SMALL))
        .await
        .ok()?
        .ok()?;
    let info: Info = serde_json::from_slice(&answer.ok().ok()?).ok()?;
    let release = Release::parse(&info.git_version)?;
    // A server whose `--emulated-version` is older than its binary has the APIs of that version.
    let emulated = format!("{}.{}", info.emulation_major, info.emulation_minor);
    Some(Version::parse(&emulated).map_or(release, |emulated| release.emulating(emulated)))
}

#[cfg(test)]
mod tests;
