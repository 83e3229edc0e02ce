//! The messages of Kubernetes' kinds, from an asset that `tools/protobuf-tables` writes.
//! Entry: [`Table::get`].
//!
//! A line `K apps/v1 Deployment=7` gives the message of a kind. The n-th line `M` has the fields of
//! message n as `number:name:type`; the types are those of [`Kind::parse`].

use std::collections::HashMap;
use std::io::Read;
use std::sync::OnceLock;

use flate2::read::GzDecoder;

/// All messages, and the kinds that are among them.
#[derive(Debug, Default)]
pub(super) struct Table {
    kinds: HashMap<String, HashMap<String, usize>>,
    messages: Vec<Vec<Field>>,
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u64,
    /// The name in JSON; empty for a message whose fields are among those of its parent.
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
}

/// How often a value occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Always there in Go; zero if it is absent.
    Value,
    /// Absent, or there.
    Pointer,
    List,
    /// By keys that are text.
    Map,
}

/// The type of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// JSON as bytes: `RawExtension`, `FieldsV1` and the `JSON` of schemas.
    Json,
    /// A message that has only a list of text, such as `ExtraValue`.
    TextList,
    /// A schema or several. These three have the message of a schema.
    SchemaOrArray(usize),
    SchemaOrBool(usize),
    SchemaOrTextList(usize),
    Message(usize),
}

impl Table {
    /// The table, read at the first use.
    pub(super) fn get() -> &'static Table {
        static TABLE: OnceLock<Table> = OnceLock::new();
        // A test reads the asset; an unreadable one would have no kinds.
        TABLE.get_or_init(|| Table::read(ASSET).unwrap_or_default())
    }

    /// The message of a kind.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<usize> {
        self.kinds.get(api_version)?.get(kind).copied()
    }

    /// The fields of a message.
    pub(super) fn fields(&self, message: usize) -> &[Field] {
        self.messages.get(message).map_or(&[], Vec::as_slice)
    }

    fn read(asset: &[u8]) -> Option<Table> {
        let mut text = String::new();
        GzDecoder::new(asset).read_to_string(&mut text).ok()?;
        let mut table = Table::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            if words.next()? == "K" {
                let kinds = table.kinds.entry(words.next()?.to_owned()).or_default();
                for word in words {
                    let (kind, message) = word.split_once('=')?;
                    kinds.insert(kind.to_owned(), message.parse().ok()?);
                }
            } else {
                table.messages.push(words.map(Field::parse).collect::<Option<_>>()?);
            }
        }
        Some(table)
    }
}

const ASSET: &[u8] = include_bytes!("../../assets/protobuf.gz");

impl Field {
    fn parse(word: &str) -> Option<Field> {
        let mut parts = word.splitn(3, ':');
        let (number, name, code) = (parts.next()?, parts.next()?, parts.next()?);
        let code = code.trim_end_matches('^');
        let (code, omit_zero) = match code.strip_suffix("?0") {
            // Both flags; a message number may end with a zero.
            Some(rest) => (rest.to_owned() + "?", true),
            None => (code.to_owned(), false),
        };
        let (code, omit_empty) = match code.strip_suffix('?') {
            Some(rest) => (rest, true),
            None => (code.as_str(), false),
        };
        let (shape, code) = match code.split_at_checked(1)? {
            ("*", rest) => (Shape::Pointer, rest),
            ("[", rest) => (Shape::List, rest),
            ("{", rest) => (Shape::Map, rest),
            _ => (Shape::Value, code),
        };
        Some(Field {
            number: number.parse().ok()?,
            name: name.to_owned(),
            shape,
            kind: Kind::parse(code)?,
            omit_empty,
            omit_zero,
        })
    }
}

impl Kind {
    fn parse(code: &str) -> Option<Kind> {
        let (letter, rest) = code.split_at_checked(1)?;
        let number = || rest.parse().ok();
        Some(match letter {
            "s" => Kind::Text,
            "b" => Kind::Bool,
            "i" => Kind::Int32,
            "l" => Kind::Int64,
            "d" => Kind::Double,
            "y" => Kind::Bytes,
            "T" => Kind::Time,
            "U" => Kind::MicroTime,
            "D" => Kind::Duration,
            "Q" => Kind::Quantity,
            "I" => Kind::IntOrString,
            "R" => Kind::Json,
            "W" => Kind::TextList,
            "A" => Kind::SchemaOrArray(number()?),
            "B" => Kind::SchemaOrBool(number()?),
            "S" => Kind::SchemaOrTextList(number()?),
            _ => Kind::Message(code.parse().ok()?),
        })
    }

    /// Whether Go leaves an empty value of this type out with `omitempty`: structs are never empty.
    pub(super) fn can_be_empty(self) -> bool {
        match self {
            Kind::Text
            | Kind::Bool
            | Kind::Int32
            | Kind::Int64
            | Kind::Double
            | Kind::Bytes
            | Kind::TextList => true,
            Kind::Time
            | Kind::MicroTime
            | Kind::Duration
            | Kind::Quantity
            | Kind::IntOrString
            | Kind::Json
            | Kind::SchemaOrArray(_)
            | Kind::SchemaOrBool(_)
            | Kind::SchemaOrTextList(_)
            | Kind::Message(_) => false,
        }
    }
}
