//! What a 404 proves. An unrouted 404 (the server has no such API) proves that the server did not
//! process the request, but not that no other member serves the API. An object 404 comes from a
//! server that has the API. Any other 404 proves neither. Entry item: [`judge`].

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::wire::bytes_field;

/// The message of a server that has the group, but not the version, resource or subresource.
const UNROUTED: &[u8] = b"the server could not find the requested resource";

/// The start of the message with which an admission webhook rejects a request. A webhook chooses the
/// status code, and its response need not name an object.
const WEBHOOK: &[u8] = b"admission webhook \"";

/// The tag that marks a document as CBOR. Kubernetes begins every document with it.
const CBOR: &[u8] = &[0xd9, 0xd9, 0xf7];

/// What a 404 proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFound {
    /// The server has the API, but not the object; or an admission webhook rejects the request.
    Object,
    /// The server has no such API. It processed nothing of the request.
    Unrouted,
    /// Nothing: the server may lack the API, or may have processed the request.
    Unclear,
}

/// Judges a 404 by its body, which must be without content encoding.
pub fn judge(content_type: &str, body: &[u8]) -> NotFound {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let is = |name| media_type.eq_ignore_ascii_case(name);
    let status = if is("application/json") {
        serde_json::from_slice(body).ok()
    } else if is("application/vnd.kubernetes.protobuf") {
        Status::from_protobuf(body)
    } else if is("application/cbor") {
        cbor4ii::serde::from_slice(body.strip_prefix(CBOR).unwrap_or(body)).ok()
    } else if is("application/yaml") {
        serde_saphyr::from_slice(body).ok()
    } else if is("text/plain") && body.trim_ascii() == b"404 page not found" {
        return NotFound::Unrouted;
    } else {
        None
    };
    status.map_or(NotFound::Unclear, Status::judge)
}

/// The fields of a `Status` that a judgement depends on.
#[derive(Debug, Clone, Copy, Default)]
struct Status {
    /// Whether the object is a `Status` at all.
    is_status: bool,
    message: Message,
    details: Details,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Message {
    /// The message of an unrouted 404.
    Unrouted,
    /// The message of an admission webhook.
    Webhook,
    #[default]
    Other,
}

#[derive(Debug, Clone, Copy, Default)]
struct Details {
    /// Whether they name an object.
    named: bool,
    /// Whether they have any field, the name included.
    any: bool,
}

impl Status {
    fn judge(self) -> NotFound {
        let Status { is_status, message, details } = self;
        match message {
            _ if !is_status => NotFound::Unclear,
            _ if details.named => NotFound::Object,
            Message::Webhook => NotFound::Object,
            Message::Unrouted if !details.any => NotFound::Unrouted,
            Message::Unrouted | Message::Other => NotFound::Unclear,
        }
    }

    /// After `k8s\0`, an envelope has the Status in field 2: its message is field 3, its details
    /// field 5.
    fn from_protobuf(body: &[u8]) -> Option<Status> {
        let envelope = body.strip_prefix(b"k8s\0")?;
        let kind = bytes_field(bytes_field(envelope, 1)?, 2)?;
        let status = bytes_field(envelope, 2)?;
        let details = bytes_field(status, 5).unwrap_or_default();
        // Go writes the fields of details even if they are empty: name, group, kind, causes, uid.
        let has = |number| bytes_field(details, number).is_some_and(|field| !field.is_empty());
        Some(Status {
            is_status: is_status(kind),
            message: Message::of(bytes_field(status, 3).unwrap_or_default()),
            details: Details { named: has(1), any: [1, 2, 3, 4, 6].into_iter().any(has) },
        })
    }
}

impl Message {
    fn of(text: &[u8]) -> Message {
        match text {
            UNROUTED => Message::Unrouted,
            text if text.starts_with(WEBHOOK) => Message::Webhook,
            _ => Message::Other,
        }
    }
}

fn is_status(kind: &[u8]) -> bool {
    kind == b"Status"
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
        deserializer.deserialize_map(StatusVisitor)
    }
}

struct StatusVisitor;

impl<'de> Visitor<'de> for StatusVisitor {
    type Value = Status;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Status")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Status, A::Error> {
        #[derive(Clone, Copy)]
        enum Key {
            Kind,
            Message,
            Details,
            Other,
        }
        let key = Text(|key| match key {
            b"kind" => Key::Kind,
            b"message" => Key::Message,
            b"details" => Key::Details,
            _ => Key::Other,
        });
        let mut status = Status::default();
        while let Some(key) = map.next_key_seed(key)? {
            match key {
                Key::Kind => status.is_status = map.next_value_seed(Text(is_status))?,
                Key::Message => status.message = map.next_value_seed(Text(Message::of))?,
                Key::Details => {
                    status.details = map.next_value::<Option<Details>>()?.unwrap_or_default()
                }
                Key::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(status)
    }
}

impl<'de> Deserialize<'de> for Details {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Details, D::Error> {
        deserializer.deserialize_map(DetailsVisitor)
    }
}

struct DetailsVisitor;

impl<'de> Visitor<'de> for DetailsVisitor {
    type Value = Details;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the details of a Status")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Details, A::Error> {
        let mut details = Details::default();
        while let Some(is_name) = map.next_key_seed(Text(|key| key == b"name"))? {
            details.any = true;
            match is_name {
                true => details.named = map.next_value_seed(Text(|name| !name.is_empty()))?,
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(details)
    }
}

/// Reads a text, and keeps only what a function says of it. Kubernetes writes texts as byte strings
/// in CBOR.
#[derive(Clone, Copy)]
struct Text<T>(fn(&[u8]) -> T);

impl<'de, T> DeserializeSeed<'de> for Text<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T> Visitor<'de> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok((self.0)(text.as_bytes()))
    }

    fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<T, E> {
        Ok((self.0)(text))
    }
}

#[cfg(test)]
mod tests;
