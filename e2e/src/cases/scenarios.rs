//! The table of scenarios names cases and tests that exist.

use std::path::Path;

const TABLE: &str = include_str!("../../UPSTREAM_SCENARIOS.md");

/// The rows of every table: scenario, and what shows it.
fn rows() -> Vec<(&'static str, &'static str)> {
    let cells = |line: &'static str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cells.next()?, cells.next()?))
    };
    let is_row = |(name, _): &(&str, &str)| !["scenario", "hole", "---"].contains(name);
    TABLE.lines().filter_map(cells).filter(is_row).collect()
}

/// `file::test` of this workspace, or a case.
fn exists(name: &str) -> bool {
    let Some((file, test)) = name.split_once("::") else {
        return super::all().iter().any(|case| case.name == name);
    };
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let text = std::fs::read_to_string(workspace.join(file)).unwrap_or_default();
    text.contains(&format!("fn {test}("))
}

#[test]
fn every_scenario_is_shown_by_what_exists() {
    let rows = rows();
    assert!(rows.len() > 45, "{} rows", rows.len());
    for (scenario, shown_by) in rows {
        if shown_by == "none" {
            continue;
        }
        let names: Vec<&str> = shown_by.split('`').filter(|name| !name.trim().is_empty()).collect();
        assert!(!names.is_empty(), "nothing shows: {scenario}");
        for name in names {
            assert!(exists(name), "{scenario}: there is no {name}");
        }
    }
}

#[test]
fn what_does_not_exist_is_found_out() {
    assert!(exists("routing/every-verb") && !exists("routing/every-word"));
    assert!(!exists("crates/mvp-core/tests/requests/main.rs::no_such_test"));
    assert!(!exists("no/such/file.rs::warnings"));
}
