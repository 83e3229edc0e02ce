//! `docs/compatibility.md` names the versions that the end-to-end suite runs, and cases that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::documented::{read, root, table};

#[test]
fn the_tested_releases_are_those_of_the_suite() {
    let page = read("docs/compatibility.md");
    let section = page.split("\n## ").find(|part| part.starts_with("Kubernetes releases")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| 1."));
    let rows: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches(['|', ' ']).split(" | ").collect()).collect();
    let documented: BTreeMap<String, String> =
        rows.iter().map(|row| (format!("v{}", row[0]), row[1].to_owned())).collect();
    let mut pinned = BTreeMap::new();
    for entry in fs::read_dir(root().join("e2e/programs")).unwrap() {
        let folder = entry.unwrap().file_name().into_string().unwrap();
        if folder.starts_with("v1.") {
            let module = read(&format!("e2e/programs/{folder}/go.mod"));
            let version = module.split("k8s.io/kubernetes ").nth(1).unwrap();
            let version = version.split_whitespace().next().unwrap().to_owned();
            pinned.insert(folder, version);
        }
    }
    assert_eq!(documented, pinned, "docs/compatibility.md (left) and e2e/programs");
    // Those of every change are in the report, and the others are not.
    let report = read("e2e/report.md");
    for row in rows {
        let reported = report.contains(&format!("Kubernetes {}", row[1]));
        assert_eq!(row[2] == "every change", reported, "{row:?}");
    }
}

#[test]
fn the_named_cases_exist() {
    let mut source = String::new();
    collect(&root().join("e2e/src/cases"), &mut source);
    let names = source.split("case!(").skip(1).filter_map(|case| case.split('"').nth(1));
    let names: BTreeSet<&str> = names.collect();
    let groups: BTreeSet<&str> = names.iter().filter_map(|name| name.split('/').next()).collect();
    for page in ["docs/compatibility.md", "docs/comparison.md", "docs/faq.md", "docs/upgrade.md"] {
        let text = read(page);
        let named = text.split('`').skip(1).step_by(2).filter(|code| {
            let is_name = code.chars().all(|c| c.is_ascii_lowercase() || "/-".contains(c));
            is_name && code.split_once('/').is_some_and(|(group, _)| groups.contains(group))
        });
        let named: BTreeSet<&str> = named.collect();
        assert!(named.len() > 2, "{page}: {named:?}");
        for name in named {
            assert!(names.contains(name), "{page}: no case {name}");
        }
    }
}

/// The alert that the runbook stops at, and every other one that it names.
#[test]
fn the_named_alerts_exist() {
    let alerts: BTreeSet<String> = table(&read("docs/operate.md"), "## Alerts")
        .into_iter()
        .map(|row| row[0].replace('`', ""))
        .collect();
    let page = read("docs/upgrade.md");
    let named = page.split('`').skip(1).step_by(2).filter(|code| code.starts_with("Mvp"));
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 3, "{named:?}");
    for name in named {
        assert!(alerts.contains(name), "{name}");
    }
}

fn collect(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, text);
        } else {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}
