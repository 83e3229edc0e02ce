//! Content negotiation: the `Accept` header of a client and the documents on offer.
//!
//! The rules are those of kube-apiserver, including its oddities: an aggregated document wins over a
//! legacy one at any position in the header, a concrete type wins over a wildcard whatever their
//! q-values, and q=0 excludes nothing. With one exception: types, parameter names and parameter
//! values match in any case. Entry item: [`negotiate`].

use thiserror::Error;

use super::model::{AGGREGATED_GROUP, AGGREGATED_KIND};

/// The encoding of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Kubernetes' protobuf envelope
    Protobuf,
    /// CBOR
    Cbor,
}

/// The form of a discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Aggregated, `apidiscovery.k8s.io/v2`.
    AggregatedV2,
    /// Aggregated, `apidiscovery.k8s.io/v2beta1`.
    AggregatedV2beta1,
    /// The legacy document of the path.
    Legacy,
}

/// The documents on offer for a path.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// The forms. The legacy one is always among them.
    pub forms: &'a [Form],
    /// The encodings, the default first.
    pub encodings: &'a [Encoding],
}

/// The document to respond with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// The form of the document.
    pub form: Form,
    /// The encoding of the document.
    pub encoding: Encoding,
    /// Whether the client asks for the local server alone (`profile=nopeer`).
    pub nopeer: bool,
}

/// The error for a client that accepts none of the media types on offer: 406.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("only the following media types are accepted: {}", offered.join(", "))]
pub struct NotAcceptable {
    /// The media types on offer for the path, the default first.
    pub offered: Vec<&'static str>,
}

/// The limit of clauses that are read. Real clients send at most five.
const MAX_CLAUSES: usize = 64;

/// Chooses a document for the first `Accept` header of a request; an absent header is empty.
pub fn negotiate(accept: &str, offer: Offer<'_>) -> Result<Negotiated, NotAcceptable> {
    let not_acceptable = || NotAcceptable {
        offered: offer.encodings.iter().map(|encoding| encoding.media_type()).collect(),
    };
    if accept.is_empty() {
        let encoding = *offer.encodings.first().ok_or_else(not_acceptable)?;
        return Ok(Negotiated { form: Form::Legacy, encoding, nopeer: false });
    }
    let clauses = parse_accept(accept);
    let best = |aggregated: bool| {
        clauses.iter().find_map(|clause| {
            let form = clause.form().filter(|form| {
                offer.forms.contains(form) && (*form != Form::Legacy) == aggregated
            })?;
            let accepts = |encoding: &&Encoding| clause.accepts(**encoding);
            let encoding = *offer.encodings.iter().find(accepts)?;
            Some(Negotiated {
                form,
                encoding,
                nopeer: clause.profile.eq_ignore_ascii_case("nopeer"),
            })
        })
    };
    best(true).or_else(|| best(false)).ok_or_else(not_acceptable)
}

/// Whether an `Accept` header asks for the local server alone, for paths without a choice of forms.
pub fn asks_nopeer(accept: &str) -> bool {
    parse_accept(accept).iter().any(|clause| clause.profile.eq_ignore_ascii_case("nopeer"))
}

/// The type that a client wants an object to be converted to, such as `Table` of `meta.k8s.io/v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion<'a> {
    /// The group of the type.
    pub group: &'a str,
    /// The version of the type.
    pub version: &'a str,
    /// The kind of the type.
    pub kind: &'a str,
}

/// The types that a client accepts an object as, in the order of preference; `None` is the object as
/// it is. Empty if the client does not accept the encoding.
pub fn conversions(accept: &str, encoding: Encoding) -> Vec<Option<Conversion<'_>>> {
    if accept.is_empty() {
        return vec![None];
    }
    let accepted = parse_accept(accept).into_iter().filter(|clause| clause.accepts(encoding));
    accepted
        .map(|clause| match (clause.group, clause.version, clause.conversion) {
            (None, None, None) => None,
            (group, version, kind) => Some(Conversion {
                group: group.unwrap_or_default(),
                version: version.unwrap_or_default(),
                kind: kind.unwrap_or_default(),
            }),
        })
        .collect()
}

impl Encoding {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Cbor => "application/cbor",
        }
    }

    /// Whether the encoding supports streams, so that `stream=watch` does not exclude it.
    fn streams(self) -> bool {
        self != Encoding::Yaml
    }
}

/// One clause of an `Accept` header.
#[derive(Debug, Default)]
struct Clause<'a> {
    kind: &'a str,
    subkind: &'a str,
    quality: f32,
    group: Option<&'a str>,
    version: Option<&'a str>,
    conversion: Option<&'a str>,
    profile: &'a str,
    stream: &'a str,
    server_version: &'a str,
}

impl Clause<'_> {
    fn accepts(&self, encoding: Encoding) -> bool {
        let (kind, subkind) = encoding.media_type().split_once('/').unwrap_or_default();
        let matches = match (self.kind, self.subkind) {
            ("*", subkind) => subkind == "*",
            (wanted, "*") => wanted.eq_ignore_ascii_case(kind),
            (wanted, subwanted) => {
                wanted.eq_ignore_ascii_case(kind) && subwanted.eq_ignore_ascii_case(subkind)
            }
        };
        let streams = match self.stream {
            "" => true,
            stream => stream == "watch" && encoding.streams(),
        };
        matches && streams && self.server_version.is_empty()
    }

    /// The form that the clause asks for; `None` if it asks for an unrelated type.
    fn form(&self) -> Option<Form> {
        let (group, version, kind) = match (self.group, self.version, self.conversion) {
            (None, None, None) => return Some(Form::Legacy),
            (group, version, kind) => (group?, version?, kind?),
        };
        let aggregated = group.eq_ignore_ascii_case(AGGREGATED_GROUP)
            && kind.eq_ignore_ascii_case(AGGREGATED_KIND);
        match version {
            "v2" | "V2" if aggregated => Some(Form::AggregatedV2),
            _ if aggregated && version.eq_ignore_ascii_case("v2beta1") => {
                Some(Form::AggregatedV2beta1)
            }
            _ => None,
        }
    }

    /// Whether this clause precedes another. This is not a strict order, but kube-apiserver sorts by
    /// it.
    fn before(&self, other: &Clause<'_>) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subkind != "*" && other.subkind == "*")
    }
}

fn parse_accept(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = Vec::new();
    for clause in header.split(',').take(MAX_CLAUSES).filter_map(parse_clause) {
        // Insertion sort: for so few clauses, the server's own sort does the same.
        let ahead = clauses.iter().rev().take_while(|other| clause.before(other));
        let place = clauses.len() - ahead.count();
        clauses.insert(place, clause);
    }
    clauses
}

fn parse_clause(text: &str) -> Option<Clause<'_>> {
    let mut pieces = trim(text).split(';');
    let media_type = pieces.next().unwrap_or_default();
    let (kind, subkind) = match trim(media_type).split_once('/') {
        Some((kind, subkind)) if !subkind.is_empty() => (kind, subkind),
        // `application` and `application/` are not types.
        other => {
            let kind = other.map_or(media_type, |(kind, _)| kind);
            (trim(kind) == "*").then_some(("*", "*"))?
        }
    };
    // A second slash is an error, except at the end.
    let (subkind, more) = subkind.split_once('/').unwrap_or((subkind, ""));
    if !more.is_empty() {
        return None;
    }

    let mut clause =
        Clause { kind: trim(kind), subkind: trim(subkind), quality: 1.0, ..Clause::default() };
    for parameter in pieces {
        let Some((name, value)) = parameter.split_once('=') else {
            continue;
        };
        let (value, more) = value.split_once('=').unwrap_or((value, ""));
        let (name, trimmed) = (trim(name).to_ascii_lowercase(), trim(value));
        if value.is_empty() || !more.is_empty() {
            continue;
        }
        match name.as_str() {
            "q" => clause.quality = value.parse().unwrap_or(0.0),
            "g" => clause.group = Some(trimmed),
            "v" => clause.version = Some(trimmed),
            "as" => clause.conversion = Some(trimmed),
            "profile" => clause.profile = trimmed,
            "stream" => clause.stream = trimmed,
            "sv" => clause.server_version = trimmed,
            _ => {}
        }
    }
    Some(clause)
}

fn trim(text: &str) -> &str {
    text.trim_matches(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_every_media_type_on_offer() {
        let encodings = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];
        let offer = Offer { forms: &[Form::Legacy], encodings: &encodings };
        let error = negotiate("application/cbor", offer).unwrap_err();
        let expected = "only the following media types are accepted: application/json, \
                        application/yaml, application/vnd.kubernetes.protobuf";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn conversions_come_in_the_order_of_preference() {
        let table = |version| Some(Conversion { group: "meta.k8s.io", version, kind: "Table" });
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                       application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(conversions(kubectl, Encoding::Json), [table("v1"), table("v1beta1"), None]);
        let reordered =
            "application/json;q=0.5, application/json;as=Table;v=v1;g=meta.k8s.io;q=0.9";
        assert_eq!(conversions(reordered, Encoding::Json), [table("v1"), None]);
        assert_eq!(conversions("", Encoding::Json), [None]);
        assert_eq!(conversions("*/*", Encoding::Json), [None]);
        assert_eq!(conversions("application/yaml", Encoding::Json), []);
    }

    /// Go's sort keeps them in place: neither comes before the other.
    #[test]
    fn equal_wildcards_keep_their_order() {
        let a = Some(Conversion { group: "a.io", version: "v1", kind: "A" });
        assert_eq!(conversions("*/*;as=A;v=v1;g=a.io,*/*", Encoding::Json), [a, None]);
        assert_eq!(conversions("*/*,*/*;as=A;v=v1;g=a.io", Encoding::Json), [None, a]);
    }

    #[test]
    fn nopeer_counts_in_any_clause_and_case() {
        for accept in ["application/json;profile=nopeer", "text/html,*/*;q=0.1;Profile=NoPeer"] {
            assert!(asks_nopeer(accept), "{accept}");
        }
        for accept in ["", "*/*", "application/json;profile=peer", "application/json;nopeer"] {
            assert!(!asks_nopeer(accept), "{accept}");
        }
    }
}
