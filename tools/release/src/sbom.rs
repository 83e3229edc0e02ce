//! The software bill of materials, CycloneDX 1.5 in JSON: every crate that `mvp` is built from, the
//! standard library and the C library. Entry: [`document`].

#[cfg(test)]
mod tests;

use anyhow::Context;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cargo::{Inputs, Package};
use crate::facts::Facts;

/// The document. The same workspace and facts give the same bytes.
pub(crate) fn document(inputs: &Inputs, facts: &Facts) -> anyhow::Result<Vec<u8>> {
    let mut packages = inputs.packages()?;
    let url = packages.values().find(|package| package.name == "mvp").map(Package::purl);
    let url = url.context("cargo metadata has no package mvp")?;
    let runtimes = [
        runtime("glibc", &inputs.glibc, "LGPL-2.1-or-later"),
        runtime("rust", &inputs.rust, "MIT OR Apache-2.0"),
    ];
    let mut dependencies: Vec<Value> = packages
        .values()
        .map(|package| json!({ "dependsOn": package.dependencies, "ref": package.purl() }))
        .collect();
    dependencies.extend(runtimes.iter().map(|one| json!({ "ref": one.get("bom-ref") })));
    for one in &runtimes {
        let of_mvp = dependencies
            .iter_mut()
            .find(|entry| entry.get("ref").is_some_and(|name| *name == *url));
        let list = of_mvp.and_then(|entry| entry.get_mut("dependsOn")?.as_array_mut());
        if let (Some(list), Some(name)) = (list, one.get("bom-ref")) {
            list.push(name.clone());
        }
    }
    let subject = packages.remove(&url).context("the package mvp is listed twice")?;
    let mut subject = component(&subject, "application");
    if let Some(fields) = subject.as_object_mut() {
        fields.remove("scope");
    }
    let mut components: Vec<Value> =
        packages.values().map(|package| component(package, "library")).collect();
    components.extend(runtimes);
    let mut document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "components": components,
        "dependencies": dependencies,
        "metadata": {
            "component": subject,
            "properties": [{ "name": "mvp:commit", "value": facts.commit }],
            "timestamp": facts.timestamp()?,
            "tools": { "components": [{
                "name": "release",
                "type": "application",
                "version": env!("CARGO_PKG_VERSION"),
            }] },
        },
        "specVersion": "1.5",
        "version": 1,
    });
    let serial = serial_number(&serde_json::to_vec(&document)?);
    if let Some(fields) = document.as_object_mut() {
        fields.insert("serialNumber".to_owned(), serial.into());
    }
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    Ok(text)
}

fn component(package: &Package, kind: &str) -> Value {
    let mut component = json!({
        "bom-ref": package.purl(),
        "name": package.name,
        "purl": package.purl(),
        // By the specification, excluded components are not in the product: here, those of build scripts.
        "scope": if package.is_linked { "required" } else { "excluded" },
        "type": kind,
        "version": package.version,
    });
    if let Some(fields) = component.as_object_mut() {
        if let Some(checksum) = &package.checksum {
            let hashes = json!([{ "alg": "SHA-256", "content": checksum }]);
            fields.insert("hashes".to_owned(), hashes);
        }
        if let Some(licence) = &package.licence {
            fields.insert("licenses".to_owned(), json!([{ "expression": licence }]));
        }
    }
    component
}

/// A library that is no crate.
fn runtime(name: &str, version: &str, licence: &str) -> Value {
    let url = format!("pkg:generic/{name}@{version}");
    json!({
        "bom-ref": url,
        "licenses": [{ "expression": licence }],
        "name": name,
        "purl": url,
        "scope": "required",
        "type": "library",
        "version": version,
    })
}

/// A UUID of version 8 (RFC 9562: any content), made from the document instead of chance.
fn serial_number(document: &[u8]) -> String {
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(document));
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    let (a, b, c, d, e) = (part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32));
    format!("urn:uuid:{a}-{b}-8{c}-8{d}-{e}")
}
