//! Responses with discovery and OpenAPI documents of the whole cluster, and the probes that ask a
//! server whether the caller is authorized. Entry items: [`accepted`], [`probe`], [`respond`].

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, UPGRADE,
    VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use mvp_core::discovery::negotiate::{Encoding, Form, Negotiated, NotAcceptable, Offer, negotiate};
use mvp_core::member::Member;
use mvp_core::request::DiscoveryPath;
use mvp_core::snapshot::{Document, Encoded};

use crate::body::Body;
use crate::control::ACCEPT_DISCOVERY;
use crate::status;

/// The smallest document that is compressed, as with kube-apiserver.
const MIN_COMPRESSED: usize = 128 << 10;
const FORMS: [Form; 3] = [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy];
/// The `Accept` of a probe for discovery: only the server's own document, in the form of our view, so
/// that its entity tag can match.
const PROBE_ACCEPT: HeaderValue = HeaderValue::from_static(ACCEPT_DISCOVERY);
const PROBE_ACCEPT_PROTOBUF: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList;q=0.9,\
application/vnd.kubernetes.protobuf;q=0.8",
);
const PROBE_ACCEPT_CBOR: HeaderValue = HeaderValue::from_static(
    "application/cbor;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer",
);
/// The encodings on offer, the default first.
const ENCODINGS: [Encoding; 3] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];
/// The encodings of a server with CBOR: 1.37 with gate `CBORServingAndStorage`.
const WITH_CBOR: [Encoding; 4] =
    [Encoding::Json, Encoding::Yaml, Encoding::Protobuf, Encoding::Cbor];

/// The negotiated form of a discovery document; `None` if it is not on offer here. The local server
/// may have more forms.
pub(super) fn accepted(headers: &HeaderMap, path: &DiscoveryPath<'_>) -> Option<Negotiated> {
    accepted_of(headers, path, &ENCODINGS)
}

/// As [`accepted`], if CBOR is on offer too.
pub(super) fn accepted_with_cbor(
    headers: &HeaderMap,
    path: &DiscoveryPath<'_>,
) -> Option<Negotiated> {
    accepted_of(headers, path, &WITH_CBOR)
}

fn accepted_of(
    headers: &HeaderMap,
    path: &DiscoveryPath<'_>,
    encodings: &[Encoding],
) -> Option<Negotiated> {
    let root = matches!(path, DiscoveryPath::Api | DiscoveryPath::Apis);
    let forms = if root { &FORMS[..] } else { &[Form::Legacy] };
    let negotiated = negotiate(accept(headers), Offer { forms, encodings }).ok()?;
    let form = path.aggregated().unwrap_or(negotiated.form);
    Some(Negotiated { form, ..negotiated })
}

/// The `Accept` header.
pub(super) fn accept(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default()
}

/// A probe for a discovery document: a conditional request in the form that costs the server least.
pub(super) fn discovery_probe(
    parts: &Parts,
    path: &DiscoveryPath<'_>,
    encoding: Encoding,
    server: &Member,
) -> Request<Body> {
    let root = matches!(path, DiscoveryPath::Api | DiscoveryPath::Apis);
    let accept = match probed(encoding) {
        // Not every server has protobuf.
        Encoding::Protobuf => PROBE_ACCEPT_PROTOBUF,
        _ => PROBE_ACCEPT,
    };
    let etag = server.view.etag(path.part().into()).filter(|_| root);
    probe(parts, accept, etag.and_then(|etag| HeaderValue::try_from(etag).ok()))
}

/// A probe that tells whether a server has CBOR: for the document of that half, whatever the request
/// is for. A server without CBOR answers 406, one with it mostly 304.
pub(super) fn cbor_probe(
    parts: &Parts,
    path: &DiscoveryPath<'_>,
    server: &Member,
) -> Request<Body> {
    let part = path.part();
    let etag = server.view.etag(part.into()).and_then(|etag| HeaderValue::try_from(etag).ok());
    let mut request = probe(parts, PROBE_ACCEPT_CBOR, etag);
    *request.uri_mut() = http::Uri::from_static(part.path());
    request
}

/// Whether the response to that probe says so.
pub(super) fn has_cbor(response: &Response<Body>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    match response.status() {
        StatusCode::NOT_MODIFIED => true,
        StatusCode::OK => kind.is_some_and(|kind| kind.starts_with(b"application/cbor")),
        _ => false,
    }
}

/// The encoding in which a server is asked for what a client wants in `encoding`.
pub(super) fn probed(encoding: Encoding) -> Encoding {
    match encoding {
        Encoding::Yaml | Encoding::Cbor => Encoding::Json,
        other => other,
    }
}

/// A probe: the caller's own request, by whose status a server tells whether the caller is
/// authorized.
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
    // A probe must never take over the client's connection.
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

/// Whether the response to a probe means that the caller is authorized. A server authorizes before
/// it routes, so a 404 for a group that only a peer serves means it too.
pub(super) fn consents(status: StatusCode, path: &DiscoveryPath<'_>) -> bool {
    let root = matches!(path, DiscoveryPath::Api | DiscoveryPath::Apis);
    status == StatusCode::OK
        || status == StatusCode::NOT_MODIFIED
        || (!root && status == StatusCode::NOT_FOUND)
}

/// A response with a discovery document; `None` if the document has no such encoding.
pub(super) fn answer(
    parts: &Parts,
    document: &Document,
    form: Form,
    encoding: Encoding,
) -> Option<Response<Body>> {
    let encoded = document.encoded(encoding)?;
    let caching = match form {
        Form::Legacy => Caching::Off,
        _ => Caching::ByTag { etag: &document.etag, control: "public" },
    };
    Some(respond(parts, encoded, caching, content_type(form, encoding)))
}

/// A 406 that names the media types of discovery on offer.
pub(super) fn not_acceptable() -> Response<Body> {
    let offered = ENCODINGS.map(Encoding::media_type).to_vec();
    status::not_acceptable(&NotAcceptable { offered })
}

/// How clients may cache a response.
pub(super) enum Caching<'a> {
    /// Not at all.
    Off,
    /// With revalidation by `If-None-Match`.
    ByTag {
        /// The value of `ETag`, with quotes. If it is empty, there is no `ETag`.
        etag: &'a str,
        /// The value of `Cache-Control`.
        control: &'static str,
    },
}

/// A response with a document, compressed if the client accepts gzip. A 304 if the client has it.
pub(super) fn respond(
    parts: &Parts,
    encoded: &Encoded,
    caching: Caching<'_>,
    content_type: HeaderValue,
) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    match caching {
        Caching::Off => {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        }
        Caching::ByTag { etag, control } => {
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

    let compressed = encoded.body.len() >= MIN_COMPRESSED && accepts_gzip(&parts.headers);
    let body: &Bytes = if compressed { encoded.gzipped() } else { &encoded.body };
    if compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    if parts.method != Method::HEAD {
        *response.body_mut() = Body::from(body.clone());
    }
    response
}

/// Whether `If-None-Match` names this tag.
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

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepts = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        text.split(',').any(|coding| {
            let mut pieces = coding.split(';');
            let named = pieces.next().is_some_and(|name| name.trim() == "gzip");
            let refused = pieces.any(|piece| matches!(piece.trim(), "q=0" | "q=0.0"));
            named && !refused
        })
    };
    headers.get_all(ACCEPT_ENCODING).iter().any(accepts)
}

/// Adds `profile=nopeer` to the aggregated forms in `Accept`, so that a server answers for itself
/// alone.
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
