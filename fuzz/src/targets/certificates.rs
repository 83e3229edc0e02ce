//! PEM and certificates: CA bundles, pairs, the certificates of clients, and the names in them.

use std::sync::OnceLock;

use mvp_net::fuzzing::{first_version, user};
use mvp_net::{CertificateDer, CertificateNames, ClientTls, ClientTrust, ServerTls, UnixTime};
use testkit::certificates::{Ca, Leaf, Pair, bmp_cn, cn, o, uid};

use crate::target::Target;

pub const TARGET: Target = Target {
    name: "certificates",
    run,
    seeds,
    words: &[
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\n",
        "-----BEGIN EC PRIVATE KEY-----\n",
        "ENCRYPTED",
        "\u{30}\u{7f}",
        "\u{6}\u{3}U\u{4}\u{3}",
        "\u{6}\u{3}U\u{4}\n",
        "\u{c}\u{1}a",
        "\u{2}\u{1}\u{1}",
    ],
};

struct Known {
    ca: Ca,
    server: Pair,
    stranger: Ca,
}

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let ca = Ca::new("fuzz");
        let server = ca.server(&["localhost"]);
        Known { ca, server, stranger: Ca::new("stranger") }
    })
}

fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    if first & 1 == 0 { pem(rest) } else { der(rest) }
}

fn pem(text: &[u8]) {
    let Known { ca, server, .. } = known();
    let trusted = ClientTrust::new(Some(text), Some(ca.pem().as_bytes()), vec!["x".to_owned()]);
    let roots = ClientTls::new(text, None);
    assert_eq!(trusted.is_ok(), roots.is_ok(), "a CA bundle is good or bad for both");
    let (chain, key) = server.pem();
    let none = || ClientTrust::new(None, None, Vec::new()).expect("no CAs");
    let _ = ServerTls::new(text, key, none());
    let _ = ServerTls::new(chain, text, none());
    let _ = ServerTls::new(text, text, none());
    let _ = ClientTls::new(ca.pem().as_bytes(), Some((text, text)));
    if let Err(sentence) = mvp::fuzzing::pem(text) {
        super::config::one_sentence(&sentence);
    }
}

fn der(bytes: &[u8]) {
    let leaf = CertificateDer::from(bytes.to_vec());
    let _ = CertificateNames::of(&leaf);
    if let Ok(Some(user)) = user(&leaf) {
        let names = user.groups.iter().chain(&user.uid).chain([&user.name]);
        for name in names {
            // It must arrive unchanged as the value of a header.
            assert_eq!(name.trim(), name, "{name:?}");
            let value = http::HeaderValue::from_bytes(name.as_bytes());
            assert_eq!(value.expect("a header value").as_bytes(), name.as_bytes());
        }
    }
    first_version(&leaf);
    let Known { server, stranger, .. } = known();
    let pem = stranger.pem().as_bytes();
    let trust = ClientTrust::new(Some(pem), None, Vec::new()).expect("a CA");
    let chain = [leaf, server.chain()[0].clone()];
    let judgement = trust.judge(&chain, UnixTime::now());
    assert!(judgement.presented && !judgement.front_proxy && judgement.user.is_none(), "not ours");
    assert!(judgement.rejected, "a certificate that our CA did not sign");
}

fn seeds() -> Vec<Vec<u8>> {
    let Known { ca, server, .. } = known();
    let named = ca.issue(Leaf::new(&[cn("alice"), o("dev"), o("ops"), uid("7")]).for_clients());
    let other = ca.issue(Leaf::new(&[bmp_cn("böb")]).for_clients());
    let old = ca.issue(Leaf::named("old").of_version_1());
    let (chain, key) = server.pem();
    let pem = |text: &[u8]| [&[0][..], text].concat();
    let mut all = vec![pem(ca.pem().as_bytes()), pem(chain), pem(key), pem(&[chain, key].concat())];
    for pair in [server, &named, &other, &old] {
        all.push([&[1][..], &pair.chain()[0]].concat());
    }
    // Seeds must be the same whenever they are used, or a finding in one cannot be found again: what
    // libFuzzer makes of them is kept in the corpus.
    all
}
