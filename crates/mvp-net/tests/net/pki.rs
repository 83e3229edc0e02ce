//! Certificates for tests. Entry: [`Ca`].

use std::fmt::Write;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

pub const SERVER_NAME: &str = "kubernetes.default.svc";

/// A certificate chain and its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// A CA, root or intermediate.
pub struct Ca {
    params: CertificateParams,
    key: KeyPair,
    /// What a trust bundle holds.
    pub pem: String,
    /// The intermediates that a leaf of it must bring along.
    chain: String,
}

impl Ca {
    pub fn new(name: &str) -> Self {
        Self::with_key(name, KeyPair::generate().unwrap())
    }

    /// Another certificate for the same name and key, as a renewal makes it.
    pub fn renewed(&self, name: &str) -> Self {
        Self::with_key(name, KeyPair::from_pem(&self.key.serialize_pem()).unwrap())
    }

    fn with_key(name: &str, key: KeyPair) -> Self {
        let params = ca_params(name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem, chain: String::new() }
    }

    pub fn intermediate(&self, name: &str) -> Self {
        let (params, key) = (ca_params(name), KeyPair::generate().unwrap());
        let certificate = params.signed_by(&key, &self.issuer()).unwrap().pem();
        let chain = format!("{certificate}{}", self.chain);
        Self { params, key, pem: certificate, chain }
    }

    pub fn server(&self) -> Pair {
        let mut params = CertificateParams::new([SERVER_NAME.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A client certificate whose subject is `subject`.
    pub fn client(&self, subject: &[Attribute]) -> Pair {
        self.client_with(subject, |_| {})
    }

    /// As [`client`](Self::client), with something out of the ordinary.
    pub fn client_with(
        &self,
        subject: &[Attribute],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let mut params = CertificateParams::new([]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        change(&mut params);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.issuer()).unwrap().pem();
        let mut certificate = leaf;
        write!(certificate, "{}", self.chain).unwrap();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }
}

/// One attribute of a subject.
pub type Attribute = (DnType, DnValue);

pub fn cn(value: &str) -> Attribute {
    (DnType::CommonName, DnValue::Utf8String(value.to_owned()))
}

/// rcgen holds each type of attribute once; by its number it is another type.
pub fn second_cn(value: &str) -> Attribute {
    (DnType::CustomDnType(vec![2, 5, 4, 3]), DnValue::Utf8String(value.to_owned()))
}

pub fn o(value: &str) -> Attribute {
    (DnType::OrganizationName, DnValue::Utf8String(value.to_owned()))
}

pub fn second_o(value: &str) -> Attribute {
    (DnType::CustomDnType(vec![2, 5, 4, 10]), DnValue::Utf8String(value.to_owned()))
}

pub fn uid(value: &str) -> Attribute {
    (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), DnValue::Utf8String(value.to_owned()))
}

/// For [`Ca::client_with`]: valid in 2020 only.
pub fn of_2020(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2020, 12, 31);
}

/// For [`Ca::client_with`]: a certificate for servers.
pub fn for_servers(params: &mut CertificateParams) {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
}

/// For [`Ca::client_with`]: an extension that nobody knows and everybody must.
pub fn with_a_critical_unknown(params: &mut CertificateParams) {
    let mut extension =
        CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions = vec![extension];
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}
