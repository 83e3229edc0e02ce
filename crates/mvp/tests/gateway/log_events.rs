//! Every event that a gateway logs at level info or above is explained in `docs/operate.md`, and
//! nothing else is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::documented::{read, root};

#[test]
fn every_event_is_explained() {
    let mut logged = BTreeSet::new();
    for source in ["mvp", "mvp-proxy", "mvp-net", "mvp-membership", "mvp-otlp", "mvp-core"] {
        for file in sources(&root().join("crates").join(source).join("src")) {
            logged.extend(events(&fs::read_to_string(file).unwrap()));
        }
    }
    assert!(logged.len() > 50, "{logged:?}");
    // The line of a request has a table of its own.
    assert!(logged.remove("request"));
    let operate = read("docs/operate.md");
    let table = operate.split_once("| event | level |").expect("the table of events").1;
    let table = table.split("\n\n").next().unwrap();
    let first = |row: &str| {
        row.strip_prefix("| ").and_then(|row| row.split(" | ").next()).map(str::to_owned)
    };
    let cells: Vec<String> = table.lines().filter_map(first).collect();
    let explained: BTreeSet<String> = cells
        .iter()
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned))
        .collect();
    assert_eq!(explained, logged, "docs/operate.md (left) and the code");
}

#[test]
fn events_are_read_from_code() {
    let source = r#"
        tracing::warn!(member = %id, hint = "do (this)", "member failed; \
                        the last view stays in use");
        tracing::info!("etcd failed: {use_case}");
        tracing::debug!("not this");
        tracing::error!("{warning}");
        #[cfg(test)]
        mod tests { fn f() { tracing::info!("nor this"); } }
    "#;
    let expected = ["etcd failed", "member failed"].map(str::to_owned);
    assert_eq!(events(source), BTreeSet::from(expected));
}

/// The source files of a crate without its tests, and without the demo, whose log is for its users.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name == "tests" || name == "demo" {
            continue;
        }
        if path.is_dir() {
            files.extend(sources(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// The events in a source file: the last text of each call, up to its first `;` or `: `.
fn events(source: &str) -> BTreeSet<String> {
    let code = source.split("mod tests {").next().unwrap();
    let mut events = BTreeSet::new();
    for level in ["tracing::info!(", "tracing::warn!(", "tracing::error!("] {
        for call in code.split(level).skip(1) {
            let text = last_text(call);
            let event = text.split(';').next().unwrap().split(": ").next().unwrap();
            if !event.is_empty() && !event.starts_with('{') {
                events.insert(event.to_owned());
            }
        }
    }
    events
}

/// The last string literal before the end of a macro call.
fn last_text(call: &str) -> String {
    let (mut last, mut depth) = (String::new(), 1);
    let mut characters = call.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            '"' => last = literal(&mut characters),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    last
}

/// The rest of a string literal. A backslash at the end of a line joins it with the next one.
fn literal(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' if characters.next_if_eq(&'\n').is_some() => {
                while characters.next_if(|c| c.is_whitespace()).is_some() {}
            }
            '\\' => text.extend(characters.next()),
            other => text.push(other),
        }
    }
    text
}
