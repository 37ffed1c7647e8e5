//! Infers an Arrow schema from some MessagePack records.
//!
//! | seen in a field | type |
//! |---|---|
//! | integers | int64; uint64 if a value is beyond int64 and none is negative |
//! | float32; float64; either with integers | float32; float64; float64 |
//! | strings, binary; both, or a string that is not UTF-8 | string, binary; binary |
//! | arrays; maps with keys of str or bin | list; struct, with the fields of all of them |
//! | maps of NumPy arrays of one dtype, and one shape or number of axes | tensors |
//! | timestamps; other extensions, or both | timestamp; struct of type and data |
//! | nil and any one of these | the type of the other values |
//! | anything else | the bytes of the values |

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use arrow_schema::{DataType, Field, Fields, TimeUnit};

use super::decode_msgpack::{MARK, TYPE_LEVELS};
use super::walk::Frames;
use crate::wire::Fault;
use crate::wire::cursor::Cursor;
use crate::wire::msgpack::{TIMESTAMP, Token, nanoseconds, skip, token};
use crate::wire::numpy_map::{Dtype, Found, Kind, numpy_map};

/// Records with more keys than this are read as raw bytes: a table does not have that many columns.
const MOST_KEYS: usize = 4096;
/// If the maps in a field have more different keys than this, and each map has less than a quarter
/// of them, their keys are data, not names of fields.
const WIDE_KEYS: usize = 256;

/// Facts about the values of one field.
#[derive(Clone, Debug, Default, PartialEq)]
enum Seen {
    /// Only nil.
    #[default]
    Nothing,
    Bool,
    Int(Ints),
    Float,
    Double,
    Text,
    Binary,
    Time,
    Ext,
    List(Box<Seen>),
    Map(Keys),
    Tensor(Dtype, Vec<u32>),
    Ragged(Dtype, usize),
    /// Values of several types.
    Mixed,
}

/// Facts about integers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ints {
    negative: bool,
    /// Whether a value is beyond int64.
    large: bool,
    /// Whether a value is beyond what float64 can hold exactly.
    inexact: bool,
}

/// Facts about maps.
#[derive(Clone, Debug, Default, PartialEq)]
struct Keys {
    /// In the order in which they first occurred.
    fields: Vec<(String, Seen)>,
    places: HashMap<String, usize>,
    /// The number of maps, and of their keys.
    maps: u64,
    keys: u64,
}

/// Facts about some records.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    records: Keys,
    /// Records that are not maps with string keys.
    others: u64,
}

impl Facts {
    /// Add more records.
    pub fn see(&mut self, frames: &Frames, nesting: usize) -> Result<(), Fault> {
        for record in 0..frames.spans.len() {
            let mut cursor = Cursor::new(frames.payload(record).unwrap_or_default());
            let seen = see_record(&mut self.records, &mut cursor, nesting)
                .map_err(|fault| fault.shifted(frames.place(record)).in_record(record))?;
            self.others = self.others.wrapping_add(u64::from(!seen));
        }
        Ok(())
    }

    /// The number of records so far.
    pub fn num_records(&self) -> u64 {
        self.records.maps.wrapping_add(self.others)
    }

    /// The columns that fit the records, or None if these are not maps of fields.
    pub fn fields(&self) -> Option<Fields> {
        let usable = self.others == 0 && (1..=MOST_KEYS).contains(&self.records.fields.len());
        usable.then(|| self.records.arrow())
    }
}

/// Add one record. False if it is not a map with string keys.
fn see_record(keys: &mut Keys, cursor: &mut Cursor<'_>, nesting: usize) -> Result<bool, Fault> {
    let start = *cursor;
    if let Token::Map(count) = token(cursor)?
        && !matches!(numpy_map(start.rest()), Found::Array(_) | Found::Odd)
        && keys.see(cursor, count, nesting, 0)?
    {
        return Ok(true);
    }
    *cursor = start;
    skip(cursor, nesting)?;
    Ok(false)
}

impl Keys {
    /// Add a map whose head has been read. False, in the middle of the map, if a key is not a string.
    fn see(
        &mut self,
        cursor: &mut Cursor<'_>,
        count: u32,
        nesting: usize,
        level: usize,
    ) -> Result<bool, Fault> {
        for _ in 0..count {
            let (Token::Str(key) | Token::Bin(key)) = token(cursor)? else { return Ok(false) };
            let Ok(key) = std::str::from_utf8(key) else { return Ok(false) };
            if key.contains('\0') {
                return Ok(false); // no name of an Arrow field
            }
            let place = match self.places.entry(key.to_owned()) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(free) => {
                    if self.fields.len() > MOST_KEYS {
                        return Ok(false);
                    }
                    self.fields.push((key.to_owned(), Seen::Nothing));
                    *free.insert(self.fields.len().wrapping_sub(1))
                }
            };
            if let Some((_, seen)) = self.fields.get_mut(place) {
                seen.see(cursor, nesting, level)?;
            }
        }
        self.maps = self.maps.wrapping_add(1);
        self.keys = self.keys.wrapping_add(u64::from(count));
        Ok(true)
    }

    fn is_wide(&self) -> bool {
        self.fields.len() > WIDE_KEYS
            && self.keys.saturating_mul(4) < self.maps.saturating_mul(self.fields.len() as u64)
    }

    fn arrow(&self) -> Fields {
        self.fields.iter().map(|(name, seen)| seen.field(name, true)).collect()
    }
}

impl Seen {
    /// Add the next value.
    fn see(&mut self, cursor: &mut Cursor<'_>, nesting: usize, level: usize) -> Result<(), Fault> {
        let start = *cursor;
        let inner = level.wrapping_add(1);
        let found = match (token(cursor)?, &mut *self) {
            (Token::Nil, _) => return Ok(()),
            (_, Self::Mixed) => Self::Mixed,
            (Token::Array(count), seen) if level < TYPE_LEVELS && seen.may_be_list() => {
                if *seen == Self::Nothing {
                    *seen = Self::List(Box::default());
                }
                if let Self::List(items) = seen {
                    for _ in 0..count {
                        items.see(cursor, nesting, inner)?;
                    }
                }
                return Ok(());
            }
            (Token::Map(count), seen) if level < TYPE_LEVELS => {
                match numpy_map(start.rest()) {
                    Found::Odd => Self::Mixed,
                    // Values inside lists and maps do not have their own column.
                    Found::Array(_) if level > 0 => Self::Mixed,
                    Found::Array(array) => {
                        *cursor = start;
                        skip(cursor, nesting)?;
                        *self = self.clone().with(Self::Tensor(array.dtype, array.shape));
                        return Ok(());
                    }
                    Found::Other if seen.may_be_map() => {
                        if *seen == Self::Nothing {
                            *seen = Self::Map(Keys::default());
                        }
                        let Self::Map(keys) = seen else { return Ok(()) };
                        if keys.see(cursor, count, nesting, inner)? {
                            return Ok(());
                        }
                        Self::Mixed
                    }
                    Found::Other => Self::Mixed,
                }
            }
            (Token::Array(_) | Token::Map(_), _) => Self::Mixed,
            (scalar, _) => {
                let scalar = Self::of(&scalar);
                if *self != scalar {
                    *self = std::mem::take(self).with(scalar);
                }
                return Ok(());
            }
        };
        *self = found;
        *cursor = start;
        skip(cursor, nesting)?;
        Ok(())
    }

    fn may_be_list(&self) -> bool {
        matches!(self, Self::Nothing | Self::List(_))
    }

    fn may_be_map(&self) -> bool {
        matches!(self, Self::Nothing | Self::Map(_))
    }

    /// The facts about one value that is not a container.
    fn of(value: &Token<'_>) -> Self {
        match *value {
            Token::Nil => Self::Nothing,
            Token::Bool(_) => Self::Bool,
            Token::Int(value) => Self::Int(Ints {
                negative: value < 0,
                large: false,
                inexact: value.unsigned_abs() > 1 << 53,
            }),
            Token::Large(_) => Self::Int(Ints { negative: false, large: true, inexact: true }),
            Token::Float(_) => Self::Float,
            Token::Double(_) => Self::Double,
            Token::Str(text) if std::str::from_utf8(text).is_ok() => Self::Text,
            Token::Str(_) | Token::Bin(_) => Self::Binary,
            Token::Ext(TIMESTAMP, data) if nanoseconds(data).is_some() => Self::Time,
            Token::Ext(..) => Self::Ext,
            Token::Array(_) | Token::Map(_) => Self::Mixed,
        }
    }

    /// The common type of both.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, other) => other,
            (Self::Int(a), Self::Int(b)) => Self::Int(Ints {
                negative: a.negative || b.negative,
                large: a.large || b.large,
                inexact: a.inexact || b.inexact,
            }),
            (Self::Int(ints), Self::Float | Self::Double)
            | (Self::Float | Self::Double, Self::Int(ints))
                if !ints.inexact =>
            {
                Self::Double
            }
            (Self::Float, Self::Double) | (Self::Double, Self::Float) => Self::Double,
            (Self::Text, Self::Binary) | (Self::Binary, Self::Text) => Self::Binary,
            (Self::Time, Self::Ext) | (Self::Ext, Self::Time) => Self::Ext,
            (Self::Tensor(a, first), Self::Tensor(b, second)) if a == b => {
                match (first == second, first.len() == second.len()) {
                    (true, _) => Self::Tensor(a, first),
                    (_, true) => Self::Ragged(a, first.len()),
                    _ => Self::Mixed,
                }
            }
            (Self::Ragged(a, axes), Self::Tensor(b, shape)) if a == b && axes == shape.len() => {
                Self::Ragged(a, axes)
            }
            (a, b) if a == b => a,
            _ => Self::Mixed,
        }
    }

    fn field(&self, name: &str, nullable: bool) -> Field {
        let (kind, mark) = self.arrow();
        let field = Field::new(name, kind, nullable);
        match mark {
            Some(mark) => field.with_metadata(HashMap::from([(MARK.to_owned(), mark)])),
            None => field,
        }
    }

    /// The Arrow type, and the mark with facts that the type does not express.
    fn arrow(&self) -> (DataType, Option<String>) {
        let raw = || (DataType::Binary, Some("raw".to_owned()));
        let kind = match self {
            Self::Nothing => DataType::Null,
            Self::Bool => DataType::Boolean,
            Self::Int(ints) if !ints.large => DataType::Int64,
            Self::Int(ints) if !ints.negative => DataType::UInt64,
            Self::Int(_) | Self::Mixed => return raw(),
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::Binary => DataType::Binary,
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Self::Ext => {
                let fields = [("type", DataType::Int8), ("data", DataType::Binary)];
                let fields = fields.map(|(name, kind)| Field::new(name, kind, true));
                return (DataType::Struct(fields.to_vec().into()), Some("ext".to_owned()));
            }
            Self::List(items) => DataType::List(items.field("item", true).into()),
            // A struct without fields would lose the keys that later maps have.
            Self::Map(keys) if keys.fields.is_empty() || keys.is_wide() => return raw(),
            Self::Map(keys) => DataType::Struct(keys.arrow()),
            Self::Tensor(dtype, shape) => return tensor(*dtype, shape).unwrap_or_else(raw),
            Self::Ragged(dtype, axes) => {
                let item = Field::new("item", number(*dtype), true);
                let axis = Field::new("item", DataType::Int32, true);
                let shape = DataType::FixedSizeList(axis.into(), *axes as i32);
                let data = Field::new("data", DataType::List(item.into()), true);
                let fields = vec![data, Field::new("shape", shape, true)];
                return (DataType::Struct(fields.into()), Some(format!("ragged {axes}")));
            }
        };
        (kind, None)
    }
}

fn tensor(dtype: Dtype, shape: &[u32]) -> Option<(DataType, Option<String>)> {
    let item = number(dtype);
    if shape.is_empty() {
        return Some((item, Some("tensor".to_owned())));
    }
    let size = shape.iter().try_fold(1i32, |n, &axis| n.checked_mul(i32::try_from(axis).ok()?))?;
    let axes: Vec<String> = shape.iter().map(u32::to_string).collect();
    let kind = DataType::FixedSizeList(Field::new("item", item, true).into(), size);
    Some((kind, Some(format!("tensor {}", axes.join(",")))))
}

fn number(dtype: Dtype) -> DataType {
    match (dtype.kind, dtype.size) {
        (Kind::Bool, _) => DataType::Boolean,
        (Kind::Int, 1) => DataType::Int8,
        (Kind::Int, 2) => DataType::Int16,
        (Kind::Int, 4) => DataType::Int32,
        (Kind::Int, _) => DataType::Int64,
        (Kind::UInt, 1) => DataType::UInt8,
        (Kind::UInt, 2) => DataType::UInt16,
        (Kind::UInt, 4) => DataType::UInt32,
        (Kind::UInt, _) => DataType::UInt64,
        (Kind::Float, 2) => DataType::Float16,
        (Kind::Float, 4) => DataType::Float32,
        (Kind::Float, _) => DataType::Float64,
    }
}

/// Whether the start of a file is almost certainly maps: at least two complete ones with the same keys,
/// which are strings.
pub fn looks_like_maps(frames: &Frames) -> bool {
    let keys = |record| {
        let mut cursor = Cursor::new(frames.payload(record)?);
        let Ok(Token::Map(count @ 1..)) = token(&mut cursor) else { return None };
        let mut keys = Vec::new();
        for _ in 0..count {
            let Ok(Token::Str(key)) = token(&mut cursor) else { return None };
            std::str::from_utf8(key).ok()?;
            keys.push(key);
            skip(&mut cursor, TYPE_LEVELS).ok()?;
        }
        Some(keys)
    };
    let first = keys(0);
    frames.spans.len() > 1
        && first.is_some()
        && (1..frames.spans.len()).all(|record| keys(record) == first)
}
