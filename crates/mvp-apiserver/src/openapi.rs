//! OpenAPI v3 of a server: an index, and one document for each group and version. Entry: [`respond`].
//!
//! Documents are put together when they are asked for: paths from the served resources, schemas from
//! the release. Their hashes come from the same sources, so that the index needs no document. A
//! server without a release has no schemas and no documents: 404.
//!
//! Schemas of custom resources come from [`Surface::custom_schemas`].

mod paths;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, Response, StatusCode};
use mvp_core::request::OpenApiPath;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::release::Release;
use crate::respond::{self, Body};
use crate::spec::{GroupSpec, VersionSpec};
use crate::surface::Surface;

/// Responds to a path below `/openapi`.
pub(crate) fn respond(
    surface: &Surface,
    path: &OpenApiPath<'_>,
    headers: &HeaderMap,
) -> Response<Body> {
    let Some(release) = surface.release else { return respond::page_not_found() };
    match path {
        OpenApiPath::V2 => respond::page_not_found(),
        OpenApiPath::V3 => index(surface, release, headers),
        OpenApiPath::V3Document(key) => {
            let mut documents = Document::all(surface, release);
            match documents.find(|document| document.key() == **key) {
                Some(document) => document.respond(headers),
                None => respond::page_not_found(),
            }
        }
    }
}

fn index(surface: &Surface, release: Release, headers: &HeaderMap) -> Response<Body> {
    let entry = |document: Document<'_>| {
        let key = document.key();
        let url = format!("/openapi/v3/{key}?hash={}", document.hash());
        (key, json!({ "serverRelativeURL": url }))
    };
    let paths: BTreeMap<String, Value> = Document::all(surface, release).map(entry).collect();
    let text = respond::line(&json!({ "paths": paths }));
    let etag = hexadecimal(&Sha512::digest(&text));
    conditional(headers, &etag, || text)
}

/// The document of one group and version.
#[derive(Clone, Copy)]
struct Document<'a> {
    surface: &'a Surface,
    release: Release,
    group: &'a GroupSpec,
    version: &'a VersionSpec,
}

impl<'a> Document<'a> {
    fn all(surface: &'a Surface, release: Release) -> impl Iterator<Item = Document<'a>> {
        surface.groups.iter().flat_map(move |group| {
            let document = move |version| Document { surface, release, group, version };
            group.versions.iter().map(document)
        })
    }

    /// The key in the index: `api/v1`, or `apis/batch/v1`.
    fn key(&self) -> String {
        match self.group.name.as_str() {
            "" => format!("api/{}", self.version.version),
            group => format!("apis/{group}/{}", self.version.version),
        }
    }

    /// A hash that changes when the document does.
    fn hash(&self) -> String {
        let mut hash = Sha512::new();
        hash.update(env!("CARGO_PKG_VERSION"));
        hash.update(self.surface.git_version.as_bytes());
        hash.update(format!("{:?}{:?}", self.group.name, self.version));
        if let Some(custom) = self.custom() {
            hash.update(respond::line(custom));
        }
        hexadecimal(&hash.finalize())
    }

    fn respond(&self, headers: &HeaderMap) -> Response<Body> {
        conditional(headers, &self.hash(), || self.text())
    }

    fn custom(&self) -> Option<&'a Map<String, Value>> {
        self.surface.custom_schemas(&self.group.name, &self.version.version)
    }

    /// The document as JSON.
    fn text(&self) -> Bytes {
        let schemas = self.release.schemas();
        let subresources = self.version.resources.iter().flat_map(|entry| &entry.subresources);
        let kinds = subresources.filter_map(|entry| entry.kind.as_ref());
        let (group, version) = (&self.group.name, &self.version.version);
        let mut recorded = schemas.of_version(group, version, kinds);
        let custom = self.custom();
        if recorded.is_empty() {
            recorded = schemas.general();
        }
        let mut components: BTreeMap<&str, String> =
            recorded.into_iter().map(|(name, text)| (name, text.to_owned())).collect();
        let custom = custom.into_iter().flatten();
        components.extend(custom.map(|(name, schema)| (name.as_str(), schema.to_string())));

        let mut text = String::from("{\"components\":{\"schemas\":{");
        for (place, (name, schema)) in components.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}{}:{schema}", Value::from(*name));
        }
        let info = json!({ "title": "Kubernetes", "version": self.surface.git_version });
        let paths = Value::Object(paths::of(self.group, self.version));
        let _ = write!(text, "}}}},\"info\":{info},\"openapi\":\"3.0.0\",\"paths\":{paths}}}");
        text.into()
    }
}

/// A JSON response with an entity tag, or 304; compressed if the caller asks for it.
fn conditional(headers: &HeaderMap, hash: &str, text: impl FnOnce() -> Bytes) -> Response<Body> {
    let etag = format!("\"{hash}\"");
    let same = field(headers, &IF_NONE_MATCH).split(',').any(|known| known.trim() == etag);
    let mut response = if same {
        let mut response = Response::new(respond::full(Bytes::new()));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let gzip = accepts_gzip(field(headers, &ACCEPT_ENCODING));
        let body = if gzip { compressed(&text()) } else { text() };
        let mut response = Response::new(respond::full(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(ETAG, etag);
    }
    response
}

fn compressed(text: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(text);
    encoder.finish().unwrap_or_default().into()
}

fn accepts_gzip(header: &str) -> bool {
    header.split(',').any(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let gzip = matches!(parts.next(), Some("gzip" | "*"));
        gzip && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// The first value of a header; empty if it is absent or not text.
fn field<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
