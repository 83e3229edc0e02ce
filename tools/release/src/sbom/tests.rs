//! The SBOM of this workspace, against what CycloneDX 1.5 requires.

use std::collections::BTreeSet;

use super::*;

fn facts() -> Facts {
    Facts { version: "1.2.3".to_owned(), commit: "c0ffee".to_owned(), time: 1_000_000_000 }
}

fn sbom() -> Value {
    let inputs = crate::cargo::inputs_for_tests();
    let one = document(inputs, &facts()).unwrap();
    assert_eq!(one, document(inputs, &facts()).unwrap());
    serde_json::from_slice(&one).unwrap()
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

#[test]
fn required_fields_of_the_specification() {
    let sbom = sbom();
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    assert_eq!(sbom["specVersion"], "1.5");
    assert_eq!(sbom["version"], 1);
    assert_eq!(sbom["metadata"]["timestamp"], "2001-09-09T01:46:40Z");
    let serial = sbom["serialNumber"].as_str().unwrap().strip_prefix("urn:uuid:").unwrap();
    let lengths: Vec<usize> = serial.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12]);
    assert!(is_hex(&serial.replace('-', ""), 32), "{serial}");
    let subject = &sbom["metadata"]["component"];
    assert_eq!((&subject["type"], &subject["name"]), (&"application".into(), &"mvp".into()));
    let components = sbom["components"].as_array().unwrap();
    for component in components {
        assert_eq!(component["type"], "library", "{component}");
        assert!(component["name"].is_string(), "{component}");
        assert!(component["version"].is_string(), "{component}");
        let purl = component["purl"].as_str().unwrap();
        assert!(purl.starts_with("pkg:cargo/") || purl.starts_with("pkg:generic/"), "{purl}");
        let licence = component["licenses"][0]["expression"].as_str().unwrap();
        assert!(!licence.contains('/'), "no SPDX expression: {licence}");
        assert!(["required", "excluded"].contains(&component["scope"].as_str().unwrap()));
        for hash in component["hashes"].as_array().into_iter().flatten() {
            assert_eq!(hash["alg"], "SHA-256");
            assert!(is_hex(hash["content"].as_str().unwrap(), 64), "{hash}");
        }
    }
}

#[test]
fn references_are_unique_and_exist() {
    let sbom = sbom();
    let components = sbom["components"].as_array().unwrap();
    let all = components.iter().chain([&sbom["metadata"]["component"]]);
    let names: Vec<&Value> = all.map(|component| &component["bom-ref"]).collect();
    let known: BTreeSet<&str> = names.iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(known.len(), names.len());
    let dependencies = sbom["dependencies"].as_array().unwrap();
    let listed: BTreeSet<&str> =
        dependencies.iter().map(|entry| entry["ref"].as_str().unwrap()).collect();
    assert_eq!(listed, known);
    for below in dependencies.iter().filter_map(|entry| entry["dependsOn"].as_array()).flatten() {
        assert!(known.contains(below.as_str().unwrap()), "{below}");
    }
}

/// ring and test crates are in Cargo.lock, but not in `mvp`.
#[test]
fn it_lists_what_is_in_the_binary() {
    let sbom = sbom();
    let components = sbom["components"].as_array().unwrap();
    let scope = |name: &str| {
        let found = components.iter().find(|component| component["name"] == name);
        found.map(|component| component["scope"].as_str().unwrap())
    };
    assert_eq!(scope("tokio"), Some("required"));
    assert_eq!(scope("mvp-core"), Some("required"));
    assert_eq!(scope("glibc"), Some("required"));
    assert_eq!(scope("rust"), Some("required"));
    assert_eq!(scope("protox"), Some("excluded"));
    assert_eq!(scope("ring"), None);
    assert_eq!(scope("proptest"), None);
    let tokio = components.iter().find(|component| component["name"] == "tokio").unwrap();
    let lock =
        std::fs::read_to_string(crate::cargo::workspace().unwrap().join("Cargo.lock")).unwrap();
    let checksum = tokio["hashes"][0]["content"].as_str().unwrap();
    let version = tokio["version"].as_str().unwrap();
    let (_, entry) =
        lock.split_once(&format!("name = \"tokio\"\nversion = \"{version}\"")).unwrap();
    assert!(entry.split("[[package]]").next().unwrap().contains(checksum));
}
