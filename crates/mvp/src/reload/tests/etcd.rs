//! The TLS files of etcd.

use super::*;

#[test]
fn valid_tls_files_of_etcd_are_used() {
    let place = Place::new("etcd");
    let mut reloader = place.reloader();
    let mut in_force = reloader.in_force.etcd.subscribe();
    reloader.settle();
    assert!(!in_force.has_changed().unwrap(), "nothing changed");
    let next = issue(&place.clients, "etcd");
    place.write("etcd.crt", &next.certificate);
    reloader.settle();
    assert!(!in_force.has_changed().unwrap(), "the key does not match yet");
    assert_eq!(reloader.counts("etcd-certfile"), (0, 1, 1));
    place.write("etcd.key", &next.key);
    reloader.settle();
    assert!(in_force.has_changed().unwrap());
    assert_eq!(reloader.counts("etcd-certfile"), (1, 1, 0));
    in_force.mark_unchanged();
    place.write("etcd-ca.crt", Ca::new("next").pem());
    reloader.settle();
    assert!(in_force.has_changed().unwrap());
    assert_eq!(reloader.counts("etcd-cafile"), (1, 0, 0));
}
