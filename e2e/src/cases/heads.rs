//! The size of the request heads of real clients: a recorder between a client and kube-apiserver
//! measures each, as HTTP/2 counts it. Entry item: [`head_sizes`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use mvp_net::{ClientTrust, Limits, ReloadableTls, ServerTls, bind};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::objects;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::programs::python_folder;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        full Mixed,
        "clients/head-sizes",
        head_sizes,
        "the size of the request heads of real clients"
    )]
}

const NAMESPACE: &str = "heads";
const PORT: u16 = 7445;
type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// Sizes by what was run.
#[derive(Default)]
struct Recorder {
    now: Mutex<String>,
    sizes: Mutex<BTreeMap<String, Vec<usize>>>,
}

/// kubectl, client-go and the Python client, each with a certificate and with a service account
/// token.
async fn head_sizes(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace(NAMESPACE).await?;
    let token = super::callers::token_of(cluster, "robin").await?;
    let recorder = Arc::new(Recorder::default());
    let over = CancellationToken::new();
    let at = start(cluster, Arc::clone(&recorder), over.clone())?;
    let by_certificate = cluster.kubeconfig("admin", at)?;
    let by_token = kubeconfig_of(cluster, at, &token)?;
    for (who, kubeconfig) in [("certificate", &by_certificate), ("token", &by_token)] {
        kubectl(cluster, kubeconfig, who, &recorder).await?;
        let job = objects::job(NAMESPACE, "one").object;
        recorder.now(&format!("client-go, {who}"));
        run(cluster.programs.clients.client_go()?, &[kubeconfig.as_path()], &job).await?;
        recorder.now(&format!("Python, {who}"));
        let program = python_folder().join("client.py");
        run(cluster.programs.clients.python()?, &[&program, kubeconfig], &job).await?;
    }
    over.cancel();
    let sizes = recorder.sizes.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = sizes.iter().map(|(what, sizes)| {
        let (least, most) = (sizes.iter().min().unwrap_or(&0), sizes.iter().max().unwrap_or(&0));
        format!("{what}: {} requests of {least} to {most} bytes", sizes.len())
    });
    Ok(format!("token of {} bytes; {}", token.len(), lines.collect::<Vec<_>>().join("; ")))
}

impl Recorder {
    fn now(&self, what: &str) {
        what.clone_into(&mut self.now.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The sum of names and values, and 32 bytes for each header, as HTTP/2 counts.
    fn record(&self, request: &Request<Incoming>) {
        let uri = request.uri().to_string();
        let pseudo =
            [(":method", request.method().as_str()), (":scheme", "https"), (":path", &uri)];
        let pseudo = pseudo.iter().map(|(name, value)| name.len() + value.len() + 32);
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + 32);
        let size = pseudo.chain(headers).sum();
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.entry(now).or_default().push(size);
    }
}

/// Listens on an address in the server certificate, and forwards requests to a kube-apiserver.
fn start(
    cluster: &Cluster,
    recorder: Arc<Recorder>,
    over: CancellationToken,
) -> anyhow::Result<SocketAddr> {
    let pair = cluster.pki.files().server();
    let ca = std::fs::read(cluster.pki.files().ca())?;
    let trust = ClientTrust::new(Some(&ca), None, Vec::new())?;
    let (certificate, key) = (std::fs::read(pair.certificate)?, std::fs::read(pair.key)?);
    let tls = ReloadableTls::new(ServerTls::new(&certificate, &key, trust)?);
    let at = SocketAddr::new(cluster.spare_address(), PORT);
    let (admin, nobody) = (cluster.admin.clone(), cluster.nobody()?);
    let to = cluster.server("a")?.direct();
    let service = tower::service_fn(move |request: Request<Incoming>| {
        recorder.record(&request);
        let by_token = request.headers().contains_key(http::header::AUTHORIZATION);
        let client = if by_token { nobody.clone() } else { admin.clone() };
        async move {
            let response = pass_on(&client, to, request).await;
            Ok::<_, Infallible>(response.unwrap_or_else(|error| {
                let body = Full::from(format!("{error:#}")).map_err(|never| match never {});
                let mut response = Response::new(body.boxed_unsync());
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            }))
        }
    });
    let listener = TcpListener::from_std(bind(at, false)?)?;
    tokio::spawn(async move {
        mvp_net::serve(listener, tls, Limits::default(), service, over).await;
    });
    Ok(at)
}

async fn pass_on(
    client: &Client,
    to: SocketAddr,
    request: Request<Incoming>,
) -> anyhow::Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let response = client.connect(to).await?.pass_on(parts, body).await?;
    Ok(response.map(BodyExt::boxed_unsync))
}

async fn kubectl(
    cluster: &Cluster,
    kubeconfig: &Path,
    who: &str,
    recorder: &Recorder,
) -> anyhow::Result<()> {
    let kubectl =
        crate::kubectl::Kubectl::new(&cluster.programs.kubectl(), kubeconfig, cluster.folder())?;
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "one", "namespace": NAMESPACE}, "data": {"a": "b"},
    });
    recorder.now(&format!("kubectl apply, {who}"));
    kubectl.run(["apply", "-f", "-"], Some(&object.to_string())).await?;
    recorder.now(&format!("kubectl apply --server-side, {who}"));
    kubectl.run(["apply", "--server-side", "-f", "-"], Some(&object.to_string())).await?;
    recorder.now(&format!("kubectl get, {who}"));
    kubectl.run(["get", "configmaps,pods,secrets", "-A", "-l", "app in (a, b)"], None).await?;
    recorder.now(&format!("kubectl get --watch, {who}"));
    let watch = ["get", "configmaps", "-n", NAMESPACE, "--watch", "--request-timeout=2s"];
    kubectl.try_run(&watch, None).await?;
    recorder.now(&format!("kubectl delete, {who}"));
    kubectl.run(["delete", "configmap", "one", "-n", NAMESPACE], None).await?;
    Ok(())
}

/// A test client, which takes a kubeconfig, a namespace and an object.
async fn run(program: &Path, arguments: &[&Path], object: &Value) -> anyhow::Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .arg(NAMESPACE)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {program:?}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(object.to_string().as_bytes()).await?;
    }
    let output = timeout(Duration::from_secs(60), child.wait_with_output()).await;
    let output = output.context("it hangs")??;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program:?} failed: {}", errors.trim());
    Ok(())
}

fn kubeconfig_of(cluster: &Cluster, to: SocketAddr, token: &str) -> anyhow::Result<PathBuf> {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {
            "server": format!("https://{to}"), "certificate-authority": cluster.pki.files().ca(),
        }}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    let file = cluster.folder().join("token.kubeconfig");
    std::fs::write(&file, config.to_string())?;
    Ok(file)
}
