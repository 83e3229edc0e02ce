//! Attaching: who answers at which address, before and after.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::until;

use crate::cluster::Cluster;
use crate::node::{
    Bind, Gateway, LIVEZ, Node, NodeSpec, Nodes, OUTSIDE, OUTSIDE_6, PORT, SERVICE, VIRTUAL, who,
};
use crate::programs::Minor;

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
const LOOPBACK_6: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), PORT);

pub(super) async fn attach(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "attach").await?;
    let node = nodes.node(0, NodeSpec::new("a", Minor::V1_36)).await?;
    node.serve_service()?;
    let all = [node.address(), node.address_6()];
    for to in all {
        ensure!(nodes.who(to).await? == "server", "{to} before mvp");
    }
    on_host(&nodes, &node, &[node.address(), SERVICE, LOOPBACK, LOOPBACK_6], "server").await?;

    let gateway = node.gateway(&nodes, 0).await?;
    for to in all {
        nodes.until_answered_by("mvp", to).await?;
    }
    on_host(&nodes, &node, &[node.address(), node.address_6(), SERVICE], "mvp").await?;
    on_host(&nodes, &node, &[LOOPBACK, LOOPBACK_6], "server").await?;
    // As kube-vip and keepalived do.
    node.ip(&["address", "add", &format!("{VIRTUAL}/32"), "dev", "eth0"])?;
    let virtual_address = SocketAddr::new(VIRTUAL.into(), PORT);
    nodes.until_answered_by("mvp", virtual_address).await?;
    on_host(&nodes, &node, &[virtual_address], "mvp").await?;
    // A pod or another host, whose packets this node routes.
    let _route = Route::add(node.address().ip())?;
    nodes.until_answered_by("mvp", SERVICE).await?;

    let sources = [
        (node.address(), IpAddr::V4(OUTSIDE)),
        (node.address_6(), IpAddr::V6(OUTSIDE_6)),
        (virtual_address, IpAddr::V4(OUTSIDE)),
        (SERVICE, IpAddr::V4(OUTSIDE)),
    ];
    for (number, (to, from)) in sources.into_iter().enumerate() {
        source_is_known(&nodes, &node, (to, from), number).await?;
    }
    let capabilities = rights_are_gone(&gateway)?;
    let started = Instant::now();
    gateway.end().await?;
    nodes.until_answered_by("server", node.address()).await?;
    let took = started.elapsed().as_secs_f64();
    on_host(&nodes, &node, &[node.address(), SERVICE, virtual_address], "server").await?;
    Ok(format!(
        "8 ways to mvp from outside and from the host, over IPv4, IPv6, a virtual address and a \
         Service address; loopback reaches kube-apiserver; 4 source addresses are right; CapEff is \
         {capabilities}; kube-apiserver answers again {took:.1} s after SIGTERM, at the exit of mvp"
    ))
}

/// The addresses whose connections from the host are answered by this side.
async fn on_host(
    nodes: &Nodes,
    node: &Node,
    addresses: &[SocketAddr],
    side: &str,
) -> anyhow::Result<()> {
    for to in addresses {
        let (status, body) = node.get_from_host(nodes, *to, LIVEZ).await?;
        let answered = who(status, body.as_bytes())?;
        ensure!(answered == side, "{answered} answers the host at {to}, not {side}");
    }
    Ok(())
}

/// kube-apiserver's audit log has the client's address.
async fn source_is_known(
    nodes: &Nodes,
    node: &Node,
    (to, from): (SocketAddr, IpAddr),
    number: usize,
) -> anyhow::Result<()> {
    let mark = format!("source-{number}");
    let path = format!("/api/v1/namespaces/default/configmaps/{mark}");
    nodes.admin.get(to, &path).await?.expect(404)?;
    let entry = until("the audit log has the request", Duration::from_secs(30), async || {
        let has_mark = |entry: &Value| {
            entry.pointer("/objectRef/name").and_then(Value::as_str) == Some(mark.as_str())
        };
        Ok(node.audit()?.into_iter().find(has_mark))
    })
    .await?;
    let source = entry.pointer("/sourceIPs/0").and_then(Value::as_str).unwrap_or_default();
    ensure!(source == from.to_string(), "the source at {to} is {source}, not {from}");
    Ok(())
}

/// CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN are dropped. Returns what is left.
fn rights_are_gone(gateway: &Gateway) -> anyhow::Result<String> {
    let mut left = String::new();
    for line in ["CapEff", "CapPrm"] {
        left = gateway.status_line(line)?;
        let bits = u64::from_str_radix(&left, 16)?;
        for capability in [12, 21, 39] {
            ensure!(bits & (1 << capability) == 0, "capability {capability} in {line}: {left}");
        }
    }
    Ok(left)
}

/// A route of the suite to the Service address.
struct Route;

impl Route {
    fn add(via: IpAddr) -> anyhow::Result<Route> {
        crate::node::ip(&["route", "add", &SERVICE.ip().to_string(), "via", &via.to_string()])?;
        Ok(Route)
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        let _ = crate::node::ip(&["route", "delete", &SERVICE.ip().to_string()]);
    }
}

/// How long kube-apiserver's own client is observed. Its informers connect in the first seconds.
const OBSERVED: Duration = Duration::from_secs(10);

pub(super) async fn one_address(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "one-address").await?;
    let spec = NodeSpec { bind: Bind::Advertised, ..NodeSpec::new("a", Minor::V1_36) };
    let mut node = nodes.node(0, spec).await?;
    let gateway = node.gateway(&nodes, 0).await?;
    nodes.until_answered_by("mvp", node.address()).await?;
    on_host(&nodes, &node, &[node.address()], "mvp").await?;
    source_is_known(&nodes, &node, (node.address(), IpAddr::V4(OUTSIDE)), 0).await?;
    // The other addresses of the node stay closed, as they were.
    node.ip(&["address", "add", &format!("{VIRTUAL}/32"), "dev", "eth0"])?;
    let elsewhere = nodes.admin.get(SocketAddr::new(VIRTUAL.into(), PORT), "/readyz").await;
    ensure!(elsewhere.is_err(), "an address without a kube-apiserver answers: {elsewhere:?}");

    // A kube-apiserver that starts now reaches itself through mvp, with SNI
    // apiserver-loopback-client and a certificate that only it knows.
    node.stop_server().await?;
    let log_before = std::fs::read_to_string(node.server_log())?.len();
    let started = Instant::now();
    node.start_server(&nodes)?;
    node.server_ready(&nodes).await.context("below mvp")?;
    let ready = started.elapsed().as_secs_f64();
    let observed = Instant::now();
    while observed.elapsed() < OBSERVED {
        node.check_server()?;
        let answer = nodes.admin.get(node.address(), "/readyz").await?;
        answer.expect(200).context("kube-apiserver below mvp is not ready any more")?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let log = std::fs::read_to_string(node.server_log())?;
    let log = log.get(log_before..).unwrap_or_default();
    let is_tls_error = |line: &&str| {
        ["x509:", "TLS handshake error", "tls: "].iter().any(|words| line.contains(words))
    };
    let errors: Vec<&str> = log.lines().filter(is_tls_error).collect();
    ensure!(errors.is_empty(), "{} TLS errors, the first: {:?}", errors.len(), errors.first());
    gateway.end().await?;
    nodes.until_answered_by("server", node.address()).await?;
    Ok(format!(
        "other addresses stay closed; kube-apiserver that starts below mvp is ready after {ready:.1} s \
         and stays so for {} s; 0 TLS errors in its log",
        OBSERVED.as_secs()
    ))
}

pub(super) async fn not_permitted(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "not-permitted").await?;
    let node = nodes.node(0, NodeSpec::new("a", Minor::V1_36)).await?;
    // CAP_SYS_ADMIN includes CAP_BPF.
    let less = ["-cap_12", "-cap_21", "-cap_39"].join(",");
    let mut arguments = vec![format!("--bounding-set={less}"), format!("--inh-caps={less}")];
    arguments.push(nodes.programs.mvp.display().to_string());
    arguments.extend(node.gateway_flags(&nodes, node.admin_address(0)));
    let mut gateway = node.run_gateway(Path::new("setpriv"), 0, arguments)?;
    let said = until("only steering is missing", Duration::from_secs(120), async || {
        gateway.process.check()?;
        let answer = crate::client::plain(gateway.admin, "/readyz?verbose").await?;
        ensure!(answer.status == 503 || answer.status == 500, "ready without rights: {answer}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let failed: Vec<&str> = text.lines().filter(|line| line.starts_with("[-]")).collect();
        ensure!(failed.len() == 1, "{text}");
        Ok(failed.first().map(|line| (*line).to_owned()))
    })
    .await?;
    ensure!(said.contains("steering"), "{said}");
    ensure!(nodes.who(node.address()).await? == "server", "it steers without rights");
    let log = std::fs::read_to_string(gateway.process.log())?;
    let sentences: Vec<&str> =
        log.lines().filter(|line| line.contains("cannot steer connections")).collect();
    ensure!(
        matches!(sentences.as_slice(), [one] if one.contains("CAP_BPF and CAP_NET_ADMIN")),
        "the log says: {sentences:?}"
    );
    gateway.end().await?;
    Ok(format!("kube-apiserver answers; readyz: {said}"))
}
