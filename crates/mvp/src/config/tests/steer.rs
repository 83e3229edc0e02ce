//! `--steer`: the way to the server, and mistakes.

use super::{Files, LEAST};

#[test]
fn a_steered_gateway_reaches_its_server_around_the_steering() {
    let files = Files::new("steer");
    let check = |local: &str, more: &[&str]| {
        let local = format!("--local-server={local}");
        let arguments = ["--steer", LEAST[0], LEAST[1], LEAST[3], &local];
        files.check(&arguments.iter().chain(more).copied().collect::<Vec<_>>())
    };
    let around = |local| check(local, &[]).unwrap().steer.unwrap().around;
    // The same address and port as mvp's own are right here.
    assert_eq!(around("https://127.0.0.1:6443"), None);
    assert_eq!(around("https://localhost:6443"), None);
    assert_eq!(around("https://[::1]:6443"), None);
    let found = around("https://10.0.0.1:6443").unwrap();
    assert_eq!(found.server, "10.0.0.1:6443".parse().unwrap());
    assert!(found.source.is_loopback() && found.source.is_ipv4());
    let found = around("https://[fd00::1]:6443").unwrap();
    assert!(found.source.is_loopback() && found.source.is_ipv6());
    assert_eq!(files.check(&LEAST).unwrap().steer, None);

    let wrong = |local, more: &[&str]| check(local, more).unwrap_err().to_string();
    let text = wrong("https://api.example:6443", &[]);
    assert!(text.starts_with("--local-server: api.example is not an IP address"), "{text}");
    let text = wrong("https://127.0.0.1:6443", &["--secure-port=0"]);
    assert!(text.starts_with("--secure-port: 0 is not the port of an API server"), "{text}");
    let text = wrong("https://127.0.0.1:7443", &[]);
    assert!(text.starts_with("--local-server: port 7443 is not that of --secure-port"), "{text}");
    let before =
        ["--steer", LEAST[0], LEAST[1], "--peer-ca-file=@/ca.crt", "--servers=https://a:1"];
    let text = files.check(&before).unwrap_err().to_string();
    assert!(text.starts_with("--steer: only a gateway beside an API server"), "{text}");
}
