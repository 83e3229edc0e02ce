//! The server as a tower service. Entry: [`ApiServer`].

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use mvp_core::request::ResourceRequest;
use mvp_core::{RequestInfo, Verb};
use tower_service::Service;

use crate::access::Access;
use crate::body;
use crate::crd;
use crate::form::Form;
use crate::openapi;
use crate::query::Query;
use crate::resource;
use crate::respond::{self, Body};
use crate::review::{Caller, Review};
use crate::route::{self, NoTarget};
use crate::schema::Schema;
use crate::spec::{GroupSpec, ServerSpec};
use crate::status::Failure;
use crate::storage::Storage;
use crate::surface::{Served, Surface};
use crate::warning::Warnings;

/// An API server. Clones are the same server.
#[derive(Debug, Clone)]
pub struct ApiServer(Arc<Inner>, Access);

#[derive(Debug)]
struct Inner {
    spec: ServerSpec,
    storage: Storage,
    served: Arc<Served>,
    processed: [AtomicU64; METHODS.len()],
}

/// The methods that resources have.
const METHODS: [Method; 5] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

impl ApiServer {
    /// A server of `spec`, with a storage that other servers may share.
    pub fn new(spec: ServerSpec, storage: Storage) -> ApiServer {
        let served = Arc::new(Served::new(&spec));
        crd::controller::start(&served, &storage);
        let inner = Inner { spec, storage, served, processed: Default::default() };
        ApiServer(Arc::new(inner), Access::default())
    }

    /// The server with these access rules. Without, everyone may do everything.
    #[must_use]
    pub fn with_access(self, access: Access) -> ApiServer {
        ApiServer(self.0, access)
    }

    /// The spec that the server started with.
    pub fn spec(&self) -> &ServerSpec {
        &self.0.spec
    }

    /// Serves these groups instead of the current ones, from the next request on. Requests that have
    /// begun, and open watches, are not affected.
    pub fn replace_groups(&self, groups: Vec<GroupSpec>) {
        self.0.served.replace_groups(groups);
    }

    /// Sets the time from the acceptance of a new definition of a custom resource until this server
    /// serves it. It is 200 ms unless it is set before the first request.
    ///
    /// A server with `customresourcedefinitions` follows them in a task of its own, on the runtime
    /// where it is created or gets its first request. The task ends with the server.
    #[must_use]
    pub fn with_establishing_delay(self, delay: Duration) -> ApiServer {
        self.0.served.set_delay(delay);
        self
    }

    /// The storage of the server.
    pub fn storage(&self) -> &Storage {
        &self.0.storage
    }

    /// The number of requests with this method that reached a resource, with a complete body.
    /// Requests that were refused before changed nothing and do not count.
    pub fn processed(&self, method: &Method) -> u64 {
        self.0.counter(method).map_or(0, |counter| counter.load(Ordering::SeqCst))
    }
}

impl<B> Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (server, access) = (Arc::clone(&self.0), self.1);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let mut response = server.answer(access, &head, body).await;
            if head.method == Method::HEAD {
                *response.body_mut() = respond::full(Bytes::new());
            }
            Ok(response)
        })
    }
}

impl Inner {
    async fn answer<B>(&self, access: Access, head: &Parts, body: B) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        crd::controller::start(&self.served, &self.storage);
        let surface = self.served.current();
        let (path, query) = (head.uri.path(), head.uri.query());
        let info = RequestInfo::parse(head.method.as_str(), path, query);
        if let Err(failure) = access.check(head, &info) {
            return failure.into_response();
        }
        match info {
            RequestInfo::Resource(request) => {
                match self.resource(access, &surface, head, &request, body).await {
                    Ok(response) => response,
                    Err(NoTarget::PageNotFound) => respond::page_not_found(),
                    Err(NoTarget::Failure(failure)) => failure.into_response(),
                }
            }
            RequestInfo::Discovery(path) => surface.description.discovery(&path, &head.headers),
            RequestInfo::OpenApi(path) => openapi::respond(&surface, &path, &head.headers),
            RequestInfo::NonResource(_) => surface.description.other(&head.method, path),
            RequestInfo::Malformed => {
                Failure::bad_request("the path of the request is malformed").into_response()
            }
        }
    }

    async fn resource<B>(
        &self,
        access: Access,
        surface: &Surface,
        head: &Parts,
        request: &ResourceRequest<'_>,
        body: B,
    ) -> Result<Response<Body>, NoTarget>
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        let target = route::find(&surface.groups, &head.method, head.uri.path(), request)?;
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let form = Form::negotiate(&head.headers, &query)?;
        let body = body::read(body).await?;
        if let Some(counter) = self.counter(&head.method) {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        let review = Review {
            target: &target,
            caller: head.extensions.get::<Caller>(),
            headers: &head.headers,
            body: &body,
            allows: &|caller, wanted| access.allows(caller, wanted),
        };
        if let Some(answer) = review.answer() {
            return Ok(answer?);
        }
        // Only writes need a schema, which takes time to parse.
        let known = match target.verb {
            Verb::Create | Verb::Update | Verb::Patch => {
                surface.schema_of(&target.group.name, target.version, &target.resource.kind)
            }
            _ => None,
        };
        let custom = surface.custom(&target);
        let of_custom = || Schema::plain(&custom.as_ref()?.version.schema);
        let warnings = Warnings::default();
        let call = resource::Call {
            groups: &surface.groups,
            target: &target,
            access,
            caller: head.extensions.get::<Caller>(),
            schema: known.as_ref().and_then(|known| known.schema()).or_else(of_custom),
            custom: custom.as_ref(),
            warnings: &warnings,
            storage: &self.storage,
            query: &query,
            form,
            headers: &head.headers,
            body: &body,
        };
        let mut response = call.serve()?;
        warnings.add_to(&mut response);
        Ok(response)
    }

    fn counter(&self, method: &Method) -> Option<&AtomicU64> {
        let place = METHODS.iter().position(|known| known == method)?;
        self.processed.get(place)
    }
}

impl From<Failure> for NoTarget {
    fn from(failure: Failure) -> NoTarget {
        NoTarget::Failure(failure)
    }
}
