//! Bearer tokens of a file, as with kube-apiserver's `--token-auth-file`. Entry: [`TokenFile::parse`].

use std::collections::HashMap;
use std::fmt;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::review::Caller;

/// The callers of a token file.
#[derive(Clone, Default)]
pub struct TokenFile(HashMap<String, Caller>);

/// The line of a token file that cannot be read, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadTokenFile(pub usize);

impl fmt::Display for BadTokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is not TOKEN,USER,UID or TOKEN,USER,UID,\"GROUP,GROUP\"", self.0)
    }
}

impl std::error::Error for BadTokenFile {}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tokens are secrets.
        write!(f, "TokenFile({} tokens)", self.0.len())
    }
}

impl TokenFile {
    /// Reads lines of `TOKEN,USER,UID` or `TOKEN,USER,UID,"GROUP,GROUP"`. The first line with a token
    /// counts.
    ///
    /// # Errors
    /// A line has another form.
    pub fn parse(text: &str) -> Result<TokenFile, BadTokenFile> {
        let mut tokens = HashMap::new();
        for (place, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let bad = || BadTokenFile(place + 1);
            let mut fields = line.splitn(4, ',').map(str::trim);
            let (Some(token), Some(name), Some(_uid)) =
                (fields.next(), fields.next(), fields.next())
            else {
                return Err(bad());
            };
            if token.is_empty() || name.is_empty() {
                return Err(bad());
            }
            let groups = match fields.next() {
                None | Some("") => "",
                Some(groups) if !groups.contains(['"', ',']) => groups,
                Some(groups) => groups
                    .strip_prefix('"')
                    .and_then(|groups| groups.strip_suffix('"'))
                    .filter(|groups| !groups.contains('"'))
                    .ok_or_else(bad)?,
            };
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
            let groups = groups.chain(["system:authenticated"]).map(str::to_owned).collect();
            let caller = Caller { name: name.to_owned(), groups };
            tokens.entry(token.to_owned()).or_insert(caller);
        }
        Ok(TokenFile(tokens))
    }

    /// The caller of a request with a bearer token; `None` if the token is unknown.
    pub fn caller(&self, headers: &HeaderMap) -> Option<&Caller> {
        let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.trim().split_once(' ')?;
        // These tokens are for a demo on loopback: the time of the comparison reveals nothing new.
        scheme.eq_ignore_ascii_case("bearer").then(|| self.0.get(token.trim()))?
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn bearing(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))])
    }

    #[test]
    fn tokens_name_a_user_and_groups() {
        let file = TokenFile::parse("one,viewer,1,\"viewers,others\"\n\ntwo,plain,2\n").unwrap();
        let viewer = file.caller(&bearing("Bearer one")).unwrap();
        assert_eq!(viewer.name, "viewer");
        assert_eq!(viewer.groups, ["viewers", "others", "system:authenticated"]);
        assert_eq!(file.caller(&bearing("bearer two")).unwrap().groups, ["system:authenticated"]);
        for unknown in ["Bearer three", "Bearer", "Basic one", "Bearer one two"] {
            assert!(file.caller(&bearing(unknown)).is_none(), "{unknown}");
        }
    }

    #[test]
    fn a_malformed_line_is_named() {
        for text in ["a,b,c\nlonely", "a,b,c\n,b,c", "a,b,c\na,b,c,\"open", "a,b,c\na,b,c,x,y"] {
            assert_eq!(TokenFile::parse(text).unwrap_err(), BadTokenFile(2), "{text}");
        }
    }

    #[test]
    fn tokens_are_not_printed() {
        let file = TokenFile::parse("secret,viewer,1").unwrap();
        assert!(!format!("{file:?}").contains("secret"));
    }
}
