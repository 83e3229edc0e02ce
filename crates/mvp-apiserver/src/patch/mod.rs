//! Patches of objects. Entry: [`Patch`].
//!
//! Every kind of patch is a pure function of JSON values: [`json`], [`merge`] and [`strategic`].

mod go;
mod json;
mod merge;
mod strategic;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use crate::body;
use crate::schema::Schema;
use crate::status::Failure;
use crate::storage::Fields;

/// A decoded patch.
#[derive(Debug)]
pub(crate) enum Patch {
    /// JSON patch.
    Json(Vec<json::Operation>),
    /// Merge patch.
    Merge(Fields),
    /// Strategic merge patch.
    Strategic(Fields),
    /// Server-side apply: an object that is created if it does not exist.
    Apply(Fields),
}

/// Why a patch does not fit. Each is a different answer of real servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The patch is malformed.
    BadRequest(String),
    /// The patch is too long.
    TooLarge(String),
    /// The patch cannot be applied to this object. Real servers do not tell callers why.
    Unprocessable,
    /// A malformed patch that real servers answer with 500.
    Internal(String),
}

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl Patch {
    /// Decodes a patch by its media type. A strategic merge patch needs the patch strategies of the
    /// schema, which custom resources do not have: `strategic` says whether it is possible.
    pub(crate) fn decode(
        headers: &HeaderMap,
        body: &Bytes,
        strategic: bool,
    ) -> Result<Patch, Failure> {
        match body::media_type(headers).as_str() {
            JSON => json::decode(body).map(Patch::Json).map_err(Misfit::into_failure),
            MERGE => Ok(Patch::Merge(body::parse_json(body)?)),
            STRATEGIC if strategic => Ok(Patch::Strategic(body::parse_json(body)?)),
            APPLY => Ok(Patch::Apply(body::parse_yaml(body)?)),
            _ if strategic => {
                Err(Failure::unsupported_media_type(&[JSON, MERGE, STRATEGIC, APPLY]))
            }
            _ => Err(Failure::unsupported_media_type(&[JSON, MERGE, APPLY])),
        }
    }

    /// The object that the patch creates if there is none.
    pub(crate) fn creates(&self) -> Option<Fields> {
        match self {
            Patch::Apply(object) => Some(object.clone()),
            _ => None,
        }
    }

    /// The object after the patch. An apply patch is not for this function.
    pub(crate) fn apply(
        self,
        object: Fields,
        schema: Option<Schema<'_>>,
    ) -> Result<Fields, Misfit> {
        let mut object = Value::Object(object);
        match (self, &mut object, schema) {
            (Patch::Json(operations), object, _) => json::apply(object, &operations)?,
            (Patch::Merge(patch), object, _) | (Patch::Strategic(patch), object, None) => {
                merge::apply(object, patch.into());
            }
            (Patch::Strategic(patch), Value::Object(object), Some(schema)) => {
                strategic::apply(object, patch, schema)?;
            }
            (Patch::Strategic(_) | Patch::Apply(_), ..) => return Err(Misfit::Unprocessable),
        }
        match object {
            Value::Object(fields) => Ok(fields),
            _ => Err(Misfit::Unprocessable),
        }
    }
}

impl Misfit {
    /// The error as real servers answer it.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Misfit::BadRequest(message) => Failure::bad_request(message),
            Misfit::TooLarge(message) => Failure::too_large_for(message),
            Misfit::Unprocessable => Failure::unprocessable(),
            Misfit::Internal(message) => Failure::internal(message),
        }
    }
}

#[cfg(test)]
mod tests;
