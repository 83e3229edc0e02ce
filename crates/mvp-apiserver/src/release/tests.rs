use std::collections::BTreeSet;

use super::*;

fn spec(release: Release, config: &str) -> ServerSpec {
    release.spec("a", &RuntimeConfig::parse(config).unwrap()).unwrap()
}

fn versions(spec: &ServerSpec) -> BTreeSet<String> {
    let all = spec.groups.iter().flat_map(|group| {
        group.versions.iter().map(move |version| format!("{}/{}", group.name, version.version))
    });
    all.collect()
}

fn resource<'s>(spec: &'s ServerSpec, path: &str) -> Option<&'s ResourceSpec> {
    let [group, version, plural] = path.split('/').collect::<Vec<_>>()[..] else { panic!() };
    let group = spec.groups.iter().find(|entry| entry.name == group)?;
    let version = group.versions.iter().find(|entry| entry.version == version)?;
    version.resources.iter().find(|entry| entry.plural == plural)
}

#[test]
fn a_server_without_flags_serves_stable_versions_only() {
    for release in Release::ALL {
        let spec = spec(release, "");
        assert!(spec.git_version.starts_with(&format!("v{}.", release.name())));
        let versions = versions(&spec);
        assert!(versions.contains("apps/v1") && versions.contains("/v1"), "{versions:?}");
        assert!(!versions.iter().any(|version| version.contains("alpha")), "{versions:?}");
    }
}

#[test]
fn resources_are_those_of_real_servers() {
    let spec = spec(Release::V1_36, "");
    let deployments = resource(&spec, "apps/v1/deployments").unwrap();
    assert_eq!(deployments.kind, "Deployment");
    assert_eq!(deployments.singular, "deployment");
    assert_eq!(deployments.short_names, ["deploy"]);
    assert_eq!(deployments.categories, ["all"]);
    assert!(deployments.namespaced && deployments.verbs.len() == 8);
    let scale = deployments.subresources.iter().find(|entry| entry.name == "scale").unwrap();
    let kind = scale.kind.as_ref().unwrap();
    assert_eq!((&*kind.group, &*kind.version, &*kind.kind), ("autoscaling", "v1", "Scale"));
    assert!(!resource(&spec, "/v1/namespaces").unwrap().namespaced);
}

#[test]
fn a_newer_release_serves_more() {
    let (old, new) = (versions(&spec(Release::V1_34, "")), versions(&spec(Release::V1_36, "")));
    assert!(old.is_subset(&new), "{:?}", old.difference(&new));
}

#[test]
fn apis_are_switched_on_and_off() {
    let off = spec(Release::V1_36, "batch/v1=false");
    assert!(resource(&off, "batch/v1/jobs").is_none());
    assert!(!off.groups.iter().any(|group| group.name == "batch"), "a group without versions");

    let one = spec(Release::V1_36, "batch/v1/jobs=false");
    assert!(resource(&one, "batch/v1/jobs").is_none());
    assert!(resource(&one, "batch/v1/cronjobs").is_some());

    let all = spec(Release::V1_36, "api/all=true");
    assert!(resource(&all, "internal.apiserver.k8s.io/v1alpha1/storageversions").is_some());
    assert!(versions(&spec(Release::V1_36, "")).is_subset(&versions(&all)));

    // The more specific key wins, wherever it stands.
    let mixed = spec(Release::V1_36, "apps/v1,api/all=false,api/ga=false,api/v1/pods=0,v1=t");
    assert_eq!(versions(&mixed), BTreeSet::from(["/v1".to_owned(), "apps/v1".to_owned()]));
}

#[test]
fn a_wrong_runtime_config_is_an_error() {
    for text in ["batch/v1=maybe", "batch", "a/b/c/d=true", "/v1=true", "api/other=true"] {
        assert!(RuntimeConfig::parse(text).is_err(), "{text}");
    }
    let config = RuntimeConfig::parse("example.com/v1=true").unwrap();
    let error = Release::V1_36.spec("a", &config).unwrap_err().to_string();
    assert!(error.contains("example.com/v1"), "{error}");
}

#[test]
fn every_kind_has_a_schema_without_missing_references() {
    for release in Release::ALL {
        let schemas = release.schemas();
        for group in spec(release, "api/all=true").groups {
            for version in &group.versions {
                let reached = schemas.of_version(&group.name, &version.version, []);
                for text in reached.values() {
                    let references = text.split("\"#/components/schemas/").skip(1);
                    for name in references.map(|rest| rest.split('"').next().unwrap()) {
                        assert!(reached.contains_key(name), "{name}");
                    }
                }
                for resource in &version.resources {
                    let kind = &resource.kind;
                    let schema = schemas.of_kind(&group.name, &version.version, kind);
                    let schema = schema.unwrap_or_else(|| panic!("{} {kind}", group.name));
                    assert!(schema.schema().is_some(), "{kind}");
                }
            }
        }
    }
}

#[test]
fn schemas_have_structure_and_no_sentences() {
    let pods = Release::V1_36.schemas().of_kind("", "v1", "Pod").unwrap();
    let containers = pods.schema().unwrap().property("spec").unwrap().property("containers");
    let containers = containers.unwrap();
    assert_eq!(containers.patch_strategy().merge_key, "name");
    assert_eq!(containers.items().unwrap().property("image").unwrap().kind(), "string");
    let core = Release::V1_36.schemas().of_version("", "v1", []);
    assert!(core.values().all(|text| !text.contains("\"description\":\"")));
    assert!(Release::V1_36.schemas().of_kind("example.com", "v1", "Widget").is_none());
}
