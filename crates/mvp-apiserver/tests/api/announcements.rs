//! What servers write about themselves: identity Leases and StorageVersions.

use mvp_apiserver::{Announcement, ApiServer, Release, RuntimeConfig, Storage};
use serde_json::{Value, json};

use crate::support::{call, get};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const JOBS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/batch.jobs";

async fn server(id: &str, config: &str, storage: &Storage) -> ApiServer {
    let config = RuntimeConfig::parse(config).unwrap();
    ApiServer::new(Release::V1_36.spec(id, &config).unwrap(), storage.clone())
}

#[tokio::test]
async fn a_lease_is_created_once_and_renewed() {
    let server = server("a", "", &Storage::new()).await;
    let announcement = Announcement::new(server.clone(), "host-a");
    assert!(!announcement.renew().await, "there is no namespace kube-system");
    let namespace = json!({"metadata": {"name": "kube-system"}});
    call(&server, http::Method::POST, "/api/v1/namespaces", namespace).await;
    assert!(announcement.renew().await);
    let path = format!("{LEASES}/{}", announcement.identity());
    let first = get(&server, &path).await.1;
    assert_eq!(first["metadata"]["labels"]["apiserver.kubernetes.io/identity"], "kube-apiserver");
    assert_eq!(first["metadata"]["labels"]["kubernetes.io/hostname"], "host-a");
    assert!(announcement.renew().await);
    let second = get(&server, &path).await.1;
    assert_eq!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_ne!(first["spec"]["renewTime"], second["spec"]["renewTime"]);
}

#[tokio::test]
async fn storage_versions_record_each_server_that_has_the_resource() {
    let storage = Storage::new();
    let on = "internal.apiserver.k8s.io/v1alpha1=true";
    let off = format!("{on},batch/v1=false");
    let (with, without) = (server("a", on, &storage).await, server("b", &off, &storage).await);
    let with = Announcement::new(with, "host-a");
    for announcement in [&with, &Announcement::new(without.clone(), "host-b"), &with] {
        announcement.record().await;
    }
    let object = get(&without, JOBS).await.1;
    let entry = json!({
        "apiServerID": with.identity(), "encodingVersion": "batch/v1",
        "decodableVersions": ["batch/v1"], "servedVersions": ["batch/v1"],
    });
    assert_eq!(object["status"]["storageVersions"], json!([entry]));
    assert_eq!(object["status"]["commonEncodingVersion"], "batch/v1");
    let entries = get(&without, &JOBS.replace("batch.jobs", "core.pods")).await.1;
    let entries = entries["status"]["storageVersions"].as_array().map_or(0, Vec::len);
    assert_eq!(entries, 2, "both servers have pods");
    let nothing = get(&without, &JOBS.replace("batch.jobs", "core.nothings")).await.1;
    assert_eq!(nothing["status"], Value::from("Failure"));
}
