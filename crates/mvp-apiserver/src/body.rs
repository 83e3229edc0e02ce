//! Request bodies: read up to a limit, and decoded by their media type. Entries: [`read`] and
//! [`object`].

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::protobuf;
use crate::status::Failure;
use crate::storage::Fields;

/// The largest body, as in real servers.
const LIMIT: usize = 3 << 20;

/// Reads a whole body.
pub(crate) async fn read<B: http_body::Body<Data = Bytes>>(body: B) -> Result<Bytes, Failure> {
    if body.size_hint().lower() > LIMIT as u64 {
        return Err(Failure::too_large(LIMIT));
    }
    let mut body = pin!(body);
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(Failure::bad_request("the body of the request could not be read"));
        };
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > LIMIT {
                return Err(Failure::too_large(LIMIT));
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

/// Parses a body that is an object.
pub(crate) fn object(headers: &HeaderMap, body: &Bytes) -> Result<Fields, Failure> {
    match media_type(headers).as_str() {
        "" | "application/json" => parse_json(body),
        "application/yaml" => parse_yaml(body),
        protobuf::MEDIA_TYPE => fields(protobuf::decode(body)?),
        _ => Err(Failure::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            protobuf::MEDIA_TYPE,
        ])),
    }
}

/// The media type of a body, without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let media_type = value.unwrap_or_default().split(';').next().unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}

/// Parses a JSON object.
pub(crate) fn parse_json(body: &Bytes) -> Result<Fields, Failure> {
    let value = serde_json::from_slice(body).map_err(|error| {
        Failure::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    })?;
    fields(value)
}

/// Parses a YAML object.
pub(crate) fn parse_yaml(body: &Bytes) -> Result<Fields, Failure> {
    let malformed = |error: String| Failure::bad_request(format!("error decoding YAML: {error}"));
    let text = std::str::from_utf8(body).map_err(|error| malformed(error.to_string()))?;
    let value = serde_saphyr::from_str(text).map_err(|error| malformed(error.to_string()))?;
    fields(value)
}

fn fields(value: Value) -> Result<Fields, Failure> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(Failure::bad_request("the body of the request is not an object")),
    }
}
