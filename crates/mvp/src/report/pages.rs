//! Reports on the API port, for other gateways of the cluster. Entry: [`PagesLayer`].
//!
//! It runs after authentication. A caller gets a page only if it is a peer, which proves itself with a
//! certificate of the request-header CA, and asks in its own name. Requests that a peer forwards for
//! somebody else, and those of everybody else, pass to the API server as if there were no pages.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::Either;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use mvp_core::decide::Origin;
use mvp_proxy::{Body, Identity};
use tower::Service;
use tower_layer::Layer;

/// A report that gateways ask each other for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// The [`Status`](super::Status) of a gateway.
    Status,
}

impl Page {
    const ALL: [Page; 1] = [Page::Status];

    /// Its path on the API port.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Page::Status => "/mvp/status",
        }
    }
}

/// Writes a page as JSON.
pub(crate) type Write = dyn Fn(Page) -> Bytes + Send + Sync;

/// The pages of a gateway.
#[derive(Default)]
pub(crate) struct Pages {
    /// Set when the control loop starts.
    write: OnceLock<Arc<Write>>,
}

impl Pages {
    /// Sets what writes the pages.
    pub(crate) fn written_by(&self, write: Arc<Write>) {
        // There is only one control loop, so this is called once.
        let _ = self.write.set(write);
    }

    /// Writes a page on another thread: it takes a millisecond, and a worker has requests to serve.
    async fn answer(self: Arc<Pages>, page: Page) -> Response<Body> {
        let Some(write) = self.write.get().cloned() else {
            return response(StatusCode::SERVICE_UNAVAILABLE, Bytes::from_static(b"{}"));
        };
        match tokio::task::spawn_blocking(move || write(page)).await {
            Ok(page) => response(StatusCode::OK, page),
            Err(_) => response(StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(b"{}")),
        }
    }
}

fn response(status: StatusCode, page: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The page that a request asks for, if its caller may have it.
fn asked<B>(request: &Request<B>) -> Option<Page> {
    let path = request.uri().path();
    // Almost all requests end here.
    let page =
        path.starts_with("/mvp/").then(|| Page::ALL.into_iter().find(|p| p.path() == path))??;
    let extensions = request.extensions();
    let is_peer = extensions.get() == Some(&Origin::Peer);
    let own_name = extensions.get().is_some_and(Identity::is_gateway);
    (is_peer && own_name && request.method() == Method::GET).then_some(page)
}

/// A layer that answers peers, and passes all other requests.
#[derive(Clone)]
pub(crate) struct PagesLayer(pub(crate) Arc<Pages>);

impl<S> Layer<S> for PagesLayer {
    type Service = PagesService<S>;

    fn layer(&self, inner: S) -> PagesService<S> {
        PagesService { pages: Arc::clone(&self.0), inner }
    }
}

/// The service of [`PagesLayer`].
#[derive(Clone)]
pub(crate) struct PagesService<S> {
    pages: Arc<Pages>,
    inner: S,
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S, B> Service<Request<B>> for PagesService<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Answering>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match asked(&request) {
            Some(page) => {
                let pages = Arc::clone(&self.pages);
                Either::Right(Box::pin(async move { Ok(pages.answer(page).await) }))
            }
            None => Either::Left(self.inner.call(request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;
    use http_body_util::BodyExt;
    use mvp_proxy::User;
    use tower::{ServiceExt, service_fn};

    use super::*;

    fn user(name: &'static str) -> Identity {
        let name = Some(HeaderValue::from_static(name));
        Identity::User(Arc::new(User { name, ..User::default() }))
    }

    async fn ask(method: Method, path: &str, origin: Origin, identity: Identity) -> String {
        let pages = Arc::new(Pages::default());
        pages.written_by(Arc::new(|_| Bytes::from_static(b"the page")));
        let server = service_fn(async |_: Request<Body>| {
            Ok(Response::new(Body::from(Bytes::from_static(b"the server's"))))
        });
        let request = Request::builder().method(method).uri(path);
        let request = request.extension(origin).extension(identity).body(Body::empty()).unwrap();
        let response = PagesLayer(pages).layer(server).oneshot(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn only_a_peer_that_asks_in_its_own_name_gets_a_page() {
        let gateway = User {
            name: Some(HeaderValue::from_static("system:apiserver")),
            groups: vec![HeaderValue::from_static("system:authenticated")],
            ..User::default()
        };
        // Somebody with a certificate for that name, whose request a load balancer forwards.
        let id =
            HeaderName::from_static("x-remote-extra-authentication.kubernetes.io%2fcredential-id");
        let extra = vec![(id, HeaderValue::from_static("X509SHA256=0"))];
        let certificate = User { extra, ..gateway.clone() };
        let own = || Identity::User(Arc::new(gateway.clone()));
        let status = "/mvp/status";
        assert_eq!(ask(Method::GET, status, Origin::Peer, own()).await, "the page");
        for (method, path, origin, identity) in [
            (Method::GET, status, Origin::Client, own()),
            (Method::GET, status, Origin::Marked, own()),
            (Method::GET, status, Origin::Peer, user("alice")),
            (Method::GET, status, Origin::Peer, user("system:apiserver")),
            (Method::GET, status, Origin::Peer, Identity::User(Arc::new(certificate))),
            (Method::GET, status, Origin::Peer, Identity::Anonymous),
            (Method::GET, status, Origin::Peer, Identity::Token),
            (Method::POST, status, Origin::Peer, own()),
            (Method::GET, "/mvp/status/", Origin::Peer, own()),
            (Method::GET, "/mvp/other", Origin::Peer, own()),
            (Method::GET, "/api", Origin::Peer, own()),
        ] {
            let case = format!("{method} {path} {origin:?} {identity:?}");
            assert_eq!(ask(method, path, origin, identity).await, "the server's", "{case}");
        }
    }

    #[tokio::test]
    async fn there_are_no_pages_before_the_control_loop_runs() {
        let response = Arc::new(Pages::default()).answer(Page::Status).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
