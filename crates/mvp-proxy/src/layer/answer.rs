//! Answering discovery and OpenAPI ourselves, in the name of the local server's authorization.

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, UPGRADE,
    VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use mvp_core::discovery::Part;
use mvp_core::discovery::negotiate::{Encoding, Form, Negotiated, NotAcceptable, Offer, negotiate};
use mvp_core::member::Member;
use mvp_core::request::DiscoveryPath;
use mvp_core::snapshot::{Document, Encoded};

use crate::body::Body;
use crate::status;

/// From this size on documents are sent packed to whoever takes that, as kube-apiserver does.
const MIN_PACKED: usize = 128 << 10;
const FORMS: [Form; 3] = [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy];
/// Of the local server alone; what is asked of it to learn whether the caller may have discovery.
const PROBE_ACCEPT: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json",
);
/// As a server offers them, the default first.
const ENCODINGS: [Encoding; 3] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];

/// What a client accepts of a discovery path; nothing where only the local server can say.
pub(super) fn accepted(headers: &HeaderMap, path: &DiscoveryPath<'_>) -> Option<Negotiated> {
    let root = matches!(path, DiscoveryPath::Api | DiscoveryPath::Apis);
    let forms = if root { &FORMS[..] } else { &[Form::Legacy] };
    let negotiated = negotiate(accept(headers), Offer { forms, encodings: &ENCODINGS }).ok()?;
    let form = path.aggregated().unwrap_or(negotiated.form);
    Some(Negotiated { form, ..negotiated })
}

/// What a client accepts.
pub(super) fn accept(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default()
}

/// The request by which a server, mostly the local one, says whether the caller may have a
/// discovery document: his own, in a form that costs least.
pub(super) fn discovery_probe(
    parts: &Parts,
    path: &DiscoveryPath<'_>,
    encoding: Encoding,
    server: &Member,
) -> Request<Body> {
    let part = match path {
        DiscoveryPath::Api => Some(Part::Api),
        DiscoveryPath::Apis => Some(Part::Apis),
        _ => None,
    };
    let accept = match encoding {
        Encoding::Json | Encoding::Yaml => PROBE_ACCEPT,
        // Not every server has these.
        other => HeaderValue::from_static(other.media_type()),
    };
    let seen = part.and_then(|part| server.view.part(part));
    let etag = seen.and_then(|seen| HeaderValue::try_from(seen.list.etag.as_deref()?).ok());
    probe(parts, accept, etag)
}

/// The request by which a server says whether the caller may have what he asks for.
pub(super) fn probe(
    parts: &Parts,
    accept: HeaderValue,
    etag: Option<HeaderValue>,
) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = parts.uri.clone();
    *request.headers_mut() = parts.headers.clone();
    *request.extensions_mut() = parts.extensions.clone();
    // The client's connection is not the probe's to take over.
    request.extensions_mut().remove::<OnUpgrade>();
    let headers = request.headers_mut();
    headers.remove(ACCEPT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    headers.remove(IF_NONE_MATCH);
    for conditional in [IF_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE, RANGE] {
        headers.remove(conditional);
    }
    headers.remove(UPGRADE);
    headers.insert(ACCEPT, accept);
    if let Some(etag) = etag {
        headers.insert(IF_NONE_MATCH, etag);
    }
    request
}

/// Whether the local server's answer to a probe is consent. It checks the caller before it looks
/// whether it has the path, so that its 404 of a peer's group is consent too.
pub(super) fn consents(status: StatusCode, path: &DiscoveryPath<'_>) -> bool {
    let root = matches!(path, DiscoveryPath::Api | DiscoveryPath::Apis);
    status == StatusCode::OK
        || status == StatusCode::NOT_MODIFIED
        || (!root && status == StatusCode::NOT_FOUND)
}

/// A discovery document as a response; nothing where it has no such encoding.
pub(super) fn answer(
    parts: &Parts,
    document: &Document,
    form: Form,
    encoding: Encoding,
) -> Option<Response<Body>> {
    let encoded = document.encoded(encoding)?;
    let kept = match form {
        Form::Legacy => Kept::Not,
        _ => Kept::ByTag { etag: &document.etag, control: "public" },
    };
    Some(respond(parts, encoded, kept, content_type(form, encoding)))
}

/// A 406 that names what is offered of discovery.
pub(super) fn not_acceptable() -> Response<Body> {
    let offered = ENCODINGS.map(Encoding::media_type).to_vec();
    status::not_acceptable(&NotAcceptable { offered })
}

/// How clients may keep what they are given.
pub(super) enum Kept<'a> {
    /// Not at all.
    Not,
    /// They may ask whether it still stands.
    ByTag {
        /// With its quotes.
        etag: &'a str,
        /// What `Cache-Control` says.
        control: &'static str,
    },
}

/// Bytes as a response, packed for whoever takes that.
pub(super) fn respond(
    parts: &Parts,
    encoded: &Encoded,
    kept: Kept<'_>,
    content_type: HeaderValue,
) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    match kept {
        Kept::Not => {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        }
        Kept::ByTag { etag, control } => {
            headers.insert(VARY, HeaderValue::from_static("Accept"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
            if let Ok(value) = HeaderValue::try_from(etag)
                && !etag.is_empty()
            {
                headers.insert(ETAG, value);
            }
            if !etag.is_empty() && has_tag(&parts.headers, etag) {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                return response;
            }
        }
    }
    headers.insert(CONTENT_TYPE, content_type);

    let packed = encoded.body.len() >= MIN_PACKED && takes_gzip(&parts.headers);
    let body: &Bytes = if packed { encoded.gzipped() } else { &encoded.body };
    if packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    if parts.method != Method::HEAD {
        *response.body_mut() = Body::from(body.clone());
    }
    response
}

/// Whether the client has what that tag names.
fn has_tag(headers: &HeaderMap, etag: &str) -> bool {
    let names = |value: &HeaderValue| {
        value.to_str().is_ok_and(|tags| {
            tags.split(',')
                .map(str::trim)
                .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
        })
    };
    headers.get_all(IF_NONE_MATCH).iter().any(names)
}

fn content_type(form: Form, encoding: Encoding) -> HeaderValue {
    let media_type = encoding.media_type();
    let version = match form {
        Form::Legacy => return HeaderValue::from_static(media_type),
        Form::AggregatedV2 => "v2",
        Form::AggregatedV2beta1 => "v2beta1",
    };
    let text = format!("{media_type};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(media_type))
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let takes = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        text.split(',').any(|coding| {
            let mut pieces = coding.split(';');
            let named = pieces.next().is_some_and(|name| name.trim() == "gzip");
            let refused = pieces.any(|piece| matches!(piece.trim(), "q=0" | "q=0.0"));
            named && !refused
        })
    };
    headers.get_all(ACCEPT_ENCODING).iter().any(takes)
}

/// Asks the local server for itself alone, wherever the client accepts aggregated documents.
pub(super) fn add_nopeer(headers: &mut HeaderMap) {
    let Some(accept) = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) else { return };
    let clauses: Vec<String> = accept
        .split(',')
        .map(|clause| {
            if clause.contains("APIGroupDiscoveryList") && !clause.contains("profile=") {
                format!("{clause};profile=nopeer")
            } else {
                clause.to_owned()
            }
        })
        .collect();
    if let Ok(accept) = HeaderValue::try_from(clauses.join(",")) {
        headers.insert(ACCEPT, accept);
    }
}
