//! Limits of a report that another gateway sent: the rest of a long list is read and dropped, and of a
//! long text the start is kept. Entries: [`list`], [`text`].

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::{MAX_TEXTS, clipped};

/// The first `MAX` entries of a list.
pub(super) fn list<'de, D, T, const MAX: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_seq(First::<T, MAX>(PhantomData))
}

/// The start of a text.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| clipped(&text))
}

/// The start of a text, if there is one.
pub(super) fn maybe_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(from).map(|text| text.map(|text| clipped(&text)))
}

/// The starts of the first texts.
pub(super) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let texts: Vec<String> = list::<D, String, MAX_TEXTS>(from)?;
    Ok(texts.iter().map(|text| clipped(text)).collect())
}

struct First<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for First<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < MAX {
            match entries.next_element()? {
                Some(entry) => kept.push(entry),
                None => return Ok(kept),
            }
        }
        while entries.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::report::{Kind, MAX_APIS, MAX_LIST, MAX_MEMBERS, MAX_TEXT, MAX_TEXTS, Status};

    #[test]
    fn long_lists_and_texts_are_cut() {
        let many = |entry: Value| Value::Array(vec![entry; 50_000]);
        let long = "x".repeat(100_000);
        let status: Status = serde_json::from_value(json!({
            "members": many(json!({})), "conflicts": many(json!("")), "requests": many(json!({})),
            "refusals": many(json!({})), "readiness": many(json!({})), "liveness": many(json!({})),
            "averted": {"apis": many(json!({}))}, "proxyErrors": many(json!({})),
            "certificates": many(json!({})), "reloadsFailing": many(json!("")),
            "version": long, "id": long,
        }))
        .unwrap();
        let lists = [status.members.len(), status.averted.apis.len(), status.proxy_errors.len()];
        assert_eq!(lists, [MAX_MEMBERS, MAX_APIS, MAX_APIS]);
        assert_eq!([status.conflicts.len(), status.reloads_failing.len()], [MAX_TEXTS; 2]);
        let counts = [status.requests.len(), status.refusals.len(), status.certificates.len()];
        assert_eq!(counts, [MAX_LIST; 3]);
        assert_eq!([status.readiness.len(), status.liveness.len()], [MAX_LIST; 2]);
        let lengths = [&status.version, &status.id.unwrap()].map(|text| text.chars().count());
        assert_eq!(lengths, [MAX_TEXT + 1; 2]);
    }

    #[test]
    fn what_a_newer_gateway_reports_does_not_hide_the_rest() {
        let page = r#"{"id": "a", "members": [{"kind": "newer", "view": "newer"}], "newer": 1}"#;
        let status: Status = serde_json::from_str(page).unwrap();
        assert_eq!((status.id.as_deref(), status.members[0].kind), (Some("a"), Kind::Unknown));
    }
}
