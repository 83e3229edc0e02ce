//! The layer in process.

use tower::ServiceExt;

use super::*;

/// An inner service that answers 200, once it is ready.
#[derive(Clone)]
struct Inner {
    is_ready: bool,
}

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.is_ready { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        std::future::ready(Ok(Response::new(Body::empty())))
    }
}

#[test]
fn the_layer_is_ready_when_its_inner_service_is() {
    for is_ready in [true, false] {
        let mut service = AuthenticateLayer::default().layer(Inner { is_ready });
        let polled = service.poll_ready(&mut Context::from_waker(std::task::Waker::noop()));
        assert_eq!(polled.is_ready(), is_ready);
    }
}

#[tokio::test]
async fn the_largest_head_is_configurable() {
    for (limit, expected) in [(None, 200), (Some(4 << 10), 200), (Some(2 << 10), 431)] {
        let layer = AuthenticateLayer::default();
        let layer = limit.map_or(layer.clone(), |limit| layer.with_max_head_bytes(limit));
        let request = Request::builder()
            .uri("/api/v1/pods")
            .header("host", "gateway")
            .header("x-large", "x".repeat(3 << 10))
            .body(Body::empty())
            .unwrap();
        let response = layer.layer(Inner { is_ready: true }).oneshot(request).await.unwrap();
        assert_eq!(response.status(), expected, "{limit:?}");
    }
}
