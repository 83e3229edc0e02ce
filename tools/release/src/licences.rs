//! The licence texts of the crates in the binary. MIT, BSD and Apache-2.0 ask that binaries carry them.
//! Entry: [`document`].

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use anyhow::Context;

use crate::cargo::{Inputs, Package};

/// How the names of such files start.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// A list of the crates, and every text once with the crates that have it.
pub(crate) fn document(inputs: &Inputs) -> anyhow::Result<String> {
    let packages = inputs.packages()?;
    let foreign =
        packages.values().filter(|package| package.is_linked && package.checksum.is_some());
    let mut out = "mvp contains these packages:\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in foreign {
        let name = format!("{} {}", package.name, package.version);
        writeln!(out, "  {name}: {}", package.licence.as_deref().unwrap_or("see its text"))?;
        for text in texts_of(package)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, text) in texts {
        write!(out, "\n{}\n{}:\n\n{}\n", "-".repeat(80), names.join(", "), text)?;
    }
    Ok(out)
}

/// The texts of one package. Lines end in `\n`, so that equal texts are equal.
fn texts_of(package: &Package) -> anyhow::Result<Vec<String>> {
    let mut texts = Vec::new();
    let directory = &package.directory;
    let entries = fs::read_dir(directory).with_context(|| {
        format!("cannot read the source of {} in {}", package.name, directory.display())
    })?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_ascii_uppercase();
        if NAMES.iter().any(|start| name.starts_with(start)) && entry.path().is_file() {
            let text = fs::read(entry.path())?;
            texts.push(String::from_utf8_lossy(&text).replace("\r\n", "\n").trim().to_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_text_is_there_once_with_its_crates() {
        let document = document(crate::cargo::inputs_for_tests()).unwrap();
        assert!(document.contains("\n  tokio 1."), "no list of crates");
        assert!(!document.contains("\n  mvp-core "), "our own crates have our own licence");
        assert!(!document.contains("\n  protox "), "not in the binary");
        let line = format!("\n{}\n", "-".repeat(80));
        let (names, texts): (Vec<&str>, Vec<&str>) =
            document.split(&line).skip(1).filter_map(|part| part.split_once(":\n\n")).unzip();
        let once: BTreeSet<&str> = texts.iter().copied().collect();
        assert_eq!(once.len(), texts.len());
        let shared = |names: &&str| names.contains("tokio 1.") && names.contains("tokio-util 0.");
        assert_eq!(names.iter().filter(|names| shared(names)).count(), 1);
    }
}
