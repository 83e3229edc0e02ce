//! Requests of the controllers. Entry: [`Client`].

use std::fmt;
use std::future::Future;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

/// Sends requests to one address. The path of a request is its whole URI.
pub trait Client: Send + Sync {
    /// Sends a request, and reads the whole response. An error says why there is none.
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> impl Future<Output = Result<Response<Bytes>, String>> + Send;
}

/// Why a request of a controller failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The status of the response; `None` without a response.
    pub status: Option<StatusCode>,
    /// What failed.
    pub message: String,
}

impl Problem {
    pub(super) fn new(message: impl Into<String>) -> Problem {
        Problem { status: None, message: message.into() }
    }

    /// Whether the server says that something does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        self.status == Some(StatusCode::NOT_FOUND)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// The most objects in one page of a list.
const PAGE: u32 = 500;
/// The most pages of one list: a server that never ends a list must not fill the memory.
const MAX_PAGES: u32 = 1000;
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A client with the requests that controllers send.
#[derive(Debug, Clone)]
pub(super) struct Api<C>(pub(super) C);

impl<C: Client> Api<C> {
    pub(super) async fn get(&self, path: &str) -> Result<Value, Problem> {
        self.send(Method::GET, path, "application/json", None).await
    }

    /// One object, of which only the metadata is needed.
    pub(super) async fn metadata(&self, path: &str) -> Result<Value, Problem> {
        self.send(Method::GET, path, METADATA, None).await
    }

    /// A document in a form of its own.
    pub(super) async fn accept(&self, path: &str, accept: &str) -> Result<Value, Problem> {
        self.send(Method::GET, path, accept, None).await
    }

    /// All objects of a collection, of which only the metadata is needed.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>, Problem> {
        let mut objects = Vec::new();
        let mut token = String::new();
        for _ in 0..MAX_PAGES {
            let page = match token.as_str() {
                "" => format!("{path}?limit={PAGE}"),
                token => format!("{path}?limit={PAGE}&continue={}", escaped(token)),
            };
            let mut list = self.send(Method::GET, &page, METADATA_LIST, None).await?;
            // An answer without items says nothing about what exists.
            let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
                return Err(Problem::new(format!("GET {page}: the answer is no list")));
            };
            objects.extend(items);
            let next = list.pointer("/metadata/continue").and_then(Value::as_str);
            match next.unwrap_or_default() {
                "" => return Ok(objects),
                next => next.clone_into(&mut token),
            }
        }
        Err(Problem::new(format!("the list of {path} does not end")))
    }

    pub(super) async fn put(&self, path: &str, object: &Value) -> Result<Value, Problem> {
        self.send(Method::PUT, path, "application/json", Some(("application/json", object))).await
    }

    /// Merges a patch into an object.
    pub(super) async fn merge(&self, path: &str, patch: &Value) -> Result<Value, Problem> {
        let body = Some(("application/merge-patch+json", patch));
        self.send(Method::PATCH, path, "application/json", body).await
    }

    /// Deletes an object or a collection with these options.
    pub(super) async fn delete(&self, path: &str, mut options: Value) -> Result<Value, Problem> {
        if let Some(options) = options.as_object_mut() {
            options.insert("kind".to_owned(), json!("DeleteOptions"));
            options.insert("apiVersion".to_owned(), json!("v1"));
        }
        let body = Some(("application/json", &options));
        self.send(Method::DELETE, path, "application/json", body).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Value, Problem> {
        let what = format!("{method} {path}");
        let request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        let request = match body {
            Some((media_type, value)) => {
                request.header(CONTENT_TYPE, media_type).body(Bytes::from(value.to_string()))
            }
            None => request.body(Bytes::new()),
        };
        let request = request.map_err(|error| Problem::new(format!("{what}: {error}")))?;
        let response = self.0.send(request).await;
        let response = response.map_err(|error| Problem::new(format!("{what}: {error}")))?;
        let status = response.status();
        let value = serde_json::from_slice::<Value>(response.body());
        if status.is_success() {
            return value.map_err(|error| Problem::new(format!("{what}: {status}, but {error}")));
        }
        let value = value.unwrap_or_default();
        let told = value.get("message").and_then(Value::as_str).unwrap_or_default();
        Err(Problem { status: Some(status), message: format!("{what}: {status} {told}") })
    }
}

/// A value of a query parameter.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if plain(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
        escaped
    })
}
