//! TLS of the running gateway from the validated files, at start and at each reload.

use std::sync::Arc;

use anyhow::Context;
use mvp_net::{ClientTrust, Judgement, ServerTls, UnixTime};
use mvp_proxy::OutboundTls;
use rustls::ClientConfig;

use crate::config::{CertificateFile, EtcdConfig, KeyPair, ServeConfig, SniPair, not_everyone};
use crate::mistake::Mistake;

/// The TLS of the listener, with the trust in client certificates.
pub(crate) fn server(config: &ServeConfig) -> anyhow::Result<ServerTls> {
    let trust = client_trust(config)?;
    let (certificate, key) = (&config.serving.chain.pem, &config.serving.key.pem);
    let more: Vec<_> = config.sni.iter().map(SniPair::certificate).collect();
    ServerTls::with(certificate, key, trust, &more, &config.tls_policy)
        .context("--tls-cert-file, --tls-private-key-file and --tls-sni-cert-key")
}

/// The trust in client certificates.
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

/// The TLS towards the local server; towards peers if there is no local server.
pub(crate) fn outbound_local(config: &ServeConfig) -> anyhow::Result<OutboundTls> {
    let local = config.local.as_ref().map(|local| &local.ca);
    let authorities = local.or(config.peers.ca.as_ref()).context("--local-ca-file")?;
    outbound(config, authorities)
}

/// The TLS towards servers whose certificates these CAs signed.
pub(crate) fn outbound(
    config: &ServeConfig,
    authorities: &CertificateFile,
) -> anyhow::Result<OutboundTls> {
    let proxy = config.proxy_client.as_ref();
    let proxy = proxy.map(|proxy| (&*proxy.chain.pem, &*proxy.key.pem));
    let key = authorities.key;
    let origin = format!("--{key} {}", authorities.path.display());
    OutboundTls::new(&authorities.pem, proxy)
        .and_then(|tls| tls.explained(&origin))
        .with_context(|| format!("--{key} and --proxy-client-cert-file"))
}

/// The TLS towards etcd; `None` for plain HTTP, or without etcd.
pub(crate) fn etcd(config: &ServeConfig) -> anyhow::Result<Option<Arc<ClientConfig>>> {
    config.peers.etcd.as_ref().map_or(Ok(None), EtcdConfig::tls)
}

/// Checks that the proxy client certificate is a valid front-proxy certificate, and no user's.
pub(crate) fn check_proxy_identity(config: &ServeConfig) -> anyhow::Result<()> {
    check_proxy_is_no_user(config)?;
    let Some(proxy) = &config.proxy_client else { return Ok(()) };
    if config.request_header.ca.is_none() || judge(config, proxy)?.front_proxy {
        return Ok(());
    }
    let sentence = format!(
        "servers would not trust {}: no CA of --requestheader-client-ca-file signed it, its name is \
         not in --requestheader-allowed-names, or it is not valid now; give the front-proxy client \
         certificate of the servers, such as kubeadm's front-proxy-client.crt",
        proxy.chain.path.display()
    );
    Err(Mistake::trouble("--proxy-client-cert-file", sentence).into())
}

/// Checks that the proxy client certificate does not authenticate a user.
///
/// A server that receives such a certificate with an anonymous request treats the request as that
/// user's, even if it is also a valid front-proxy certificate.
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
        "{} authenticates {name} under --client-ca-file {}, so that anonymous requests would get \
         the rights of that user; sign the proxy client certificate with a separate CA, such as \
         kubeadm's front-proxy-ca, and give that CA as --requestheader-client-ca-file",
        proxy.chain.path.display(),
        client_ca.path.display()
    );
    Err(Mistake::trouble("--proxy-client-cert-file", sentence).into())
}

fn judge(config: &ServeConfig, proxy: &KeyPair) -> anyhow::Result<Judgement> {
    Ok(client_trust(config)?.judge(&proxy.chain.certificates, UnixTime::now()))
}
