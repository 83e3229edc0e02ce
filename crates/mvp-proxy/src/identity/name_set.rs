//! A set of header names and prefixes of header names. Entry item: [`NameSet::contains`].

/// Header names and prefixes, compared in any spelling: case, and underscores for hyphens, do not
/// matter. A lookup costs little, however large the set is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NameSet {
    /// In plain spelling, sorted.
    names: Vec<String>,
    /// The same; none is a prefix of another.
    prefixes: Vec<String>,
}

impl NameSet {
    /// The set of these names and prefixes, in any spelling.
    pub(super) fn new<'a>(
        names: impl IntoIterator<Item = &'a str>,
        prefixes: impl IntoIterator<Item = &'a str>,
    ) -> NameSet {
        let plain = |name: &str| name.bytes().map(|byte| char::from(plain(byte))).collect();
        let mut names: Vec<String> = names.into_iter().map(plain).collect();
        let mut prefixes: Vec<String> = prefixes.into_iter().map(plain).collect();
        for list in [&mut names, &mut prefixes] {
            list.sort_unstable();
            list.dedup();
        }
        // Names that share a prefix are neighbours, and the shortest comes first.
        let mut shortest: Option<String> = None;
        prefixes.retain(|prefix| {
            let is_covered =
                shortest.as_ref().is_some_and(|short| prefix.starts_with(short.as_str()));
            if !is_covered {
                shortest = Some(prefix.clone());
            }
            !is_covered
        });
        NameSet { names, prefixes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }

    /// Whether it has this name, or a prefix of it.
    pub(super) fn contains(&self, name: &str) -> bool {
        let spelled = || name.bytes().map(plain);
        if self.names.binary_search_by(|known| known.bytes().cmp(spelled())).is_ok() {
            return true;
        }
        // No prefix covers another, so only the last one that sorts before the name can match.
        let after = self.prefixes.partition_point(|prefix| prefix.bytes().le(spelled()));
        let last = after.checked_sub(1).and_then(|last| self.prefixes.get(last));
        last.is_some_and(|prefix| starts_with(name, prefix))
    }
}

/// Whether two names differ at most in case and in underscores for hyphens. Some servers treat
/// them as the same.
pub(super) fn is_spelling_of(name: &str, known: &str) -> bool {
    name.len() == known.len() && starts_with(name, known)
}

/// Whether `name` starts with any spelling of `prefix`.
pub(super) fn starts_with(name: &str, prefix: &str) -> bool {
    name.len() >= prefix.len()
        && name.bytes().zip(prefix.bytes()).all(|(a, b)| plain(a) == plain(b))
}

fn plain(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_agrees_with_a_search_of_every_entry() {
        let names = ["X-Auth-Group", "b", "x_auth_user", "X-Auth", "zz"];
        let prefixes = ["X-Auth-Extra-", "x-auth-extra-more-", "M", "X-A-", "x_a-b-", "y"];
        let set = NameSet::new(names, prefixes);
        let mut asked: Vec<String> = Vec::new();
        for entry in names.into_iter().chain(prefixes) {
            for (before, after) in [("", ""), ("", "z"), ("", "-"), ("a", ""), ("", "~")] {
                asked.push(format!("{before}{entry}{after}"));
            }
            asked.push(entry.replace('-', "_").to_uppercase());
            asked.push(entry.chars().take(entry.len() - 1).collect());
        }
        for name in &asked {
            let expected = names.iter().any(|known| is_spelling_of(name, known))
                || prefixes.iter().any(|prefix| starts_with(name, prefix));
            assert_eq!(set.contains(name), expected, "{name}");
        }
    }

    #[test]
    fn an_empty_set_has_nothing_and_an_empty_prefix_everything() {
        assert!(!NameSet::default().contains("accept"));
        assert!(NameSet::new([], [""]).contains("accept"));
    }
}
