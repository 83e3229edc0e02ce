//! The table of targets, and the choice of one. Entry items: [`begin`] and [`run`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::targets::TARGETS;

/// A fuzz target.
pub struct Target {
    /// The name, as in `FUZZ_TARGET` and in the folder of its corpus.
    pub name: &'static str,
    /// Checks one input; panics if a property does not hold.
    pub run: fn(&[u8]),
    /// The inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that inputs have. libFuzzer inserts them.
    pub words: &'static [&'static str],
}

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

/// Chooses the target, or writes the seeds of all.
pub fn begin() {
    if let Some(folder) = std::env::var_os("FUZZ_WRITE") {
        write_all(Path::new(&folder));
        std::process::exit(0);
    }
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("FUZZ_TARGET={name:?}: use one of {names:?}"));
    CHOSEN.get_or_init(|| target);
}

/// Runs the chosen target.
pub fn run(data: &[u8]) {
    if let Some(target) = CHOSEN.get() {
        (target.run)(data);
    }
}

fn write_all(folder: &Path) {
    for target in TARGETS {
        let seeds = folder.join("seeds").join(target.name);
        fs::create_dir_all(&seeds).expect("a folder for seeds");
        let all = (target.seeds)();
        assert!(!all.is_empty(), "{} has no seeds", target.name);
        for (number, seed) in all.iter().enumerate() {
            fs::write(seeds.join(format!("{number:05}")), seed).expect("a seed");
        }
        let words: Vec<String> = target.words.iter().map(|word| quoted(word)).collect();
        let dictionary = folder.join(format!("{}.dict", target.name));
        fs::write(dictionary, words.join("\n") + "\n").expect("a dictionary");
    }
}

/// A word as dictionaries have it.
fn quoted(word: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    format!("\"{}\"", word.bytes().map(escaped).collect::<String>())
}

/// The path of a file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The lines of a fixture, as JSON.
pub fn lines(path: &str) -> Vec<serde_json::Value> {
    let path = repository(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}
