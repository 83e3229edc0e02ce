//! The etcds of the cases: one of three members, and one with TLS and users.

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::kubernetes::{EtcdMember, file_flag};
use testkit::process::{Process, Program, until};

use super::super::SOON;
use crate::client::plain_post;
use crate::cluster::Cluster;

/// An etcd of three members.
pub(super) struct Etcds {
    ip: IpAddr,
    processes: [Option<Process>; 3],
}

impl Etcds {
    pub(super) fn start(cluster: &Cluster) -> anyhow::Result<Etcds> {
        let mut members = Etcds { ip: cluster.client_address(), processes: [None, None, None] };
        (0..3).try_for_each(|index| members.run(cluster, index))?;
        Ok(members)
    }

    pub(super) fn urls(&self) -> Vec<String> {
        (0..3).map(|index| format!("http://{}:{}", self.ip, 12379 + 10 * index)).collect()
    }

    pub(super) fn kill(&mut self, index: usize) {
        if let Some(process) = self.processes.get_mut(index) {
            *process = None;
        }
    }

    pub(super) fn run(&mut self, cluster: &Cluster, index: usize) -> anyhow::Result<()> {
        let peer = |index: usize| format!("http://{}:{}", self.ip, 12380 + 10 * index);
        let all: Vec<String> = (0..3).map(|index| format!("m{index}={}", peer(index))).collect();
        let clients = self.urls().get(index).cloned().context("no such member")?;
        let folder = cluster.folder().join(format!("etcd-m{index}"));
        let member = EtcdMember {
            name: &format!("m{index}"),
            data: &folder,
            clients: &clients,
            peers: &peer(index),
            cluster: &all.join(","),
        };
        let log = cluster.folder().join(format!("etcd-m{index}.log"));
        let etcd = Program::new("etcd", &cluster.programs.etcd());
        let process = etcd.start(&log, member.flags())?;
        if let Some(place) = self.processes.get_mut(index) {
            *place = Some(process);
        }
        Ok(())
    }
}

/// An etcd of one member that speaks TLS and wants client certificates; and plain HTTP, for the case.
pub(super) struct Secure {
    name: &'static str,
    plain: SocketAddr,
    process: Option<Process>,
    /// Who may do what, once it asks.
    token: Option<String>,
}

impl Secure {
    pub(super) fn start(cluster: &Cluster, name: &'static str) -> anyhow::Result<Secure> {
        let plain = SocketAddr::new(cluster.spare_address(), 13381);
        let mut etcd = Secure { name, plain, process: None, token: None };
        etcd.run(cluster)?;
        Ok(etcd)
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.plain.ip(), 13379)
    }

    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    pub(super) fn run(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        let (pki, server) = (&cluster.pki, cluster.pki.etcd()?);
        let (clients, peer) =
            (format!("https://{}", self.address()), format!("http://{}:13380", self.plain.ip()));
        let name = self.name;
        let folder = cluster.folder().join(format!("etcd-{name}"));
        let member =
            EtcdMember { name, data: &folder, clients: &clients, peers: &peer, cluster: "" };
        let mut flags = member.flags();
        flags.retain(|flag| !flag.starts_with("--listen-client-urls="));
        flags.extend([
            format!("--listen-client-urls={clients},http://{}", self.plain),
            file_flag("cert-file", &server.certificate),
            file_flag("key-file", &server.key),
            "--client-cert-auth".to_owned(),
            file_flag("trusted-ca-file", &pki.files().ca()),
        ]);
        let log = cluster.folder().join(format!("etcd-{name}.log"));
        let etcd = Program::new("etcd", &cluster.programs.etcd());
        self.process = Some(etcd.start(&log, flags)?);
        Ok(())
    }

    /// Asks it, over its JSON API.
    pub(super) async fn ask(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        until(&format!("etcd answers {path}"), SOON, async || {
            let answer = plain_post(self.plain, path, self.token.as_deref(), &body).await?;
            answer.expect(200).map(Some)
        })
        .await
    }

    /// Turns on that users have rights: of root alone.
    pub(super) async fn enable_auth(&mut self) -> anyhow::Result<()> {
        let root = json!({"name": "root", "password": "secret"});
        self.ask("/v3/auth/user/add", root.clone()).await?;
        self.ask("/v3/auth/role/add", json!({"name": "root"})).await?;
        self.ask("/v3/auth/user/grant", json!({"user": "root", "role": "root"})).await?;
        self.ask("/v3/auth/role/add", json!({"name": "members"})).await?;
        let nobody = json!({"name": "finder", "options": {"no_password": true}});
        self.ask("/v3/auth/user/add", nobody).await?;
        self.ask("/v3/auth/user/grant", json!({"user": "finder", "role": "members"})).await?;
        self.ask("/v3/auth/enable", json!({})).await?;
        self.log_in().await
    }

    pub(super) async fn log_in(&mut self) -> anyhow::Result<()> {
        let root = json!({"name": "root", "password": "secret"});
        self.token = None;
        let token = self.ask("/v3/auth/authenticate", root).await?;
        self.token = token.get("token").and_then(Value::as_str).map(str::to_owned);
        Ok(())
    }

    pub(super) async fn grant(&self, folder: &str, right: &str) -> anyhow::Result<()> {
        let mut end = folder.as_bytes().to_vec();
        end.pop();
        end.push(b'/' + 1);
        let (key, end) = (BASE64.encode(folder), BASE64.encode(end));
        let right = json!({"permType": right, "key": key, "range_end": end});
        let grant = json!({"name": "members", "perm": right});
        self.ask("/v3/auth/role/grant", grant).await.map(drop)
    }

    /// What there is of a key: its creation, if it is there.
    pub(super) async fn created(&self, key: &str) -> anyhow::Result<Option<Value>> {
        let there = self.ask("/v3/kv/range", json!({"key": BASE64.encode(key)})).await?;
        Ok(there.pointer("/kvs/0/create_revision").cloned())
    }
}
