//! Row 1 for OpenAPI: the merged index, the documents of the members that have them, and the merged
//! document of version 2. Entry item: [`Exchange::answer_openapi`].

use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use mvp_core::Snapshot;
use mvp_core::decide::{LocalHealth, Reason};
use mvp_core::discovery::negotiate::NotAcceptable;
use mvp_core::member::{Member, ViewDocument};
use mvp_core::openapi::v2::Format;
use mvp_core::openapi::{Entry, Holder};
use mvp_core::request::OpenApiPath;
use mvp_core::snapshot::Encoded;
use tokio::time::timeout;

use super::answer::{self, Caching};
use super::exchange::{Exchange, no_response};
use super::refuse::refuse;
use super::renew::Evidence;
use crate::body::Body;
use crate::control::{Reach, Reachable, Schema, v2_media_type};
use crate::local::Local;
use crate::status;

/// The time limit for a member's document.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The `Cache-Control` of a document requested by its hash.
const IMMUTABLE: &str = "public, immutable";
const NO_CACHE: &str = "no-cache, private";

impl Exchange<'_> {
    /// Answers a request for OpenAPI for the whole cluster.
    pub(super) async fn answer_openapi(
        &self,
        path: &OpenApiPath<'_>,
        snapshot: &Snapshot,
        local: &mut Local,
    ) -> Response<Body> {
        match path {
            OpenApiPath::V3 => self.openapi_index(snapshot, local).await,
            OpenApiPath::V3Document(key) => match snapshot.openapi().entry(key) {
                Some(entry) => self.openapi_document(key, entry, snapshot, local).await,
                None => self.pass_to_local(local).await,
            },
            OpenApiPath::V2 => self.openapi_v2(snapshot, local).await,
        }
    }

    /// `/openapi/v3`
    async fn openapi_index(&self, snapshot: &Snapshot, local: &mut Local) -> Response<Body> {
        // If no member has an index, the local server's own response is the best one.
        let Some(index) = snapshot.openapi().index() else {
            return self.pass_to_local(local).await;
        };
        let json = HeaderValue::from_static("application/json");
        let document = ViewDocument::OpenApi;
        let probe = |member: &Member| {
            let etag = member.view.etag(document).and_then(|tag| HeaderValue::try_from(tag).ok());
            answer::probe(&self.request.parts, json.clone(), etag)
        };
        match self.consent(snapshot, local, probe, consents).await {
            Ok(consent) => {
                let evidence = Evidence::of_tag(&consent, snapshot, document);
                let renewed = self.renewed(document, snapshot, &consent.by, evidence).await;
                let renewed = renewed.as_deref().and_then(|snapshot| snapshot.openapi().index());
                let index = renewed.unwrap_or(index);
                let caching = Caching::ByTag { etag: &index.etag, control: NO_CACHE };
                answer::respond(&self.request.parts, &index.json, caching, json.clone())
            }
            Err(response) => response,
        }
    }

    /// `/openapi/v3/KEY`: the document of the member that the index names. Documents of peers are
    /// cached by their hash.
    async fn openapi_document(
        &self,
        key: &str,
        entry: &Entry,
        snapshot: &Snapshot,
        local: &mut Local,
    ) -> Response<Body> {
        let is_local =
            |holder: &&Holder| snapshot.local().is_some_and(|local| local.id == holder.member);
        let own = entry.holders().iter().find(is_local);
        if own.is_some_and(|own| own.same) && self.local_health() == LocalHealth::Ready {
            let sent = self.try_local(local).await;
            // Rows 9 and 10: the local server may be down, or no longer serve the group. Peers may
            // have the document.
            let elsewhere = entry.holders().len() > 1 && self.may_ask_peers();
            let lacks = match &sent {
                Ok(response) => response.status() == StatusCode::NOT_FOUND,
                Err(_) => true,
            };
            if !(lacks && elsewhere) {
                return sent.unwrap_or_else(no_response);
            }
        }
        let Some(format) = format(answer::accept(&self.request.parts.headers)) else {
            let offered = [Format::Json, Format::Protobuf].map(v3_media_type).to_vec();
            return status::not_acceptable(&NotAcceptable { offered });
        };
        let accept = HeaderValue::from_static(v3_media_type(format));
        // The local server may have another document under this key. With that document's hash the
        // probe costs it least.
        let probe = |member: &Member| {
            let index = member.view.openapi.as_ref();
            let hash = index.and_then(|index| index.hash(key));
            let etag = hash.and_then(|hash| HeaderValue::try_from(format!("\"{hash}\"")).ok());
            answer::probe(&self.request.parts, accept.clone(), etag)
        };
        if let Err(response) = self.consent(snapshot, local, probe, consents).await {
            return response;
        }
        let Some(hash) = entry.hash() else {
            let fetched = self.fetch(key, entry, format, snapshot, local).await;
            return match fetched {
                Ok((schema, _)) => self.respond(&schema, NO_CACHE),
                Err(tried) => self.unavailable(&tried),
            };
        };
        // An old hash is redirected to the new one, as with kube-apiserver.
        let requested = requested_hash(self.request.parts.uri.query());
        if requested.is_some_and(|requested| requested != hash) {
            return redirect(&entry.url(key));
        }
        let schemas = self.shared.reader.schemas();
        let cached = schemas.kept(key, hash, format);
        let (schema, same) = match cached {
            Some(schema) => (schema, true),
            None => match self.fetch(key, entry, format, snapshot, local).await {
                Ok((schema, same)) => {
                    if same {
                        schemas.keep(key, hash, format, Arc::clone(&schema));
                    }
                    (schema, same)
                }
                Err(tried) => return self.unavailable(&tried),
            },
        };
        // A client must not cache another document under the requested hash.
        let immutable = same && requested.is_some();
        self.respond(&schema, if immutable { IMMUTABLE } else { NO_CACHE })
    }

    /// Fetches a document from a member that has it: the one with the hash of the index, else
    /// another one for the same key. Returns whether it is the former, or the IDs of the members
    /// tried.
    async fn fetch(
        &self,
        key: &str,
        entry: &Entry,
        format: Format,
        snapshot: &Snapshot,
        local: &mut Local,
    ) -> Result<(Arc<Schema>, bool), Vec<String>> {
        let accept = HeaderValue::from_static(v3_media_type(format));
        let hash = entry.hash();
        let mut tried = Vec::new();
        let mut fallback = None;
        for holder in entry.holders() {
            let Some(member) = snapshot.member_by_id(&holder.member) else { continue };
            // One document with another hash is enough as a fallback.
            if !holder.same && fallback.is_some() {
                break;
            }
            let request = |_: &Member| {
                let mut request = answer::probe(&self.request.parts, accept.clone(), None);
                // Without the hash in the query, a server does not redirect.
                if let Ok(uri) = format!("/openapi/v3/{key}").parse() {
                    *request.uri_mut() = uri;
                }
                request
            };
            let is_local = snapshot.local().is_some_and(|local| local.id == member.id);
            let asked = async {
                let response = if is_local {
                    self.ask_local_for(request(member), local).await
                } else if self.may_ask_peers() {
                    self.peers.ask_one(member, request).await.ok().map(|(_, response)| response)
                } else {
                    None
                };
                read(response?, self.shared.reader.schemas().limits().max_bytes).await
            };
            let read = timeout(FETCH_TIMEOUT, asked).await.ok().flatten();
            match read {
                Some(schema) => {
                    let tag = schema.etag.trim_matches('"');
                    let same = hash.is_some_and(|hash| hash == tag);
                    if holder.same && hash.is_some() && !same {
                        self.shared.metrics.discovery_failed();
                        let member = &member.id;
                        tracing::debug!(%member, key, "OpenAPI document differs from index");
                    }
                    let schema = Arc::new(schema);
                    if same || hash.is_none() {
                        return Ok((schema, same));
                    }
                    fallback = fallback.or(Some(schema));
                }
                None => tried.push(member.id.to_string()),
            }
        }
        fallback.map(|schema| (schema, false)).ok_or(tried)
    }

    /// `/openapi/v2`
    async fn openapi_v2(&self, snapshot: &Snapshot, local: &mut Local) -> Response<Body> {
        let Some(format) = format(answer::accept(&self.request.parts.headers)) else {
            return self.pass_to_local(local).await;
        };
        let (reader, schemas) = (&self.shared.reader, self.shared.reader.schemas());
        let accept = HeaderValue::from_static(v2_media_type(format));
        let probe = |member: &Member| {
            answer::probe(&self.request.parts, accept.clone(), schemas.etag_of(&member.id, format))
        };
        if let Err(response) = self.consent(snapshot, local, probe, consents).await {
            return response;
        }
        let id = snapshot.local().map(|local| (Arc::clone(&local.id), self.shared.slot.clone()));
        let reach = Reachable { local: id, peers: Some(self.peers.ways()) };
        let reach = |member: &Member| reach.reach(member);
        let metrics = &self.shared.metrics;
        match schemas.v2(format, snapshot, || reader.now(), reach, metrics).await {
            Some(schema) => self.respond(&schema, NO_CACHE),
            None => self.pass_to_local(local).await,
        }
    }

    fn respond(&self, schema: &Schema, control: &'static str) -> Response<Body> {
        let caching = Caching::ByTag { etag: &schema.etag, control };
        answer::respond(&self.request.parts, &schema.encoded, caching, schema.content_type.clone())
    }

    /// A 503: no member that has the document could be reached.
    fn unavailable(&self, tried: &[String]) -> Response<Body> {
        refuse(&self.info, Reason::NobodyReachable, tried, &self.request.identity)
    }
}

/// Whether the response to a probe means that the caller is authorized. The server need not have
/// the document itself.
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

/// Reads a document; `None` if the response has none.
async fn read(response: Response<Body>, max_bytes: usize) -> Option<Schema> {
    let (parts, body) = response.into_parts();
    if parts.status != StatusCode::OK {
        return None;
    }
    let content_type = parts.headers.get(CONTENT_TYPE)?.clone();
    let etag = parts.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default();
    let body = Limited::new(body, max_bytes).collect().await.ok()?.to_bytes();
    Some(Schema { content_type, etag: etag.into(), encoded: Encoded::new(body) })
}

fn redirect(to: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::try_from(to) {
        response.headers_mut().insert(LOCATION, location);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(NO_CACHE));
    response
}

/// The hash in the query, if there is one.
fn requested_hash(query: Option<&str>) -> Option<&str> {
    let mut pairs = query.unwrap_or_default().split('&');
    pairs.find_map(|pair| pair.strip_prefix("hash=")).filter(|hash| !hash.is_empty())
}

fn v3_media_type(format: Format) -> &'static str {
    match format {
        Format::Json => "application/json",
        Format::Protobuf => "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    }
}

/// The format of OpenAPI documents that a client accepts; `None` if it accepts neither.
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
