//! From files that were checked to TLS that runs, at the start and at each reload.

use std::sync::Arc;

use anyhow::Context;
use mvp_net::{ClientTrust, ServerTls, UnixTime};
use mvp_proxy::data::OutboundTls;
use rustls::ClientConfig;

use crate::config::{CertificateFile, EtcdConfig, ServeConfig, not_everyone};
use crate::mistake::Mistake;

/// What clients see of us, and whom of them we know.
pub(crate) fn server(config: &ServeConfig) -> anyhow::Result<ServerTls> {
    let trust = client_trust(config)?;
    ServerTls::new(&config.serving.chain.pem, &config.serving.key.pem, trust)
        .context("--tls-cert-file and --tls-private-key-file")
}

/// Whom we know by certificate.
fn client_trust(config: &ServeConfig) -> anyhow::Result<ClientTrust> {
    let request_header = &config.request_header;
    not_everyone(config.client_ca.as_ref(), request_header, &config.origins)?;
    ClientTrust::new(
        config.client_ca.as_ref().map(|ca| &*ca.pem),
        request_header.ca.as_ref().map(|ca| &*ca.pem),
        request_header.allowed_names.clone(),
    )
    .context("--client-ca-file and --requestheader-client-ca-file")
}

/// The same of the local server; of its peers where there is none.
pub(crate) fn outbound_local(config: &ServeConfig) -> anyhow::Result<OutboundTls> {
    let local = config.local.as_ref().map(|local| &local.ca);
    let authorities = local.or(config.peers.ca.as_ref()).context("--local-ca-file")?;
    outbound(config, authorities)
}

/// What servers see of us, and whom of them we believe: those of this CA.
pub(crate) fn outbound(
    config: &ServeConfig,
    authorities: &CertificateFile,
) -> anyhow::Result<OutboundTls> {
    let proxy = config.proxy_client.as_ref();
    let proxy = proxy.map(|proxy| (&*proxy.chain.pem, &*proxy.key.pem));
    let key = authorities.key;
    OutboundTls::new(&authorities.pem, proxy)
        .with_context(|| format!("--{key} and --proxy-client-cert-file"))
}

/// The same of etcd; nothing where it is reached without, or not at all.
pub(crate) fn etcd(config: &ServeConfig) -> anyhow::Result<Option<Arc<ClientConfig>>> {
    config.peers.etcd.as_ref().map_or(Ok(None), EtcdConfig::tls)
}

/// A server that takes our certificate for a user's would take every request for that user's.
pub(crate) fn check_proxy_identity(config: &ServeConfig) -> anyhow::Result<()> {
    let Some(proxy) = &config.proxy_client else { return Ok(()) };
    let proves = client_trust(config)?.judge(&proxy.chain.certificates, UnixTime::now());
    let shown = proxy.chain.path.display();
    let wrong = if proves.user.is_some() && !proves.front_proxy {
        format!("{shown} is a user's, of --client-ca-file: every request would be that user's")
    } else if config.request_header.ca.is_some() && !proves.front_proxy {
        format!(
            "{shown} is not of --requestheader-client-ca-file, its name is not among \
             --requestheader-allowed-names, or it is not valid now: nobody would believe it"
        )
    } else {
        return Ok(());
    };
    let fix = "give the one that the servers trust to speak for users, as kubeadm's \
               front-proxy-client.crt";
    Err(Mistake::trouble("--proxy-client-cert-file", format!("{wrong}; {fix}")).into())
}
