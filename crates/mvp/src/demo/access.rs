//! Who the callers of a demo server are: its outermost service after the layer. Entry: [`known`].

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use mvp_apiserver::{ApiServer, Caller, TokenFile};
use mvp_proxy::{Body, Identity};
use serde_json::json;
use tower::{Service, ServiceExt, service_fn};

use super::extension;

/// The tokens of the demo, as kube-apiserver's `--token-auth-file` has them.
pub(super) const TOKENS: &str = "\
demo-viewer,viewer,1001,\"viewers\"
demo-operator,operator,1002,\"system:masters\"
";

/// How the names of the headers of impersonation start.
const IMPERSONATE: &str = "impersonate-";

/// Puts the caller into each request for the API server. An unknown token gets 401. Nobody acts as
/// somebody else: a request that wants to must not be executed as its real caller.
pub(super) fn known(
    server: ApiServer,
    tokens: Arc<TokenFile>,
) -> impl Service<
    Request<Body>,
    Response = Response<mvp_apiserver::Body>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    service_fn(move |mut request: Request<Body>| {
        let (server, tokens) = (server.clone(), Arc::clone(&tokens));
        async move {
            let Some(caller) = caller(&request, &tokens) else { return Ok(unauthorized()) };
            if request.headers().keys().any(|name| name.as_str().starts_with(IMPERSONATE)) {
                return Ok(no_impersonation());
            }
            // Extension servers authorize by themselves. This one is for every user.
            if caller != Caller::anonymous()
                && let Some(response) = extension::answer(request.uri().path())
            {
                return Ok(response);
            }
            request.extensions_mut().insert(caller);
            server.oneshot(request).await
        }
    })
}

/// The service without the layer, with the bodies of a listener.
pub(super) fn plain<S>(
    known: S,
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
where
    S: Service<Request<Body>, Response = Response<mvp_apiserver::Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    known
        .map_request(|request: Request<Incoming>| request.map(Body::new))
        .map_response(|response| response.map(Body::new))
}

fn caller(request: &Request<Body>, tokens: &TokenFile) -> Option<Caller> {
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    Some(match request.extensions().get::<Identity>() {
        Some(Identity::User(user)) => Caller {
            name: user.name.as_ref().map(text).unwrap_or_default(),
            groups: user.groups.iter().map(text).collect(),
        },
        Some(Identity::System) => Caller {
            name: "system:apiserver".to_owned(),
            groups: vec!["system:authenticated".to_owned()],
        },
        Some(Identity::Token) => tokens.caller(request.headers())?.clone(),
        Some(Identity::Anonymous) | None => Caller::anonymous(),
    })
}

fn unauthorized() -> Response<mvp_apiserver::Body> {
    refusal(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
}

fn no_impersonation() -> Response<mvp_apiserver::Body> {
    let message = "forbidden: the demo does not impersonate: send the request without Impersonate-* \
                   headers, or with the credentials of the user";
    refusal(StatusCode::FORBIDDEN, "Forbidden", message)
}

fn refusal(code: StatusCode, reason: &str, message: &str) -> Response<mvp_apiserver::Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    let body: Full<Bytes> = Full::from(format!("{status}\n"));
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use mvp_apiserver::{Release, RuntimeConfig, Storage};

    use super::*;

    #[tokio::test]
    async fn nobody_acts_as_somebody_else() {
        let spec = Release::V1_36.spec("a", &RuntimeConfig::default()).unwrap();
        let tokens = Arc::new(TokenFile::parse(TOKENS).unwrap());
        let service = known(ApiServer::new(spec, Storage::new()), tokens);
        for (name, code) in [
            ("Impersonate-User", 403),
            ("Impersonate-Group", 403),
            ("Impersonate-Extra-Scopes", 403),
            ("X-Impersonate", 200),
        ] {
            let request = Request::builder().uri("/api/v1/namespaces").header(name, "jane");
            let request = request.body(Body::new(Full::<Bytes>::default())).unwrap();
            let response = service.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), code, "{name}");
            if code == 403 {
                let body = response.into_body().collect().await.unwrap().to_bytes();
                let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(status["reason"], "Forbidden");
                assert!(status["message"].as_str().unwrap().contains("does not impersonate"));
            }
        }
    }
}
