//! Asking a server what it serves: the second step of the control loop.
//!
//! `/api`, `/apis`, `/openapi/v3` and `/version`, side by side, conditionally, each within a bounded
//! time and size, as ourselves. What fails changes nothing: the last known good stays. Entry item:
//! [`fetch`].

use std::collections::BTreeMap;
use std::io::Read;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures_util::future::{Either, join, join3, select};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, USER_AGENT,
};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use mvp_core::discovery::legacy::{ApiGroupList, ApiResourceList, ApiVersions};
use mvp_core::discovery::{
    DocumentError, GroupList, Limits, Parsed, Part, Source, convert, legacy,
};
use mvp_core::member::Release;
use mvp_core::openapi::Index;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;

use super::extensions::{self, Found};
use super::{Ask, Who};
use crate::body::Body;
use crate::gateway::{Instance, who};
use crate::identity::Identity;

/// Everything at once, of that server alone; failing that whatever is next best. Servers pass over
/// parameters that they do not know, so that one header asks servers of every version.
const ACCEPT_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList;q=0.9,\
application/json;q=0.8";
const TIMEOUT: Duration = Duration::from_secs(10);
/// For what is small, and where what is known does not go away: it must not hold up the rest.
pub(super) const SMALL_TIMEOUT: Duration = Duration::from_secs(2);
/// `/version`, the list of paths at the root, and APIServices.
pub(super) const MAX_SMALL: usize = 1 << 20;
/// Nor are they waited for any longer than this once discovery is there.
const GRACE: Duration = Duration::from_millis(400);
/// Groups and versions of a server without aggregated discovery that are asked one by one.
const MAX_WALKED: usize = 2000;

/// What is known of a server from earlier rounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) etags: [Option<HeaderValue>; 2],
    pub(crate) openapi: Option<KnownIndex>,
    pub(crate) release: Option<Release>,
}

/// The index of OpenAPI as it was sent last: mostly it is sent again, and need not be read.
#[derive(Debug, Clone)]
pub(crate) struct KnownIndex {
    body: Bytes,
    etag: Option<HeaderValue>,
}

/// What a round found out.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) parts: [Outcome; 2],
    pub(crate) openapi: OpenApiOutcome,
    pub(crate) release: Option<Release>,
    pub(crate) extensions: Found,
    /// Who answered, whatever it answered.
    pub(crate) who: Option<Who>,
}

impl Fetched {
    /// Nothing could be had.
    pub(crate) fn failed(known: &Known, problem: &str) -> Fetched {
        let failed = || Outcome::Failed(problem.to_owned());
        let parts = [failed(), failed()];
        let openapi = OpenApiOutcome::Failed(problem.to_owned());
        let (release, extensions) = (known.release, Found::Nothing);
        Fetched { parts, openapi, release, extensions, who: None }
    }

    /// Why a document could not be had.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.parts.iter().find_map(|part| match part {
            Outcome::Failed(problem) => Some(problem.clone()),
            _ => None,
        })
    }
}

/// What a round found out about one document.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It stands as it was.
    Unchanged,
    /// It is this now.
    Changed { list: Arc<GroupList>, etag: Option<HeaderValue>, complaints: Vec<DocumentError> },
    /// It could not be had.
    Failed(String),
}

/// What a round found out about the index of OpenAPI.
#[derive(Debug)]
pub(crate) enum OpenApiOutcome {
    /// It stands as it was.
    Unchanged,
    /// It is this now.
    Changed(Arc<Index>, KnownIndex),
    /// The server has none.
    None,
    /// It could not be had.
    Failed(String),
}

/// Asks a server what it serves, and where wanted which of it extension servers do. Who finds itself
/// has nothing to say.
pub(crate) async fn fetch(
    ask: &impl Ask,
    server: &str,
    known: &Known,
    with_extensions: bool,
    own: Option<&Instance>,
) -> Fetched {
    let noting = Noting { ask, own, who: Mutex::default() };
    let fetched = fetch_all(&noting, server, known, with_extensions).await;
    match noting.who.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(who) if who == Who::Ourselves => {
            let fetched = Fetched::failed(known, "it leads back to this gateway");
            Fetched { who: Some(who), ..fetched }
        }
        who => Fetched { who, ..fetched },
    }
}

/// Notes who answers.
struct Noting<'a, A> {
    ask: &'a A,
    own: Option<&'a Instance>,
    who: Mutex<Option<Who>>,
}

impl<A: Ask> Ask for Noting<'_, A> {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, String> {
        let response = self.ask.ask(request).await?;
        let who = who(response.headers(), self.own);
        *self.who.lock().unwrap_or_else(PoisonError::into_inner) = Some(who);
        Ok(response)
    }
}

async fn fetch_all(ask: &impl Ask, server: &str, known: &Known, with_extensions: bool) -> Fetched {
    let [api, apis] = &known.etags;
    let extensions =
        async { if with_extensions { extensions::find(ask).await } else { Found::Nothing } };
    let parts = join(
        fetch_part(ask, server, Part::Api, api.as_ref()),
        fetch_part(ask, server, Part::Apis, apis.as_ref()),
    );
    let beside =
        join3(fetch_index(ask, server, known.openapi.as_ref()), fetch_release(ask), extensions);
    // A 404 waits for what is confirmed of discovery, so that nothing else may hold that up.
    let ((api, apis), beside) = match select(pin!(parts), pin!(beside)).await {
        Either::Left((parts, beside)) => (parts, timeout(GRACE, beside).await.ok()),
        Either::Right((beside, parts)) => (parts.await, Some(beside)),
    };
    let late = || {
        let problem = format!("{INDEX}: no answer {GRACE:?} after discovery");
        (OpenApiOutcome::Failed(problem), None, Found::Nothing)
    };
    let (openapi, release, extensions) = beside.unwrap_or_else(late);
    let release = release.or(known.release);
    Fetched { parts: [api, apis], openapi, release, extensions, who: None }
}

async fn fetch_index(ask: &impl Ask, server: &str, known: Option<&KnownIndex>) -> OpenApiOutcome {
    match timeout(SMALL_TIMEOUT, try_fetch_index(ask, server, known)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(problem)) => OpenApiOutcome::Failed(problem),
        Err(_) => OpenApiOutcome::Failed(format!("{INDEX}: no answer within {SMALL_TIMEOUT:?}")),
    }
}

/// The index of OpenAPI. Unlike discovery it is not what decides, so that its absence is no fault.
const INDEX: &str = "/openapi/v3";

async fn try_fetch_index(
    ask: &impl Ask,
    server: &str,
    known: Option<&KnownIndex>,
) -> Result<OpenApiOutcome, String> {
    let limits = Limits::default();
    let etag = known.and_then(|known| known.etag.as_ref());
    let answer = get(ask, INDEX, "application/json", etag, limits.max_bytes).await?;
    match answer.status {
        StatusCode::NOT_MODIFIED if etag.is_some() => return Ok(OpenApiOutcome::Unchanged),
        StatusCode::NOT_FOUND => return Ok(OpenApiOutcome::None),
        _ => {}
    }
    let body = answer.ok()?;
    if known.is_some_and(|known| known.body == body) {
        return Ok(OpenApiOutcome::Unchanged);
    }
    let source = Source { server, document: INDEX };
    let index = Index::parse(source, body.clone(), &limits).map_err(|error| error.to_string())?;
    Ok(OpenApiOutcome::Changed(Arc::new(index), KnownIndex { body, etag: answer.etag }))
}

async fn fetch_part(
    ask: &impl Ask,
    server: &str,
    part: Part,
    etag: Option<&HeaderValue>,
) -> Outcome {
    let fetched = timeout(TIMEOUT, try_fetch_part(ask, server, part, etag)).await;
    match fetched {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(problem)) => Outcome::Failed(problem),
        Err(_) => Outcome::Failed(format!("{}: no answer within {TIMEOUT:?}", part.path())),
    }
}

async fn try_fetch_part(
    ask: &impl Ask,
    server: &str,
    part: Part,
    etag: Option<&HeaderValue>,
) -> Result<Outcome, String> {
    let answer = get(ask, part.path(), ACCEPT_DISCOVERY, etag, Limits::default().max_bytes).await?;
    if answer.status == StatusCode::NOT_MODIFIED && etag.is_some() {
        return Ok(Outcome::Unchanged);
    }
    let document = answer.ok()?;
    let source = Source { server, document: part.path() };
    let aggregated = answer.content_type.contains("APIGroupDiscoveryList");
    let parsed = if aggregated {
        GroupList::parse(source, part, document, &Limits::default()).map_err(|e| e.to_string())?
    } else {
        walk(ask, source, part, document).await?
    };
    let Parsed { mut value, complaints } = parsed;
    value.etag = answer.etag.as_ref().and_then(|etag| Some(etag.to_str().ok()?.into()));
    Ok(Outcome::Changed { list: Arc::new(value), etag: answer.etag, complaints })
}

/// A server without aggregated discovery is asked for each version by itself. Its own lists of
/// groups are false during skew: a version counts if the server answers for it.
async fn walk(
    ask: &impl Ask,
    source: Source<'_>,
    part: Part,
    document: Bytes,
) -> Result<Parsed<GroupList>, String> {
    let limits = Limits::default();
    let said = |error: DocumentError| error.to_string();
    let groups = match part {
        Part::Api => {
            let versions: ApiVersions = legacy::parse(source, document, &limits).map_err(said)?;
            vec![convert::core_group(&versions)]
        }
        Part::Apis => {
            let list: ApiGroupList = legacy::parse(source, document, &limits).map_err(said)?;
            with_listed_paths(list, &own_paths(ask).await)
        }
    };
    let mut resources = Vec::new();
    let mut paths = Vec::new();
    for group in &groups {
        let prefix = if group.name.is_empty() { "/api" } else { "/apis" };
        paths.extend(group.versions.iter().map(|v| format!("{prefix}/{}", v.group_version)));
    }
    let mut left = limits.max_bytes;
    for path in paths.into_iter().take(MAX_WALKED) {
        let answer = get(ask, &path, "application/json", None, left).await?;
        left = left.saturating_sub(answer.body.len());
        if answer.status == StatusCode::NOT_FOUND {
            continue;
        }
        let source = Source { server: source.server, document: &path };
        let list: ApiResourceList = legacy::parse(source, answer.ok()?, &limits).map_err(said)?;
        resources.push(list);
    }
    convert::from_legacy(source, &groups, &resources).map_err(said)
}

/// Adds the groups and versions whose paths the server has.
fn with_listed_paths(list: ApiGroupList, paths: &[String]) -> Vec<legacy::ApiGroup> {
    let mut groups = list.groups;
    for path in paths.iter().take(MAX_WALKED) {
        let mut steps = path.split('/').skip(1);
        let (Some("apis"), Some(name), Some(version), None) =
            (steps.next(), steps.next(), steps.next(), steps.next())
        else {
            continue;
        };
        let place = groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
            groups.push(legacy::ApiGroup { name: name.to_owned(), ..Default::default() });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(place)
            && !group.versions.iter().any(|known| known.version == version)
        {
            group.versions.push(legacy::GroupVersion::new(name, version));
        }
    }
    groups
}

/// The paths that the server says it has, at its root, or, where that is kept from us as RBAC does
/// by default, in the index of its OpenAPI documents.
async fn own_paths(ask: &impl Ask) -> Vec<String> {
    #[derive(Deserialize)]
    struct Root {
        paths: Vec<String>,
    }
    #[derive(Deserialize)]
    struct OpenApi {
        paths: BTreeMap<String, IgnoredAny>,
    }
    let read = async |path: &'static str| {
        let asked = get(ask, path, "application/json", None, MAX_SMALL);
        asked.await.ok().and_then(|answer| answer.ok().ok())
    };
    let root = read("/").await.and_then(|body| serde_json::from_slice::<Root>(&body).ok());
    if let Some(root) = root {
        return root.paths;
    }
    let index = read("/openapi/v3").await;
    let index = index.and_then(|body| serde_json::from_slice::<OpenApi>(&body).ok());
    // A server that does not say is taken at the word of its list.
    let paths = index.map(|index| index.paths.into_keys()).into_iter().flatten();
    paths.map(|path| format!("/{path}")).collect()
}

async fn fetch_release(ask: &impl Ask) -> Option<Release> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    let answer = timeout(SMALL_TIMEOUT, get(ask, "/version", "application/json", None, MAX_SMALL))
        .await
        .ok()?
        .ok()?;
    let version: Version = serde_json::from_slice(&answer.ok().ok()?).ok()?;
    Release::parse(&version.git_version)
}

/// A server's answer, read whole.
pub(crate) struct Answer {
    path: String,
    pub(crate) status: StatusCode,
    content_type: String,
    pub(crate) etag: Option<HeaderValue>,
    body: Bytes,
}

impl Answer {
    /// Its body, if it is one.
    pub(crate) fn ok(&self) -> Result<Bytes, String> {
        if self.status == StatusCode::OK {
            return Ok(self.body.clone());
        }
        let start: String =
            String::from_utf8_lossy(self.body.get(..200).unwrap_or(&self.body)).trim().to_owned();
        // What an operator has to mend is at the server, and not easily guessed.
        let hint = match self.status {
            StatusCode::FORBIDDEN => {
                "; let user system:apiserver read it: bind ClusterRole system:discovery to group \
                 system:authenticated, as Kubernetes does by default"
            }
            StatusCode::UNAUTHORIZED => {
                "; it does not believe the proxy client certificate: see its \
                 --requestheader-client-ca-file and --requestheader-allowed-names"
            }
            _ => "",
        };
        Err(format!("{}: answered {}: {start}{hint}", self.path, self.status))
    }
}

/// Asks a server for a document, as ourselves.
pub(crate) async fn get(
    ask: &impl Ask,
    path: &str,
    accept: &'static str,
    etag: Option<&HeaderValue>,
    limit: usize,
) -> Result<Answer, String> {
    let mut request = Request::get(path)
        .header(ACCEPT, accept)
        .header(ACCEPT_ENCODING, "gzip")
        .header(USER_AGENT, concat!("mvp/", env!("CARGO_PKG_VERSION")))
        .extension(Identity::System)
        .body(Body::empty())
        .map_err(|error| format!("{path}: {error}"))?;
    if let Some(etag) = etag {
        request.headers_mut().insert(IF_NONE_MATCH, etag.clone());
    }
    let response = ask.ask(request).await.map_err(|problem| format!("{path}: {problem}"))?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, limit).collect().await;
    let body = body.map_err(|error| format!("{path}: {error}"))?.to_bytes();
    let gzipped = parts.headers.get(CONTENT_ENCODING).is_some_and(|e| e.as_bytes() == b"gzip");
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Ok(Answer {
        path: path.to_owned(),
        status: parts.status,
        content_type: content_type.unwrap_or_default().to_owned(),
        etag: parts.headers.get(ETAG).cloned(),
        body: if gzipped {
            gunzip(&body, limit).map_err(|e| format!("{path}: {e}"))?
        } else {
            body
        },
    })
}

/// Undoes gzip, but not beyond the limit: a small answer can unpack to a huge one.
pub(crate) fn gunzip(packed: &[u8], limit: usize) -> std::io::Result<Bytes> {
    let mut unpacked = Vec::new();
    GzDecoder::new(packed).take(limit as u64 + 1).read_to_end(&mut unpacked)?;
    if unpacked.len() > limit {
        return Err(std::io::Error::other(format!("unpacks to more than {limit} bytes")));
    }
    Ok(unpacked.into())
}
