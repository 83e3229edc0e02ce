//! The form in which a client wants objects: whole, as a table, or only their metadata. Entry:
//! [`Form::negotiate`].

use http::HeaderMap;
use http::header::ACCEPT;
use mvp_core::discovery::negotiate::{Conversion, Encoding, conversions};
use serde_json::{Value, json};

use crate::query::Query;
use crate::status::Failure;
use crate::storage::Fields;

/// The form of the objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Whole,
    /// `Table`.
    Table(MetaVersion, Include),
    /// `PartialObjectMetadata`, for one object.
    Metadata(MetaVersion),
    /// `PartialObjectMetadataList`, for a list.
    MetadataList(MetaVersion),
}

/// A version of the group `meta.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    V1,
    V1Beta1,
}

/// What a row of a table has of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Form {
    /// Chooses the form by the `Accept` header and the query of a request. The encoding is always JSON.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query<'_>) -> Result<Form, Failure> {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let wanted = conversions(accept, Encoding::Json);
        let found = wanted.into_iter().find_map(|wanted| match wanted {
            None => Some(Form::Whole),
            Some(conversion) => Form::of(conversion),
        });
        match found {
            Some(Form::Table(version, _)) => Ok(Form::Table(version, Include::of(query)?)),
            Some(form) => Ok(form),
            None => Err(Failure::not_acceptable(
                "only the following media types are accepted: application/json",
            )),
        }
    }

    fn of(conversion: Conversion<'_>) -> Option<Form> {
        let version = match (conversion.group, conversion.version) {
            ("meta.k8s.io", "v1") => MetaVersion::V1,
            ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
            _ => return None,
        };
        match conversion.kind {
            "Table" => Some(Form::Table(version, Include::Metadata)),
            "PartialObjectMetadata" => Some(Form::Metadata(version)),
            "PartialObjectMetadataList" => Some(Form::MetadataList(version)),
            _ => None,
        }
    }
}

impl MetaVersion {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }

    /// The metadata of an object as a `PartialObjectMetadata`.
    pub(crate) fn partial(self, fields: &Fields) -> Value {
        json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": self.api_version(),
            "metadata": fields.get("metadata").cloned().unwrap_or_else(|| json!({})),
        })
    }
}

impl Include {
    fn of(query: &Query<'_>) -> Result<Include, Failure> {
        match query.get("includeObject") {
            "" | "Metadata" => Ok(Include::Metadata),
            "Object" => Ok(Include::Object),
            "None" => Ok(Include::None),
            other => Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \
                 \"{other}\": must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}
