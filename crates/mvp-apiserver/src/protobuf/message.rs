//! Decodes a message by the table of its fields. Entry: [`Decoder::object`].

use serde_json::{Map, Number, Value};

use super::table::{Field, Kind, Shape, Table};
use super::wire::{self, Fields, Raw};
use super::{Fault, special};
use crate::base64;

/// The most values of an object. A value takes more memory than its bytes.
const MAX_VALUES: usize = 1 << 18;
/// The deepest nesting. Only the schemas of definitions are recursive.
const MAX_DEPTH: usize = 64;

/// A decoder of one object, with the limits that remain.
#[derive(Debug)]
pub(super) struct Decoder<'t> {
    table: &'t Table,
    values: usize,
    depth: usize,
}

/// A value, and whether it is the zero value of its Go type.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) value: Value,
    pub(super) zero: bool,
}

impl Decoded {
    pub(super) fn new(value: impl Into<Value>, zero: bool) -> Decoded {
        Decoded { value: value.into(), zero }
    }
}

impl<'t> Decoder<'t> {
    pub(super) fn new(table: &'t Table) -> Decoder<'t> {
        Decoder { table, values: MAX_VALUES, depth: MAX_DEPTH }
    }

    /// The fields of a message as JSON.
    pub(super) fn object(
        &mut self,
        message: usize,
        bytes: &[u8],
    ) -> Result<Map<String, Value>, Fault> {
        let mut fields = Map::new();
        self.message(message, bytes, &mut fields)?;
        Ok(fields)
    }

    /// Adds the fields of a message. Returns whether all of them are zero.
    fn message(
        &mut self,
        message: usize,
        bytes: &[u8],
        to: &mut Map<String, Value>,
    ) -> Result<bool, Fault> {
        self.depth = self.depth.checked_sub(1).ok_or_else(|| Fault::new("nested too deeply"))?;
        let table = self.table.fields(message);
        let mut found: Vec<Vec<Raw<'_>>> = vec![Vec::new(); table.len()];
        for field in Fields(bytes) {
            let (number, raw) = field?;
            let place = table.iter().position(|known| known.number == number);
            if let Some(slot) = place.and_then(|place| found.get_mut(place)) {
                self.count()?;
                slot.push(raw);
            }
        }
        let mut zero = true;
        for (field, raws) in table.iter().zip(found) {
            zero &= match (field.name.is_empty(), field.kind) {
                (true, Kind::Message(inner)) => {
                    self.message(inner, last_bytes(field, &raws)?, to)?
                }
                _ => self.field(field, &raws, to)?,
            };
        }
        self.depth += 1;
        Ok(zero)
    }

    /// Adds one field. Returns whether it is zero.
    fn field(
        &mut self,
        field: &Field,
        raws: &[Raw<'_>],
        to: &mut Map<String, Value>,
    ) -> Result<bool, Fault> {
        let wrong = |fault: Fault| Fault::new(format!("{}: {}", field.name, fault.0));
        let (decoded, empty) = match field.shape {
            Shape::Pointer => match raws.last() {
                None => (Decoded::new(Value::Null, true), true),
                Some(raw) => {
                    let value = self.value(field.kind, Some(*raw)).map_err(wrong)?.value;
                    (Decoded::new(value, false), false)
                }
            },
            Shape::Value => {
                let decoded = self.value(field.kind, raws.last().copied()).map_err(wrong)?;
                let empty = field.kind.can_be_empty() && is_empty(&decoded);
                (decoded, empty)
            }
            Shape::List => {
                let list = self.list(field.kind, raws).map_err(wrong)?;
                let empty = list.is_empty();
                (Decoded::new(if empty { Value::Null } else { list.into() }, empty), empty)
            }
            Shape::Map => {
                let map = self.map(field.kind, raws).map_err(wrong)?;
                let empty = map.is_empty();
                (Decoded::new(if empty { Value::Null } else { map.into() }, empty), empty)
            }
        };
        let omitted = field.omit_empty && empty || field.omit_zero && decoded.zero;
        if !omitted {
            self.count()?;
            to.insert(field.name.clone(), decoded.value);
        }
        Ok(decoded.zero)
    }

    fn list(&mut self, kind: Kind, raws: &[Raw<'_>]) -> Result<Vec<Value>, Fault> {
        let mut list = Vec::new();
        for raw in raws {
            match (kind, raw) {
                // Numbers may be packed into one field.
                (Kind::Int32 | Kind::Int64 | Kind::Bool, Raw::Bytes(packed)) => {
                    let mut packed = *packed;
                    while !packed.is_empty() {
                        self.count()?;
                        let number = wire::take_varint(&mut packed).ok_or_else(wrong_type)?;
                        list.push(self.value(kind, Some(Raw::Varint(number)))?.value);
                    }
                }
                _ => list.push(self.value(kind, Some(*raw))?.value),
            }
        }
        Ok(list)
    }

    fn map(&mut self, kind: Kind, raws: &[Raw<'_>]) -> Result<Map<String, Value>, Fault> {
        let mut map = Map::new();
        for raw in raws {
            let Raw::Bytes(entry) = raw else { return Err(wrong_type()) };
            let (mut key, mut value) = (String::new(), None);
            for field in Fields(entry) {
                match field? {
                    (1, Raw::Bytes(text)) => key = wire::text(text),
                    (2, raw) => value = Some(raw),
                    _ => {}
                }
            }
            map.insert(key, self.entry(kind, value)?);
        }
        Ok(map)
    }

    /// The value of a map's entry. Bytes and lists that are absent there are empty, not null.
    fn entry(&mut self, kind: Kind, raw: Option<Raw<'_>>) -> Result<Value, Fault> {
        match (kind, raw) {
            (Kind::Bytes, None) => Ok(Value::String(String::new())),
            _ => Ok(match self.value(kind, raw)?.value {
                Value::Null if kind == Kind::TextList => Value::Array(Vec::new()),
                value => value,
            }),
        }
    }

    /// One value; the zero value if it is absent.
    fn value(&mut self, kind: Kind, raw: Option<Raw<'_>>) -> Result<Decoded, Fault> {
        let number = || match raw {
            None => Ok(0),
            Some(Raw::Varint(number)) => Ok(number.cast_signed()),
            Some(_) => Err(wrong_type()),
        };
        let bytes = || match raw {
            None => Ok(&[][..]),
            Some(Raw::Bytes(bytes)) => Ok(bytes),
            Some(_) => Err(wrong_type()),
        };
        Ok(match kind {
            Kind::Bool => Decoded::new(number()? != 0, number()? == 0),
            // Go keeps the low half, too.
            Kind::Int32 => Decoded::new(number()? as i32, number()? as i32 == 0),
            Kind::Int64 => Decoded::new(number()?, number()? == 0),
            Kind::Double => match raw {
                None => Decoded::new(0, true),
                Some(Raw::Fixed64(bits)) => double(f64::from_bits(bits))?,
                Some(_) => return Err(wrong_type()),
            },
            Kind::Text => Decoded::new(wire::text(bytes()?), bytes()?.is_empty()),
            Kind::Bytes => match raw {
                None => Decoded::new(Value::Null, true),
                Some(_) => Decoded::new(base64::encode(bytes()?), false),
            },
            Kind::Message(message) => {
                let mut fields = Map::new();
                let zero = self.message(message, bytes()?, &mut fields)?;
                Decoded::new(fields, zero)
            }
            Kind::SchemaOrArray(schema) => self.schema_or_array(schema, bytes()?)?,
            Kind::SchemaOrBool(schema) => self.schema_or_bool(schema, bytes()?)?,
            Kind::SchemaOrTextList(schema) => self.schema_or_texts(schema, bytes()?)?,
            Kind::TextList => {
                let texts = self.texts(1, bytes()?)?;
                Decoded::new(
                    if texts.is_empty() { Value::Null } else { texts.clone().into() },
                    texts.is_empty(),
                )
            }
            Kind::Time
            | Kind::MicroTime
            | Kind::Duration
            | Kind::Quantity
            | Kind::IntOrString
            | Kind::Json => special::decode(kind, bytes()?)?,
        })
    }

    fn schema_or_array(&mut self, schema: usize, bytes: &[u8]) -> Result<Decoded, Fault> {
        let (mut one, mut several) = (Value::Null, Vec::<Value>::new());
        for field in Fields(bytes) {
            match field? {
                (1, Raw::Bytes(bytes)) => one = self.object(schema, bytes)?.into(),
                (2, Raw::Bytes(bytes)) => several.push(self.object(schema, bytes)?.into()),
                _ => {}
            }
        }
        let zero = one.is_null() && several.is_empty();
        Ok(Decoded::new(if several.is_empty() { one } else { several.into() }, zero))
    }

    fn schema_or_bool(&mut self, schema: usize, bytes: &[u8]) -> Result<Decoded, Fault> {
        let (mut allows, mut one) = (false, None);
        for field in Fields(bytes) {
            match field? {
                (1, Raw::Varint(number)) => allows = number != 0,
                (2, Raw::Bytes(bytes)) => one = Some(self.object(schema, bytes)?),
                _ => {}
            }
        }
        let zero = one.is_none() && !allows;
        Ok(Decoded::new(one.map_or(Value::Bool(allows), Value::Object), zero))
    }

    fn schema_or_texts(&mut self, schema: usize, bytes: &[u8]) -> Result<Decoded, Fault> {
        let texts = self.texts(2, bytes)?;
        if !texts.is_empty() {
            return Ok(Decoded::new(texts, false));
        }
        let mut one = Value::Null;
        for field in Fields(bytes) {
            if let (1, Raw::Bytes(bytes)) = field? {
                one = self.object(schema, bytes)?.into();
            }
        }
        let zero = one.is_null();
        Ok(Decoded::new(one, zero))
    }

    /// The text of all fields of this number.
    fn texts(&mut self, number: u64, bytes: &[u8]) -> Result<Vec<Value>, Fault> {
        let mut texts = Vec::new();
        for field in Fields(bytes) {
            if let (found, Raw::Bytes(text)) = field?
                && found == number
            {
                self.count()?;
                texts.push(wire::text(text).into());
            }
        }
        Ok(texts)
    }

    /// Counts a value.
    fn count(&mut self) -> Result<(), Fault> {
        self.values = self.values.checked_sub(1).ok_or_else(|| Fault::new("too many values"))?;
        Ok(())
    }
}

/// The content of a message that is not in a field of its own.
fn last_bytes<'a>(field: &Field, raws: &[Raw<'a>]) -> Result<&'a [u8], Fault> {
    match raws.last() {
        None => Ok(&[]),
        Some(Raw::Bytes(bytes)) => Ok(bytes),
        Some(_) => Err(Fault::new(format!("field {}: wrong wire type", field.number))),
    }
}

fn is_empty(decoded: &Decoded) -> bool {
    decoded.zero || decoded.value == ""
}

/// A number with a fraction; whole numbers are written without one, as in Go.
fn double(number: f64) -> Result<Decoded, Fault> {
    const EXACT: f64 = (1u64 << 53) as f64;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Ok(Decoded::new(number as i64, number == 0.0));
    }
    let number = Number::from_f64(number).ok_or_else(|| Fault::new("not a finite number"))?;
    Ok(Decoded::new(number, false))
}

fn wrong_type() -> Fault {
    Fault::new("wrong wire type")
}
