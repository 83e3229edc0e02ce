//! From files that were checked to TLS that runs, at the start and at each reload.

use std::sync::Arc;

use anyhow::Context;
use mvp_net::{ClientTrust, Judgement, ServerTls, UnixTime};
use mvp_proxy::data::OutboundTls;
use rustls::ClientConfig;

use crate::config::{CertificateFile, EtcdConfig, KeyPair, ServeConfig, not_everyone};
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

/// Whether the proxy certificate is a front proxy's, and nothing else.
pub(crate) fn check_proxy_identity(config: &ServeConfig) -> anyhow::Result<()> {
    check_proxy_is_no_user(config)?;
    let Some(proxy) = &config.proxy_client else { return Ok(()) };
    if config.request_header.ca.is_none() || judge(config, proxy)?.front_proxy {
        return Ok(());
    }
    let sentence = format!(
        "{} is not of --requestheader-client-ca-file, its name is not among \
         --requestheader-allowed-names, or it is not valid now: nobody would believe it; give the \
         one that the servers trust to speak for users, as kubeadm's front-proxy-client.crt",
        proxy.chain.path.display()
    );
    Err(Mistake::trouble("--proxy-client-cert-file", sentence).into())
}

/// Refuses a proxy certificate that proves a user. A server that receives such a certificate with
/// an anonymous request authenticates the request as that user; a valid front-proxy certificate is
/// no exception.
pub(crate) fn check_proxy_is_no_user(config: &ServeConfig) -> anyhow::Result<()> {
    let (Some(proxy), Some(client_ca)) = (&config.proxy_client, &config.client_ca) else {
        return Ok(());
    };
    let name = match judge(config, proxy)?.user {
        None => return Ok(()),
        Some(Ok(user)) => format!("user {:?}", user.name),
        Some(Err(_)) => "a user".to_owned(),
    };
    let sentence = format!(
        "{} proves {name} under --client-ca-file {}: anonymous requests over it would be that \
         user's; sign the proxy client certificate with a CA of its own, as kubeadm's \
         front-proxy-ca, and give that CA as --requestheader-client-ca-file",
        proxy.chain.path.display(),
        client_ca.path.display()
    );
    Err(Mistake::trouble("--proxy-client-cert-file", sentence).into())
}

fn judge(config: &ServeConfig, proxy: &KeyPair) -> anyhow::Result<Judgement> {
    Ok(client_trust(config)?.judge(&proxy.chain.certificates, UnixTime::now()))
}
