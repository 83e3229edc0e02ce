//! Discovery, `/version`, health and the index of paths. Entry: [`Description`].

mod documents;

use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, Method, Response, StatusCode};
use mvp_core::discovery::negotiate::{Encoding, Form, Negotiated, Offer, negotiate};
use mvp_core::discovery::{GroupList, Part, convert};
use mvp_core::member::Version;
use mvp_core::request::DiscoveryPath;
use serde_json::json;

use crate::respond::{self, Body};
use crate::spec::GroupSpec;
use crate::status::Failure;
use documents::Aggregated;

/// The documents of a server about itself, created once.
#[derive(Debug)]
pub(crate) struct Description {
    api: Half,
    apis: Half,
    git_version: String,
}

/// One half of the API surface: `/api` or `/apis`.
#[derive(Debug)]
struct Half {
    list: GroupList,
    aggregated: Aggregated,
}

impl Description {
    pub(crate) fn new(id: &str, git_version: &str, groups: &[GroupSpec]) -> Description {
        let half = |part| {
            let list = documents::group_list(id, groups, part);
            Half { aggregated: Aggregated::new(&list), list }
        };
        Description {
            api: half(Part::Api),
            apis: half(Part::Apis),
            git_version: git_version.to_owned(),
        }
    }

    /// Responds to a discovery path.
    pub(crate) fn discovery(
        &self,
        path: &DiscoveryPath<'_>,
        headers: &HeaderMap,
    ) -> Response<Body> {
        let half = match path {
            DiscoveryPath::Api => return self.root(Part::Api, headers),
            DiscoveryPath::Apis => return self.root(Part::Apis, headers),
            DiscoveryPath::Group(group) | DiscoveryPath::GroupVersion(group, _) => {
                self.half(Part::of_group(group))
            }
        };
        if let Err(failure) = acceptable(headers, &[Form::Legacy]) {
            return failure.into_response();
        }
        match path {
            DiscoveryPath::GroupVersion(name, version) => match half.list.group(name) {
                Some(group) => match convert::resource_list(group, version) {
                    Some(list) => respond::json(StatusCode::OK, &list),
                    None => Failure::not_routed().into_response(),
                },
                // Real servers always serve `/api`.
                None if name.is_empty() => Failure::not_routed().into_response(),
                None => respond::page_not_found(),
            },
            DiscoveryPath::Group(name) => match half.list.group(name) {
                Some(group) => respond::json(StatusCode::OK, &convert::group(group)),
                None => respond::page_not_found(),
            },
            DiscoveryPath::Api | DiscoveryPath::Apis => respond::page_not_found(),
        }
    }

    /// Responds to a path that is neither a resource nor discovery.
    pub(crate) fn other(&self, method: &Method, path: &str) -> Response<Body> {
        match path {
            "/healthz" | "/livez" | "/readyz" => respond::text(StatusCode::OK, "ok"),
            "/version" | "/" if method == Method::GET || method == Method::HEAD => match path {
                "/" => respond::json(StatusCode::OK, &json!({ "paths": self.paths() })),
                _ => respond::json(StatusCode::OK, &version(&self.git_version)),
            },
            "/version" | "/" => Failure::method_not_allowed().into_response(),
            _ => self.unread(path),
        }
    }

    /// Responds to a discovery path with an unsupported method.
    fn unread(&self, path: &str) -> Response<Body> {
        let mut steps = path.strip_prefix('/').unwrap_or_default().trim_end_matches('/').split('/');
        let (half, group) = match (steps.next(), steps.next()) {
            (Some("api"), None) => return Failure::method_not_allowed().into_response(),
            (Some("apis"), None) if path != "/apis//" => {
                return Failure::method_not_allowed().into_response();
            }
            (Some("api"), Some(version)) => {
                let steps = std::iter::once(version).chain(steps);
                return known_version(&self.api.list, "", steps);
            }
            (Some("apis"), Some(group)) => (&self.apis, group),
            _ => return respond::page_not_found(),
        };
        match half.list.group(group) {
            Some(_) => known_version(&half.list, group, steps),
            None => respond::page_not_found(),
        }
    }

    /// `/api` or `/apis`.
    fn root(&self, part: Part, headers: &HeaderMap) -> Response<Body> {
        let half = self.half(part);
        let mut response = match acceptable(headers, &[Form::AggregatedV2, Form::Legacy]) {
            Err(failure) => return failure.into_response(),
            Ok(Negotiated { form: Form::Legacy, .. }) => match part {
                Part::Api => respond::json(StatusCode::OK, &convert::api_versions(&half.list)),
                Part::Apis => respond::json(StatusCode::OK, &convert::group_list(&half.list)),
            },
            Ok(_) => half.aggregated.respond(headers),
        };
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response
    }

    fn half(&self, part: Part) -> &Half {
        match part {
            Part::Api => &self.api,
            Part::Apis => &self.apis,
        }
    }

    /// The paths of the index.
    fn paths(&self) -> Vec<String> {
        let own = ["/api", "/apis", "/healthz", "/livez", "/readyz", "/version"];
        let mut paths: Vec<String> = own.map(str::to_owned).into();
        for (root, list) in [("/api", &self.api.list), ("/apis", &self.apis.list)] {
            for group in &list.groups {
                let group_path = match &*group.name {
                    "" => root.to_owned(),
                    name => format!("{root}/{name}"),
                };
                let versions = group.versions.iter();
                paths.extend(versions.map(|version| format!("{group_path}/{}", version.name)));
                if !group.name.is_empty() {
                    paths.push(group_path);
                }
            }
        }
        paths.sort();
        paths
    }
}

/// Negotiates the form of a response; the encoding is always JSON.
pub(crate) fn acceptable(headers: &HeaderMap, forms: &[Form]) -> Result<Negotiated, Failure> {
    let accept = text(headers, &ACCEPT);
    let offer = Offer { forms, encodings: &[Encoding::Json] };
    negotiate(accept, offer).map_err(|error| Failure::not_acceptable(error.to_string()))
}

impl Aggregated {
    fn respond(&self, headers: &HeaderMap) -> Response<Body> {
        let same = text(headers, &IF_NONE_MATCH) == self.etag;
        let mut response = if same {
            let mut response = Response::new(respond::full(bytes::Bytes::new()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            Response::new(respond::full(self.body.clone()))
        };
        let headers = response.headers_mut();
        if !same {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(documents::CONTENT_TYPE));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        headers.insert(ETAG, self.etag.clone());
        response
    }
}

/// The version of a path within a served group, or the error for an unknown one.
fn known_version<'p>(
    list: &GroupList,
    group: &str,
    mut steps: impl Iterator<Item = &'p str>,
) -> Response<Body> {
    let served = |version: &str| {
        list.group(group).is_some_and(|group| group.versions.iter().any(|v| &*v.name == version))
    };
    match (steps.next(), steps.next()) {
        (None, _) => Failure::method_not_allowed(),
        (Some(version), None) if served(version) => Failure::method_not_allowed(),
        _ => Failure::not_routed(),
    }
    .into_response()
}

/// The document of `/version`, as of a real server.
fn version(git_version: &str) -> serde_json::Value {
    let version = Version::parse(git_version);
    let part = |part: fn(Version) -> u16| version.map_or(String::new(), |v| part(v).to_string());
    json!({
        "major": part(|version| version.major),
        "minor": part(|version| version.minor),
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// The first value of a header; empty if it is absent or not text.
fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
