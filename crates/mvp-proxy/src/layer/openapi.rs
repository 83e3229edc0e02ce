//! Row 1 for OpenAPI: the index of all members, the document of the member that has it, and the one
//! large document of version 2 put together of all. Entry item: [`Exchange::answer_openapi`].

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, Limited};
use mvp_core::decide::{LocalHealth, Origin, Reason};
use mvp_core::member::Member;
use mvp_core::openapi::v2::Format;
use mvp_core::openapi::{Entry, Holder};
use mvp_core::request::OpenApiPath;
use mvp_core::snapshot::Encoded;
use mvp_core::{RequestInfo, Snapshot};
use tokio::time::timeout;
use tower_service::Service;

use super::{Exchange, call};
use crate::body::{Body, BodyError};
use crate::data::answer::{self, Kept};
use crate::data::{Schema, refuse, v2_media_type};
use crate::peers::{Peers, Reachable};
use crate::status;

/// The document of one group and version. Kubernetes' largest has 1 MB.
const MAX_DOCUMENT: usize = 32 << 20;
/// No member is waited for any longer.
const WAIT: Duration = Duration::from_secs(10);
/// Whoever asked by a hash need not ask for it again.
const IMMUTABLE: &str = "public, immutable";

impl Exchange<'_> {
    pub(super) async fn answer_openapi<S, R>(
        &self,
        info: &RequestInfo<'_>,
        path: &OpenApiPath<'_>,
        snapshot: &Snapshot,
        peers: &Peers,
        local: &mut S,
    ) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        match path {
            OpenApiPath::V3 => self.openapi_index(info, snapshot, peers, local).await,
            OpenApiPath::V3Document(key) => match snapshot.openapi().entry(key) {
                Some(entry) => {
                    self.openapi_document(info, key, entry, snapshot, peers, local).await
                }
                None => self.pass_to_local(local).await,
            },
            OpenApiPath::V2 => self.openapi_v2(info, snapshot, peers, local).await,
        }
    }

    /// `/openapi/v3`
    async fn openapi_index<S, R>(
        &self,
        info: &RequestInfo<'_>,
        snapshot: &Snapshot,
        peers: &Peers,
        local: &mut S,
    ) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        // Where nobody has an index, the local server says so best.
        let Some(index) = snapshot.openapi().index() else {
            return self.pass_to_local(local).await;
        };
        let json = HeaderValue::from_static("application/json");
        let probe = |_: &Member| answer::probe(&self.parts, json.clone(), None);
        match self.consent(info, snapshot, peers, local, probe, consents).await {
            Ok(()) => {
                let kept = Kept::ByTag { etag: &index.etag, control: "no-cache, private" };
                answer::respond(&self.parts, &index.json, kept, json.clone())
            }
            Err(said) => said,
        }
    }

    /// `/openapi/v3/KEY`: of the member whose document counts. What a peer gave is kept by its hash.
    async fn openapi_document<S, R>(
        &self,
        info: &RequestInfo<'_>,
        key: &str,
        entry: &Entry,
        snapshot: &Snapshot,
        peers: &Peers,
        local: &mut S,
    ) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let is_local =
            |holder: &&Holder| snapshot.local().is_some_and(|local| local.id == holder.member);
        let own = entry.holders().iter().find(is_local);
        if own.is_some_and(|own| own.same) && self.local_health(None) == LocalHealth::Ready {
            let said = self.pass_to_local(local).await;
            // Rows 9 and 10: it may be gone, or know less than it did; others have it too.
            let elsewhere = entry.holders().len() > 1 && self.origin == Origin::Client;
            let lacks = self.lost(&said).is_some() || said.status() == StatusCode::NOT_FOUND;
            if !(lacks && elsewhere) {
                return said;
            }
        }
        let Some(format) = format(answer::accept(&self.parts.headers)) else {
            return status::not_acceptable();
        };
        let accept = HeaderValue::from_static(v3_media_type(format));
        // The local server may have another document by that name, and says so with least effort.
        let probe = |member: &Member| {
            let index = member.view.openapi.as_ref();
            let hash = index.and_then(|index| index.hash(key));
            let etag = hash.and_then(|hash| HeaderValue::try_from(format!("\"{hash}\"")).ok());
            answer::probe(&self.parts, accept.clone(), etag)
        };
        if let Err(said) = self.consent(info, snapshot, peers, local, probe, consents).await {
            return said;
        }
        let Some(hash) = entry.hash() else {
            let fetched = self.fetch(key, entry, format, snapshot, peers, local).await;
            return match fetched {
                Ok((schema, _)) => self.give(&schema, "no-cache, private"),
                Err(tried) => self.nobody_has_it(info, &tried),
            };
        };
        // As kube-apiserver does: whoever has an old hash is sent to the new one.
        let asked = asked_hash(self.parts.uri.query());
        if asked.is_some_and(|asked| asked != hash) {
            return moved(&entry.url(key));
        }
        let schemas = self.shared.reader.schemas();
        let kept = schemas.kept(key, hash, format);
        let (schema, same) = match kept {
            Some(schema) => (schema, true),
            None => match self.fetch(key, entry, format, snapshot, peers, local).await {
                Ok((schema, same)) => {
                    if same {
                        schemas.keep(key, hash, format, Arc::clone(&schema));
                    }
                    (schema, same)
                }
                Err(tried) => return self.nobody_has_it(info, &tried),
            },
        };
        // Another document than the one of that hash must not be kept in its place.
        let immutable = same && asked.is_some();
        self.give(&schema, if immutable { IMMUTABLE } else { "no-cache, private" })
    }

    /// Has the document from whoever has it: the one of that hash, failing that another for the
    /// same key. Gives whether it is the one.
    async fn fetch<S, R>(
        &self,
        key: &str,
        entry: &Entry,
        format: Format,
        snapshot: &Snapshot,
        peers: &Peers,
        local: &mut S,
    ) -> Result<(Arc<Schema>, bool), Vec<String>>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let accept = HeaderValue::from_static(v3_media_type(format));
        let hash = entry.hash();
        let mut tried = Vec::new();
        let mut another = None;
        for holder in entry.holders() {
            let Some(member) = snapshot.member_by_id(&holder.member) else { continue };
            // One that is not the one is good for when there is no better.
            if !holder.same && another.is_some() {
                break;
            }
            let request = |_: &Member| {
                let mut request = answer::probe(&self.parts, accept.clone(), None);
                // Asked by a hash, a server may send us elsewhere.
                if let Ok(uri) = format!("/openapi/v3/{key}").parse() {
                    *request.uri_mut() = uri;
                }
                request
            };
            let is_local = snapshot.local().is_some_and(|local| local.id == member.id);
            let asked = async {
                let said = if is_local {
                    match self.local_health(None) {
                        LocalHealth::Unreachable => return None,
                        _ => Some(call(local, request(member)).await)
                            .filter(|said| self.lost(said).is_none()),
                    }
                } else if self.origin == Origin::Client {
                    peers.ask_one(member, request).await.ok().map(|(_, said)| said)
                } else {
                    // What says that it was passed on is not passed on.
                    None
                };
                read(said?).await
            };
            let read = timeout(WAIT, asked).await.ok().flatten();
            match read {
                Some(schema) => {
                    let tag = schema.etag.trim_matches('"');
                    let same = hash.is_some_and(|hash| hash == tag);
                    if holder.same && hash.is_some() && !same {
                        self.shared.metrics.discovery_failed();
                        tracing::debug!(member = %member.id, key, "its OpenAPI document is not the one that its index names");
                    }
                    let schema = Arc::new(schema);
                    if same || hash.is_none() {
                        return Ok((schema, same));
                    }
                    another = another.or(Some(schema));
                }
                None => tried.push(member.id.to_string()),
            }
        }
        another.map(|schema| (schema, false)).ok_or(tried)
    }

    /// `/openapi/v2`
    async fn openapi_v2<S, R>(
        &self,
        info: &RequestInfo<'_>,
        snapshot: &Snapshot,
        peers: &Peers,
        local: &mut S,
    ) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let Some(format) = format(answer::accept(&self.parts.headers)) else {
            return self.pass_to_local(local).await;
        };
        let (reader, schemas) = (&self.shared.reader, self.shared.reader.schemas());
        let accept = HeaderValue::from_static(v2_media_type(format));
        let probe = |member: &Member| {
            answer::probe(&self.parts, accept.clone(), schemas.etag_of(&member.id, format))
        };
        if let Err(said) = self.consent(info, snapshot, peers, local, probe, consents).await {
            return said;
        }
        let id = snapshot.local().map(|local| (Arc::clone(&local.id), self.shared.local.clone()));
        let reach = Reachable { local: id, peers: Some(peers.ways()) };
        let reach = |member: &Member| reach.reach_member(member);
        let metrics = &self.shared.metrics;
        match schemas.v2(format, snapshot, || reader.now(), reach, metrics).await {
            Some(schema) => self.give(&schema, "no-cache, private"),
            None => self.pass_to_local(local).await,
        }
    }

    fn give(&self, schema: &Schema, control: &'static str) -> Response<Body> {
        let kept = Kept::ByTag { etag: &schema.etag, control };
        answer::respond(&self.parts, &schema.encoded, kept, schema.content_type.clone())
    }

    fn nobody_has_it(&self, info: &RequestInfo<'_>, tried: &[String]) -> Response<Body> {
        refuse::refuse(info, Reason::NobodyReachable, tried, &self.identity)
    }
}

/// What a server says to whom it lets have a document, be it its own or not.
fn consents(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::OK
            | StatusCode::NOT_MODIFIED
            | StatusCode::NOT_FOUND
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::MOVED_PERMANENTLY
    )
}

/// A whole document; nothing where it is none.
async fn read(said: Response<Body>) -> Option<Schema> {
    let (parts, body) = said.into_parts();
    if parts.status != StatusCode::OK {
        return None;
    }
    let content_type = parts.headers.get(CONTENT_TYPE)?.clone();
    let etag = parts.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default();
    let body = Limited::new(body, MAX_DOCUMENT).collect().await.ok()?.to_bytes();
    Some(Schema { content_type, etag: etag.into(), encoded: Encoded::new(body) })
}

fn moved(to: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::try_from(to) {
        response.headers_mut().insert(LOCATION, location);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn asked_hash(query: Option<&str>) -> Option<&str> {
    let mut pairs = query.unwrap_or_default().split('&');
    pairs.find_map(|pair| pair.strip_prefix("hash=")).filter(|hash| !hash.is_empty())
}

fn v3_media_type(format: Format) -> &'static str {
    match format {
        Format::Json => "application/json",
        Format::Protobuf => "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    }
}

/// How a client wants a document of OpenAPI; nothing where it wants none that there is.
fn format(accept: &str) -> Option<Format> {
    if accept.is_empty() {
        return Some(Format::Json);
    }
    accept.split(',').find_map(|clause| {
        let media_type = clause.split(';').next().unwrap_or_default().trim();
        match media_type {
            "*/*" | "application/*" | "application/json" => Some(Format::Json),
            other if other.starts_with("application/com.github.proto-openapi.spec.v") => {
                other.ends_with("+protobuf").then_some(Format::Protobuf)
            }
            _ => None,
        }
    })
}
