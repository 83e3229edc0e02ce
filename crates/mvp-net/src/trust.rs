//! Judges a client's certificate after the handshake, as kube-apiserver does. Entry:
//! [`ClientTrust::judge`].

mod subject;

use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};

pub use self::subject::{BadName, CertificateUser};
use self::subject::{common_name, user, validity_bounds};
use crate::TlsError;
use crate::pem::roots;
use crate::provider::provider;

/// Whose certificates count, and for what: the client CA names users, the request-header CA names
/// front proxies, which may speak for any user.
#[derive(Debug)]
pub struct ClientTrust {
    client: Option<Arc<dyn ClientCertVerifier>>,
    request_header: Option<Arc<dyn ClientCertVerifier>>,
    allowed_names: Vec<String>,
    subjects: Vec<DistinguishedName>,
}

/// What a client's certificate proves.
///
/// The default is that of a client which showed none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Whether the client showed a certificate at all.
    pub presented: bool,
    /// The certificate is from the client CA, whatever its name, or that of a front proxy.
    pub trusted: bool,
    /// The certificate is from the request-header CA and its name is allowed: a front proxy or a
    /// peer, which may say who the user is.
    pub front_proxy: bool,
    /// The certificate is from the client CA: the user that it names, or why that name cannot be
    /// used. None also when the certificate has no common name.
    pub user: Option<Result<CertificateUser, BadName>>,
    /// From this moment on the judgement no longer holds: a certificate of the chain expires or
    /// becomes valid. [`serve`](crate::serve()) judges again by itself.
    pub valid_until: Option<UnixTime>,
}

impl ClientTrust {
    /// Both CAs as PEM bundles, each optional. `allowed_names`: the common names of front
    /// proxies; empty: any, which is refused when the two CAs have a certificate in common.
    pub fn new(
        client_ca: Option<&[u8]>,
        request_header_ca: Option<&[u8]>,
        allowed_names: Vec<String>,
    ) -> Result<Self, TlsError> {
        let client = client_ca.map(roots).transpose()?;
        let request_header = request_header_ca.map(roots).transpose()?;
        if let (Some(client), Some(request_header)) = (&client, &request_header)
            && allowed_names.is_empty()
            && share_an_anchor(client, request_header)
        {
            return Err(TlsError::SharedCa);
        }
        let mut subjects: Vec<DistinguishedName> = Vec::new();
        for subject in client.iter().chain(&request_header).flat_map(RootCertStore::subjects) {
            if !subjects.iter().any(|known| known.as_ref() == subject.as_ref()) {
                subjects.push(subject);
            }
        }
        Ok(Self {
            client: client.map(verifier).transpose()?,
            request_header: request_header.map(verifier).transpose()?,
            allowed_names,
            subjects,
        })
    }

    /// What `chain`, leaf first, proves at `now`. That the client holds the leaf's key was shown
    /// in the handshake.
    pub fn judge(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Judgement {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Judgement::default();
        };
        let vouches = |verifier: &Option<Arc<dyn ClientCertVerifier>>| {
            verifier.as_ref().is_some_and(|verifier| {
                verifier.verify_client_cert(leaf, intermediates, now).is_ok()
            })
        };
        let front_proxy = vouches(&self.request_header) && self.allows(leaf);
        let client = vouches(&self.client);
        Judgement {
            presented: true,
            trusted: front_proxy || client,
            front_proxy,
            user: if client { user(leaf).transpose() } else { None },
            valid_until: chain
                .iter()
                .flat_map(validity_bounds)
                .filter(|bound| *bound > now.as_secs())
                .min()
                .map(|bound| UnixTime::since_unix_epoch(std::time::Duration::from_secs(bound))),
        }
    }

    /// The subjects of both CAs, each once: hints to clients that hold several certificates.
    pub(crate) fn subjects(&self) -> Vec<DistinguishedName> {
        self.subjects.clone()
    }

    fn allows(&self, leaf: &CertificateDer<'_>) -> bool {
        self.allowed_names.is_empty()
            || common_name(leaf).is_some_and(|name| self.allowed_names.contains(&name))
    }
}

fn verifier(roots: RootCertStore) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    // Cannot fail: the roots are not empty, and there are no revocation lists.
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| TlsError::Setup(rustls::Error::General(error.to_string())))
}

/// By subject and key and not by bytes: a CA certificate that was renewed with its old key vouches
/// for the same leaves.
fn share_an_anchor(one: &RootCertStore, other: &RootCertStore) -> bool {
    one.roots.iter().any(|anchor| {
        other.roots.iter().any(|candidate| {
            anchor.subject == candidate.subject
                && anchor.subject_public_key_info == candidate.subject_public_key_info
        })
    })
}
