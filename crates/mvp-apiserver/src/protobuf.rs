//! Request bodies in Kubernetes' protobuf encoding, decoded to the JSON that Kubernetes itself makes
//! of the same bytes. Entry: [`decode`].
//!
//! An envelope names the version and kind. A table generated from Kubernetes' Go types (see
//! `assets/README.md`) tells the fields of its messages. Unknown fields are skipped. Fields without
//! `omitempty` are written even if they are empty, as Go writes them: `status: {}`.

mod message;
mod special;
mod table;
mod wire;

use serde_json::Value;

use crate::status::Failure;
use message::Decoder;
use table::Table;
use wire::{Fields, Raw};

/// The media type of such a body.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of a body.
const PREFIX: &[u8] = b"k8s\0";

/// Decodes a body to an object with `apiVersion` and `kind`.
pub(crate) fn decode(body: &[u8]) -> Result<Value, Failure> {
    let unrecognized =
        |why: &str| Failure::bad_request(format!("the object provided is unrecognized: {why}"));
    let content = match body.strip_prefix(PREFIX) {
        Some([]) => return Err(unrecognized("empty body")),
        Some(content) => content,
        None if body.is_empty() => return Err(unrecognized("empty data")),
        None => {
            return Err(unrecognized(
                "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
            ));
        }
    };
    let envelope = Envelope::read(content).map_err(|fault| unrecognized(&fault.0))?;
    let Envelope { api_version, kind, raw } = envelope;
    if kind.is_empty() {
        return Err(unrecognized("Object 'Kind' is missing"));
    }
    if api_version.is_empty() {
        return Err(unrecognized("Object 'apiVersion' is missing"));
    }
    let table = Table::get();
    let Some(message) = table.kind(&api_version, &kind) else {
        let why = format!("no kind {kind:?} is registered for version {api_version:?}");
        return Err(unrecognized(&why));
    };
    let object = Decoder::new(table).object(message, raw).map_err(|fault| {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let why = format!("{kind} in version {version:?} cannot be decoded: {}", fault.0);
        Failure::bad_request(why)
    })?;
    let mut fields = object;
    fields.insert("apiVersion".to_owned(), api_version.into());
    fields.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(fields))
}

/// What is wrong with a message.
#[derive(Debug)]
struct Fault(String);

impl Fault {
    fn new(what: impl Into<String>) -> Fault {
        Fault(what.into())
    }
}

/// The outer message, `runtime.Unknown`.
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(content: &'a [u8]) -> Result<Envelope<'a>, Fault> {
        let mut envelope = Envelope { api_version: String::new(), kind: String::new(), raw: &[] };
        for field in Fields(content) {
            match field? {
                (1, Raw::Bytes(type_meta)) => {
                    for field in Fields(type_meta) {
                        match field? {
                            (1, Raw::Bytes(text)) => envelope.api_version = wire::text(text),
                            (2, Raw::Bytes(text)) => envelope.kind = wire::text(text),
                            _ => {}
                        }
                    }
                }
                (2, Raw::Bytes(raw)) => envelope.raw = raw,
                (3, Raw::Bytes(encoding)) if !encoding.is_empty() => {
                    return Err(Fault::new("the content encoding of the object is not supported"));
                }
                (4, Raw::Bytes(media_type)) if !matches!(media_type, b"" | MEDIA_TYPE_BYTES) => {
                    return Err(Fault::new("the content type of the object is not supported"));
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}

const MEDIA_TYPE_BYTES: &[u8] = MEDIA_TYPE.as_bytes();

#[cfg(test)]
mod tests;
