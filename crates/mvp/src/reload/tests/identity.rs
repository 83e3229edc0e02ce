//! The proxy client certificate, and the CAs that it is checked against.

use super::*;

#[test]
fn an_untrusted_proxy_certificate_is_refused_until_its_ca_is_loaded() {
    let place = Place::new("proxy");
    let mut reloader = place.reloader();
    let before = reloader.in_force.outbound_local.current();
    let proxies = Ca::new("proxies");
    let new = issue(&proxies, "proxy");
    place.write_pair("proxy", &new);
    reloader.settle();
    assert_eq!(reloader.counts(PROXY), (0, 1, 1));
    assert!(Arc::ptr_eq(&before, &reloader.in_force.outbound_local.current()));

    // So is the certificate of a user.
    place.write_pair("proxy", &issue(&place.clients, "alice"));
    reloader.settle();
    assert_eq!(reloader.counts(PROXY), (0, 2, 1));

    place.write_pair("proxy", &new);
    place.write("proxy-ca.crt", proxies.pem());
    reloader.settle();
    assert_eq!(reloader.counts(PROXY), (1, 2, 0));
    assert_eq!(reloader.counts("requestheader-client-ca-file"), (1, 0, 0));
    assert_eq!(
        reloader.config.proxy_client.as_ref().unwrap().chain.pem,
        new.certificate.as_bytes()
    );
    assert!(!Arc::ptr_eq(&before, &reloader.in_force.outbound_local.current()));
}

#[test]
fn a_ca_that_does_not_cover_the_proxy_certificate_is_used_and_reported() {
    let place = Place::new("proxy-ca");
    let mut reloader = place.reloader();
    place.write("proxy-ca.crt", Ca::new("proxies").pem());
    reloader.settle();
    assert_eq!(reloader.counts("requestheader-client-ca-file"), (1, 0, 0), "the new CA is in use");
    assert_eq!(reloader.counts(PROXY), (0, 1, 1));
    place.write("proxy-ca.crt", place.proxies.pem());
    reloader.settle();
    assert_eq!(reloader.counts(PROXY), (0, 1, 0));
}

#[test]
fn a_client_ca_shared_with_front_proxies_is_refused() {
    let place = Place::new("shared");
    let mut reloader = place.reloader();
    place.write("client-ca.crt", place.proxies.pem());
    reloader.settle();
    assert_eq!(reloader.counts("client-ca-file"), (0, 1, 1));
    assert_eq!(reloader.config.client_ca.as_ref().unwrap().pem, place.clients.pem().as_bytes());
}

#[test]
fn a_client_ca_that_authenticates_the_proxy_certificate_is_refused() {
    let place = Place::new("proxy-user");
    let mut reloader = place.reloader_with(&["--requestheader-allowed-names=proxy"]);
    let old = place.clients.pem();
    place.write("client-ca.crt", &[old, place.proxies.pem()].concat());
    reloader.settle();
    assert_eq!(reloader.counts("client-ca-file"), (0, 1, 1));
    assert_eq!(reloader.counts(PROXY), (0, 0, 0), "the one in use is valid");
    assert_eq!(reloader.config.client_ca.as_ref().unwrap().pem, old.as_bytes());
    place.write("client-ca.crt", old);
    reloader.settle();
    assert_eq!(reloader.counts("client-ca-file"), (0, 1, 0));

    // A certificate that is valid for a front proxy and for a user.
    place.write("proxy-ca.crt", &[place.proxies.pem(), old].concat());
    reloader.settle();
    assert_eq!(reloader.counts("requestheader-client-ca-file"), (1, 0, 0));
    let in_use = reloader.config.proxy_client.as_ref().unwrap().chain.pem.clone();
    place.write_pair("proxy", &issue(&place.clients, "proxy"));
    reloader.settle();
    assert_eq!(reloader.counts(PROXY), (0, 1, 1));
    assert_eq!(reloader.config.proxy_client.as_ref().unwrap().chain.pem, in_use);
}
