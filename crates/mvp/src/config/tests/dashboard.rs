//! The dashboard for other hosts: only with TLS client certificates of some groups.

use super::{Files, IDENTITY, LEAST};

#[test]
fn other_hosts_need_groups_and_a_client_ca() {
    let files = Files::new("dashboard");
    let check = |more: &[&str]| {
        let arguments: Vec<&str> = LEAST.iter().chain(&IDENTITY).chain(more).copied().collect();
        files.check(&arguments)
    };
    let (address, groups) =
        ("--dashboard-bind-address=10.0.0.1:6482", "--dashboard-allowed-groups=sre,system:masters");
    let ca = "--client-ca-file=@/other-ca.crt";
    let config = check(&[]).unwrap();
    assert_eq!((config.dashboard, config.dashboard_flow), (None, false));
    let found = check(&[address, groups, ca, "--dashboard-flow"]).unwrap();
    assert!(found.dashboard_flow);
    let dashboard = found.dashboard.unwrap();
    assert_eq!(dashboard.address.to_string(), "10.0.0.1:6482");
    assert_eq!(dashboard.groups, ["sre", "system:masters"]);

    for (flags, said) in [
        (
            &[address, ca][..],
            "--dashboard-bind-address: the dashboard is served to clients of some",
        ),
        (&[address, groups], "--dashboard-bind-address: the dashboard is served to client cert"),
        (&[groups, ca], "--dashboard-allowed-groups: it allows groups to see the dashboard from"),
        (&["--dashboard-allowed-groups= x"], "--dashboard-allowed-groups: \" x\" is not the name"),
        (&["--dashboard-allowed-groups="], "--dashboard-allowed-groups: \"\" is not the name"),
    ] {
        let text = check(flags).unwrap_err().to_string();
        assert!(text.starts_with(said), "{text}");
    }
}
