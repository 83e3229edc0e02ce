//! Answering discovery from the snapshot, in the name of the local server's authorization.

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, UPGRADE, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use mvp_core::discovery::Part;
use mvp_core::discovery::negotiate::{Encoding, Form, Negotiated, Offer, negotiate};
use mvp_core::member::Member;
use mvp_core::request::DiscoveryPath;
use mvp_core::snapshot::Document;

use crate::body::Body;

/// From this size on documents are sent packed to whoever takes that, as kube-apiserver does.
const MIN_PACKED: usize = 128 << 10;
const FORMS: [Form; 3] = [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy];
/// Of the local server alone; what is asked of it to learn whether the caller may have discovery.
const PROBE_ACCEPT: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json",
);

/// What a client accepts of a discovery path; nothing where only the local server can say.
pub(crate) fn accepted(headers: &HeaderMap, path: &DiscoveryPath<'_>) -> Option<Negotiated> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let root = matches!(path, DiscoveryPath::Api | DiscoveryPath::Apis);
    let forms = if root { &FORMS[..] } else { &[Form::Legacy] };
    negotiate(accept, Offer { forms, encodings: &[Encoding::Json] }).ok()
}

/// The request by which a server, mostly the local one, says whether the caller may have discovery:
/// his own, in a form that costs least.
pub(crate) fn probe(parts: &Parts, path: &DiscoveryPath<'_>, server: &Member) -> Request<Body> {
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
    headers.remove(UPGRADE);
    headers.insert(ACCEPT, PROBE_ACCEPT);
    let part = match path {
        DiscoveryPath::Api => Some(Part::Api),
        DiscoveryPath::Apis => Some(Part::Apis),
        _ => None,
    };
    let seen = part.and_then(|part| server.view.part(part));
    let etag = seen.and_then(|seen| HeaderValue::try_from(seen.list.etag.as_deref()?).ok());
    if let Some(etag) = etag {
        headers.insert(IF_NONE_MATCH, etag);
    }
    request
}

/// Whether the local server's answer to a probe is consent. It checks the caller before it looks
/// whether it has the path, so that its 404 of a peer's group is consent too.
pub(crate) fn consents(status: StatusCode, path: &DiscoveryPath<'_>) -> bool {
    let root = matches!(path, DiscoveryPath::Api | DiscoveryPath::Apis);
    status == StatusCode::OK
        || status == StatusCode::NOT_MODIFIED
        || (!root && (status == StatusCode::NOT_FOUND || status == StatusCode::NOT_ACCEPTABLE))
}

/// The document as a response.
pub(crate) fn answer(parts: &Parts, document: &Document, form: Form) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let etag = HeaderValue::try_from(&*document.etag).ok();
    let headers = response.headers_mut();
    let aggregated = form != Form::Legacy;
    if aggregated {
        if let Some(etag) = &etag {
            headers.insert(ETAG, etag.clone());
        }
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        if etag.is_some() && parts.headers.get(IF_NONE_MATCH) == etag.as_ref() {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
    } else {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    }
    headers.insert(CONTENT_TYPE, content_type(form));

    let packed = document.body.len() >= MIN_PACKED && takes_gzip(&parts.headers);
    let body: &Bytes = if packed { document.gzipped() } else { &document.body };
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

fn content_type(form: Form) -> HeaderValue {
    HeaderValue::from_static(match form {
        Form::AggregatedV2 => {
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        }
        Form::AggregatedV2beta1 => {
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
        }
        Form::Legacy => "application/json",
    })
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
pub(crate) fn add_nopeer(headers: &mut HeaderMap) {
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
