//! The owner of gateways' Leases: `kubectl delete` of it deletes them all.

use http_body_util::BodyExt;
use mvp_apiserver::controllers::{Client, GarbageCollector};

use super::*;

impl Client for Server {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let request = request.map(Body::from);
        let (head, body) = self.ask(request).await.map_err(|error| error.to_string())?.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

/// The Lease of deploy/rbac.yaml.
fn owner() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "mixed-version-proxy",
            "namespace": "kube-system",
            "labels": {"mixed-version-proxy/member": "owner"},
        },
    })
}

impl Server {
    async fn delete_owner(&self) {
        let path = format!("{PATH}/mixed-version-proxy");
        let _: Value = call(self, Method::DELETE, &path, None).await.unwrap();
    }

    /// Deletes what has no owner any more, as kube-controller-manager does.
    async fn collect_garbage(&self) {
        let mut collector = GarbageCollector::new(self.clone());
        collector.refresh().await.unwrap();
        assert_eq!(collector.sweep().await.problems, []);
    }
}

#[tokio::test(start_paused = true)]
async fn leases_go_with_their_owner() {
    let server = Server::start();
    let (way, other_way) = (server.another_connection(), server.another_connection());
    // One starts before the owner exists, the other one later.
    let a = Gateway::start(&way, "a", "10.0.0.1:6443", "1");
    sleep(Duration::from_secs(1)).await;
    server.write(owner()).await;
    let b = Gateway::start(&other_way, "b", "10.0.0.2:6443", "1");
    sleep(Duration::from_secs(6)).await;
    server.collect_garbage().await;
    assert_eq!(server.names().await.len(), 3, "the owner exists");
    assert_eq!(
        (a.names(), b.names()),
        (vec!["b 10.0.0.2:6443".into()], vec!["a 10.0.0.1:6443".into()])
    );

    // `kubectl delete -f`: the rights go first, and then the processes end.
    way.forbids.store(true, Ordering::Relaxed);
    other_way.forbids.store(true, Ordering::Relaxed);
    server.delete_owner().await;
    for gateway in [a, b] {
        gateway.leaving.cancel();
        gateway.keeping.await.unwrap();
    }
    assert_eq!(server.names().await.len(), 2, "nobody may delete them");
    server.collect_garbage().await;
    assert_eq!(server.names().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_deleted_or_created_again_takes_no_member_away() {
    let server = Server::start();
    server.write(owner()).await;
    let a = Gateway::start(&server, "a", "10.0.0.1:6443", "1");
    sleep(Duration::from_secs(1)).await;
    for create_again in [true, false] {
        server.delete_owner().await;
        if create_again {
            server.write(owner()).await;
        }
        sleep(Duration::from_secs(6)).await;
        server.collect_garbage().await;
        assert!(server.names().await.contains(&a.own.name), "created again: {create_again}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_is_no_member_and_never_expires() {
    let server = Server::start();
    server.write(owner()).await;
    let a = Gateway::start(&server, "a", "10.0.0.1:6443", "1");
    // Leases that nobody renews are deleted after an hour.
    sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!(a.source.claims.borrow().claims.len(), 0);
    assert_eq!(server.names().await, ["mixed-version-proxy", &a.own.name]);
}
