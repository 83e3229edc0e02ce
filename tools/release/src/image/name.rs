//! The name of an image, as written and as containerd stores it. Entry: [`Name`].

use std::fmt;

/// A name such as `mvp:1` or `registry.example:5000/infra/mvp:1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    repository: String,
    tag: Option<String>,
}

impl Name {
    /// The default name.
    pub(crate) fn of_mvp(version: &str) -> Self {
        Self { repository: "mvp".to_owned(), tag: Some(version.to_owned()) }
    }

    /// Parses a name. Fails for characters that registries do not allow, and for digests.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // A colon before a slash is a port.
        let (repository, tag) = match text.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
            _ => (text, None),
        };
        let part = |part: &str, more: &str| {
            let allowed =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(c);
            part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(allowed)
        };
        if text.contains('@') {
            return Err("the digest follows from the contents; give REPOSITORY:TAG".to_owned());
        }
        if !repository.split('/').all(|text| part(text, "._-:")) {
            return Err("give lowercase letters, digits and ._- between slashes, as in registry.example/mvp:1".to_owned());
        }
        if tag.is_some_and(|tag| tag.len() > 128 || !part(&tag.to_ascii_lowercase(), "._-")) {
            return Err("a tag has letters, digits and ._-, at most 128".to_owned());
        }
        Ok(Self { repository: repository.to_owned(), tag: tag.map(str::to_owned) })
    }

    /// The name with this tag if it has none.
    pub(crate) fn with_default_tag(self, version: &str) -> Self {
        // `+` is allowed in versions, but not in tags.
        let tag = self.tag.unwrap_or_else(|| version.replace('+', "-"));
        Self { tag: Some(tag), ..self }
    }

    /// The tag; `latest` if there is none.
    pub(crate) fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or("latest")
    }

    /// The name with its registry. kubelet looks for `mvp:1` under `docker.io/library/mvp:1`.
    pub(crate) fn full(&self) -> String {
        let first = self.repository.split_once('/').map(|(first, _)| first);
        match first {
            Some(first) if first == "localhost" || first.contains(['.', ':']) => self.to_string(),
            Some(_) => format!("docker.io/{self}"),
            None => format!("docker.io/library/{self}"),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.repository, self.tag())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_are_those_of_containerd() {
        for (text, full) in [
            ("mvp:1", "docker.io/library/mvp:1"),
            ("mvp", "docker.io/library/mvp:0.1.0-dev"),
            ("infra/mvp:v1", "docker.io/infra/mvp:v1"),
            ("registry.example/mvp", "registry.example/mvp:0.1.0-dev"),
            ("localhost:5000/mvp:A", "localhost:5000/mvp:A"),
            ("localhost/mvp:1", "localhost/mvp:1"),
        ] {
            assert_eq!(Name::parse(text).unwrap().with_default_tag("0.1.0+dev").full(), full);
        }
    }

    #[test]
    fn names_that_registries_refuse_are_errors() {
        for text in ["", "Mvp:1", "mvp:", "a//b", "mvp:a b", "mvp@sha256:00", "/mvp", "mvp/"] {
            assert!(Name::parse(text).is_err(), "{text}");
        }
    }
}
