//! An API server that records every request. Entry item: [`Double`].
//!
//! It trusts client certificates as kube-apiserver does. Paths with a rule get the response of the
//! test, all others that of a small real server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use mvp_apiserver::{
    ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage, SubresourceSpec, Verb,
};
use mvp_net::Limits;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::{TestBody, full};
use crate::pki::pki;
use crate::record::Requests;

type Future<T> = Pin<Box<dyn std::future::Future<Output = T> + Send>>;
type Rule = Arc<dyn Fn(Request<TestBody>) -> Future<Response<TestBody>> + Send + Sync>;

pub struct Double {
    pub address: SocketAddr,
    pub requests: Requests,
    state: Arc<State>,
    _stop: DropGuard,
}

struct State {
    server: Mutex<ApiServer>,
    rules: Mutex<Vec<(&'static str, Rule)>>,
}

impl Double {
    /// A server of this release with these groups, each with version `v1`.
    pub async fn start(id: &str, release: &str, groups: &[(&str, &str)]) -> Double {
        Double::start_with(id, release, groups, Limits::default()).await
    }

    /// A server with these limits for clients.
    pub async fn start_with(
        id: &str,
        release: &str,
        groups: &[(&str, &str)],
        limits: Limits,
    ) -> Double {
        let server = ApiServer::new(spec(id, release, groups), Storage::default());
        let state = Arc::new(State { server: Mutex::new(server), rules: Mutex::default() });
        let requests = Requests::default();
        let stop = CancellationToken::new();
        let answering = Arc::clone(&state);
        let service = tower::service_fn(move |request: Request<TestBody>| {
            let state = Arc::clone(&answering);
            let answer: Future<Result<Response<TestBody>, Infallible>> =
                Box::pin(async move { Ok(state.answer(request).await) });
            answer
        });
        let address = serve(requests.record(service), limits, stop.clone()).await;
        Double { address, requests, state, _stop: stop.drop_guard() }
    }

    /// Replaces its groups.
    pub fn becomes(&self, release: &str, groups: &[(&str, &str)]) {
        let mut server = self.state.server.lock().unwrap();
        *server = ApiServer::new(
            spec(&server.spec().id.clone(), release, groups),
            server.storage().clone(),
        );
    }

    /// The server behind it.
    pub fn server(&self) -> ApiServer {
        self.state.server.lock().unwrap().clone()
    }

    /// Answers paths with this prefix by a function from now on.
    pub fn rule<F>(
        &self,
        prefix: &'static str,
        answer: impl Fn(Request<TestBody>) -> F + Send + Sync + 'static,
    ) where
        F: std::future::Future<Output = Response<TestBody>> + Send + 'static,
    {
        let answer: Rule = Arc::new(move |request| Box::pin(answer(request)));
        self.state.rules.lock().unwrap().insert(0, (prefix, answer));
    }

    /// Answers paths with this prefix with this response from now on.
    pub fn says(&self, prefix: &'static str, status: u16, content_type: &'static str, body: &str) {
        let body = body.to_owned();
        self.rule(prefix, move |_| {
            let response = Response::builder().status(status).header("content-type", content_type);
            std::future::ready(response.body(full(body.clone())).unwrap())
        });
    }

    /// Returns an unrouted 404 for paths with this prefix from now on, whatever it lists.
    pub fn denies(&self, prefix: &'static str) {
        self.says(prefix, 404, "text/plain; charset=utf-8", "404 page not found\n");
    }
}

impl State {
    async fn answer(&self, request: Request<TestBody>) -> Response<TestBody> {
        let rule = self.rule_for(request.uri().path());
        if let Some(rule) = rule {
            return rule(request).await;
        }
        let answer =
            tower_service::Service::call(&mut self.server.lock().unwrap().clone(), request);
        let Ok(response) = answer.await;
        response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
    }

    fn rule_for(&self, path: &str) -> Option<Rule> {
        let rules = self.rules.lock().unwrap();
        let rule = rules.iter().find(|(prefix, _)| path.starts_with(prefix));
        rule.map(|(_, rule)| Arc::clone(rule))
    }
}

fn spec(id: &str, release: &str, groups: &[(&str, &str)]) -> ServerSpec {
    let core =
        GroupSpec::new("").version("v1", [ResourceSpec::namespaced("configmaps", "ConfigMap")]);
    let groups = groups.iter().map(|(group, resources)| {
        let resource = |plural: &str| {
            let mut resource = ResourceSpec::namespaced(plural, "Thing").with_status();
            // What several servers share, some tests want ways to containers and backends of.
            let ways: &[&str] = if *group == "shared.example" { &["exec", "proxy"] } else { &[] };
            resource.subresources.extend(ways.iter().map(|name| SubresourceSpec {
                name: (*name).to_owned(),
                verbs: vec![Verb::Create, Verb::Get],
                ..SubresourceSpec::default()
            }));
            resource
        };
        GroupSpec::new(group).version("v1", resources.split(' ').map(resource))
    });
    ServerSpec {
        id: id.to_owned(),
        git_version: release.to_owned(),
        groups: std::iter::once(core).chain(groups).collect(),
        ..ServerSpec::default()
    }
}

/// Serves on a port of its own until told to stop.
pub async fn serve<S>(service: S, limits: Limits, stop: CancellationToken) -> SocketAddr
where
    S: tower_service::Service<Request<Incoming>, Response = Response<TestBody>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(mvp_net::serve(listener, pki().server_tls(), limits, service, stop));
    address
}

/// The 404 of a server that knows the group, but not the resource.
pub const NOT_ROUTED: &str = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"the server could not find the requested resource\",\"reason\":\"NotFound\",\"details\":{},\"code\":404}\n";

/// A response of the test.
pub fn answer(status: StatusCode, body: TestBody) -> Response<TestBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
