//! The page, its style and its script. Entry: [`routes`].
//!
//! Everything is in the binary. The page loads nothing from elsewhere, and its headers forbid it to.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// A file of the page.
pub(super) struct Asset {
    pub(super) path: &'static str,
    kind: &'static str,
    pub(super) body: &'static str,
}

/// All files of the page. A script is a module: it runs when the page is complete.
pub(super) const ASSETS: [Asset; 7] = [
    Asset {
        path: super::PATH,
        kind: "text/html; charset=utf-8",
        body: include_str!("../../assets/dashboard/index.html"),
    },
    Asset {
        path: "/dashboard/page.css",
        kind: "text/css; charset=utf-8",
        body: include_str!("../../assets/dashboard/page.css"),
    },
    Asset {
        path: "/dashboard/page.js",
        kind: "text/javascript; charset=utf-8",
        body: include_str!("../../assets/dashboard/page.js"),
    },
    Asset {
        path: "/dashboard/parts.js",
        kind: "text/javascript; charset=utf-8",
        body: include_str!("../../assets/dashboard/parts.js"),
    },
    Asset {
        path: "/dashboard/drawing.js",
        kind: "text/javascript; charset=utf-8",
        body: include_str!("../../assets/dashboard/drawing.js"),
    },
    Asset {
        path: "/dashboard/theme.js",
        kind: "text/javascript; charset=utf-8",
        body: include_str!("../../assets/dashboard/theme.js"),
    },
    Asset {
        path: "/dashboard/icon.svg",
        kind: "image/svg+xml",
        body: include_str!("../../assets/dashboard/icon.svg"),
    },
];

/// The headers of every response: nothing from elsewhere, no frame, and no other site may read it.
const GUARDS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
];

/// The routes of the files.
pub(super) fn routes() -> Router {
    ASSETS.iter().fold(Router::new(), |router, asset| {
        router.route(
            asset.path,
            get(move |headers: HeaderMap| async move { served(asset, &headers) }),
        )
    })
}

/// Adds the headers that every response has. What is not a file is never kept.
pub(super) fn guard(headers: &mut HeaderMap) {
    for (name, value) in GUARDS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// A file, or 304 if the browser has it.
fn served(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let mut hasher = DefaultHasher::new();
    asset.body.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let fresh = known.flat_map(|value| value.split(',')).any(|value| value.trim() == tag);
    let caching = [(CACHE_CONTROL, "no-cache".to_owned()), (ETAG, tag)];
    if fresh {
        return (StatusCode::NOT_MODIFIED, caching).into_response();
    }
    (caching, [(CONTENT_TYPE, asset.kind)], asset.body).into_response()
}
