//! Judges a client's certificate after the handshake, as kube-apiserver does. Entry:
//! [`ClientTrust::judge`].

mod subject;
mod version_1;

use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};

#[cfg(fuzzing)]
pub(crate) use self::subject::user as certificate_user;
pub use self::subject::{BadName, CertificateUser};
use self::subject::{common_name, user, validity_bounds};
pub(crate) use self::version_1::Version1;
use crate::TlsError;
use crate::pem::roots;
use crate::provider::provider;

/// The trusted CAs of client certificates: the client CA identifies users, the request-header CA
/// identifies front proxies, which may act for any user.
#[derive(Debug)]
pub struct ClientTrust {
    client: Option<Authority>,
    request_header: Option<Authority>,
    allowed_names: Vec<String>,
    subjects: Vec<DistinguishedName>,
}

/// The result of judging a client's certificate.
///
/// The default is that of a client without a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Whether the client presented a certificate.
    pub presented: bool,
    /// Whether a configured CA did not sign the certificate, or its name is not that of a front proxy.
    /// A caller whom neither this certificate nor a token identifies is then unauthorized, not
    /// anonymous: kube-apiserver asks both CAs, and one that rejects the certificate is an error.
    pub rejected: bool,
    /// Whether the request-header CA signed the certificate and its name is allowed: a front proxy or
    /// a peer, which may name the user.
    pub front_proxy: bool,
    /// The user of a certificate that the client CA signed, or why its name cannot be used. `None`
    /// also if the certificate has no common name.
    pub user: Option<Result<CertificateUser, BadName>>,
    /// The time at which the judgement must be repeated, because a certificate of the chain expires
    /// or becomes valid. [`serve`](crate::serve()) does so.
    pub valid_until: Option<UnixTime>,
}

impl ClientTrust {
    /// Both CAs are optional PEM bundles. `allowed_names` are the common names of front proxies; empty
    /// allows any, which is an error if the two CAs share a certificate.
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
            client: client.map(Authority::new).transpose()?,
            request_header: request_header.map(Authority::new).transpose()?,
            allowed_names,
            subjects,
        })
    }

    /// Judges `chain`, leaf first, at `now`. The handshake has verified that the client holds the key
    /// of the leaf.
    pub fn judge(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Judgement {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Judgement::default();
        };
        // `None` if there is no such CA.
        let verifies = |authority: &Option<Authority>| {
            Some(authority.as_ref()?.verifies(leaf, intermediates, now))
        };
        let front_proxy = verifies(&self.request_header).map(|signed| signed && self.allows(leaf));
        let client = verifies(&self.client);
        let verdicts = [front_proxy, client];
        Judgement {
            presented: true,
            rejected: verdicts.contains(&Some(false)) || !verdicts.contains(&Some(true)),
            front_proxy: front_proxy == Some(true),
            user: if client == Some(true) { user(leaf).transpose() } else { None },
            valid_until: chain
                .iter()
                .flat_map(validity_bounds)
                .filter(|bound| *bound > now.as_secs())
                .min()
                .map(|bound| UnixTime::since_unix_epoch(std::time::Duration::from_secs(bound))),
        }
    }

    /// The subjects of both CAs, without duplicates: hints for clients with several certificates.
    pub(crate) fn subjects(&self) -> Vec<DistinguishedName> {
        self.subjects.clone()
    }

    fn allows(&self, leaf: &CertificateDer<'_>) -> bool {
        self.allowed_names.is_empty()
            || common_name(leaf).is_some_and(|name| self.allowed_names.contains(&name))
    }
}

/// A CA bundle.
#[derive(Debug)]
struct Authority {
    roots: Arc<RootCertStore>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Authority {
    fn new(roots: RootCertStore) -> Result<Self, TlsError> {
        let roots = Arc::new(roots);
        // Cannot fail: the roots are not empty, and there are no revocation lists.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .build()
            .map_err(|error| TlsError::Setup(rustls::Error::General(error.to_string())))?;
        Ok(Self { roots, verifier })
    }

    fn verifies(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> bool {
        match Version1::read(leaf) {
            Some(leaf) => leaf.is_client_of(&self.roots, intermediates, now),
            None => self.verifier.verify_client_cert(leaf, intermediates, now).is_ok(),
        }
    }
}

/// Whether both stores have a CA in common, by subject and key: a CA certificate that was renewed with
/// its old key verifies the same leaves.
fn share_an_anchor(one: &RootCertStore, other: &RootCertStore) -> bool {
    one.roots.iter().any(|anchor| {
        other.roots.iter().any(|candidate| {
            anchor.subject == candidate.subject
                && anchor.subject_public_key_info == candidate.subject_public_key_info
        })
    })
}
