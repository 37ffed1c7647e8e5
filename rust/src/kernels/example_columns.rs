//! Views Arrow columns as the lists of `tf.train.Example`: it finds the position of each record's
//! values, and their type, which is one of three.
//!
//! Numbers must be int64 or float32; the caller casts them. Offsets are not trusted: every access is
//! checked.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, StructArray};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::DataType;

use super::encode_examples::{Head, Payload};
use crate::wire::{Fault, FaultKind};

/// The part of a message that a column belongs to. An Example has only a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Features.
    Context,
    /// Feature lists: a list of features for each record.
    Lists,
}

/// Prefix of a column name for a context feature of a SequenceExample.
pub const CONTEXT_PREFIX: &str = "context/";
/// Prefix of a column name for a feature list of a SequenceExample.
pub const LISTS_PREFIX: &str = "feature_lists/";

/// The elements of the level below that belong to a row.
pub enum Rows<'a> {
    /// The element with the same number.
    One,
    /// The elements between two offsets.
    Small(&'a [i32]),
    /// The same with 64-bit offsets.
    Large(&'a [i64]),
    /// This many elements for every row.
    Fixed(usize),
}

impl Rows<'_> {
    /// The first element of a row, and their number.
    #[inline(always)]
    pub fn span(&self, row: usize) -> Option<(usize, usize)> {
        let (start, end) = match self {
            Self::One => return Some((row, 1)),
            Self::Fixed(width) => return Some((row.checked_mul(*width)?, *width)),
            Self::Small(offsets) => match offsets.get(row..)? {
                [start, end, ..] => (i64::from(*start), i64::from(*end)),
                _ => return None,
            },
            Self::Large(offsets) => match offsets.get(row..)? {
                [start, end, ..] => (*start, *end),
                _ => return None,
            },
        };
        let count = usize::try_from(end.checked_sub(start)?).ok()?;
        Some((usize::try_from(start).ok()?, count))
    }
}

/// Byte strings of any Arrow layout.
pub enum Bytes<'a> {
    /// One after another.
    Packed(Rows<'a>, &'a [u8], &'a Buffer),
    /// By views: 16 bytes each, and the buffers of the long strings.
    Views(&'a [u8], &'a [Buffer]),
}

impl<'a> Bytes<'a> {
    /// The byte strings of an array, or None if it has another type.
    pub fn of(array: &'a dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Binary => {
                let array = array.as_binary_opt::<i32>()?;
                Self::Packed(Rows::Small(array.value_offsets()), array.value_data(), array.values())
            }
            DataType::LargeBinary => {
                let array = array.as_binary_opt::<i64>()?;
                Self::Packed(Rows::Large(array.value_offsets()), array.value_data(), array.values())
            }
            DataType::Utf8 => {
                let array = array.as_string_opt::<i32>()?;
                Self::Packed(Rows::Small(array.value_offsets()), array.value_data(), array.values())
            }
            DataType::LargeUtf8 => {
                let array = array.as_string_opt::<i64>()?;
                Self::Packed(Rows::Large(array.value_offsets()), array.value_data(), array.values())
            }
            DataType::FixedSizeBinary(_) => {
                let array = array.as_fixed_size_binary_opt()?;
                let width = usize::try_from(array.value_length()).ok()?;
                Self::Packed(Rows::Fixed(width), array.value_data(), array.values())
            }
            DataType::BinaryView => {
                let array = array.as_binary_view_opt()?;
                Self::Views(array.views().inner().as_slice(), array.data_buffers())
            }
            DataType::Utf8View => {
                let array = array.as_string_view_opt()?;
                Self::Views(array.views().inner().as_slice(), array.data_buffers())
            }
            _ => return None,
        })
    }

    /// One byte string.
    #[inline(always)]
    pub fn get(&self, at: usize) -> Option<&'a [u8]> {
        match self {
            Self::Packed(rows, data, _) => {
                let (start, length) = rows.span(at)?;
                data.get(start..start.checked_add(length)?)
            }
            Self::Views(views, buffers) => {
                let view = views.get(at.checked_mul(16)?..)?.first_chunk::<16>()?;
                let value = u128::from_le_bytes(*view);
                let length = value as u32 as usize;
                if length <= 12 {
                    // Short values are stored inside the view.
                    let start = at.wrapping_mul(16).wrapping_add(4);
                    return views.get(start..start.wrapping_add(length));
                }
                let buffer = buffers.get((value >> 64) as u32 as usize)?;
                let start = (value >> 96) as u32 as usize;
                buffer.get(start..start.checked_add(length)?)
            }
        }
    }

    /// The buffer of a byte string; None for a short string, which is inside its view.
    pub fn home(&self, at: usize) -> Option<&'a Buffer> {
        match self {
            Self::Packed(_, _, buffer) => Some(buffer),
            Self::Views(views, buffers) => {
                let view = views.get(at.checked_mul(16)?..)?.first_chunk::<16>()?;
                let value = u128::from_le_bytes(*view);
                buffers.get((value >> 64) as u32 as usize).filter(|_| value as u32 > 12)
            }
        }
    }
}

/// The values of a column.
pub enum Values<'a> {
    /// A column of Arrow's null type.
    Nothing,
    /// Int64List.
    Int(&'a [i64]),
    /// FloatList.
    Float(&'a [f32]),
    /// BytesList.
    Bytes(Bytes<'a>),
}

impl<'a> Values<'a> {
    fn of(array: &'a dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Null => Self::Nothing,
            DataType::Int64 => Self::Int(array.as_primitive_opt::<Int64Type>()?.values()),
            DataType::Float32 => Self::Float(array.as_primitive_opt::<Float32Type>()?.values()),
            _ => Self::Bytes(Bytes::of(array)?),
        })
    }

    /// The field of the list in Feature. A column of nulls never writes one.
    fn tag(&self) -> u8 {
        match self {
            Self::Nothing | Self::Bytes(_) => 0x0a,
            Self::Float(_) => 0x12,
            Self::Int(_) => 0x1a,
        }
    }
}

/// One column, which can be measured and written.
pub struct Column<'a> {
    /// Its name in the batch.
    pub name: String,
    /// The part of the message that it belongs to.
    pub section: Section,
    /// The bytes before its values.
    pub head: Head,
    /// The features of each record, for feature lists.
    pub frames: Option<Rows<'a>>,
    /// The values of each feature.
    pub rows: Rows<'a>,
    /// The values.
    pub values: Values<'a>,
    /// Its key in that part.
    pub key: String,
    nulls: Option<NullBuffer>,
    /// The nulls among lists within lists, and among values within lists: neither can be written.
    inner_nulls: Option<NullBuffer>,
    value_nulls: Option<NullBuffer>,
}

impl Column<'_> {
    /// Whether a record lacks the feature.
    #[inline(always)]
    pub fn is_null(&self, record: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(record))
    }

    /// Whether there are nulls on any level.
    pub fn has_nulls(&self) -> bool {
        let levels = [&self.nulls, &self.inner_nulls, &self.value_nulls];
        levels.into_iter().flatten().any(|nulls| nulls.null_count() > 0)
    }

    /// A fault if a feature's list, or one of its values, is null.
    #[inline(always)]
    pub fn refuse_nulls(&self, row: usize, start: usize, count: usize) -> Result<(), Fault> {
        let is_null = |nulls: &Option<NullBuffer>, at| match nulls {
            Some(nulls) => at < nulls.len() && nulls.is_null(at),
            None => false,
        };
        if self.inner_nulls.is_none() && self.value_nulls.is_none() {
            return Ok(());
        }
        let found = is_null(&self.inner_nulls, row)
            || (start..start.saturating_add(count)).any(|at| is_null(&self.value_nulls, at));
        if found { Err(null_inside()) } else { Ok(()) }
    }
}

#[cold]
fn null_inside() -> Fault {
    let message = "a list holds a null, which the format cannot store";
    Fault::new(FaultKind::Schema, 0, message)
}

/// The columns of a batch in the order in which they are written.
pub fn columns_of(batch: &StructArray, payload: Payload) -> Result<Vec<Column<'_>>, Fault> {
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, array) in batch.fields().iter().zip(batch.columns()) {
        let column =
            column(field.name(), array.as_ref(), payload).map_err(|f| f.in_field(field.name()))?;
        columns.push(column);
    }
    columns.sort_by(|a, b| (a.section, a.key.as_bytes()).cmp(&(b.section, b.key.as_bytes())));
    for pair in columns.windows(2) {
        if let [a, b] = pair
            && (a.section, &a.key) == (b.section, &b.key)
        {
            let message = format!("two columns have the key {:?}", b.key);
            return Err(Fault::new(FaultKind::Schema, 0, message).in_field(&b.name));
        }
    }
    Ok(columns)
}

fn column<'a>(name: &str, array: &'a dyn Array, payload: Payload) -> Result<Column<'a>, Fault> {
    let (stated, key) = match payload {
        Payload::Example => (Some(Section::Context), name),
        Payload::Sequence => section_of(name),
    };
    let outer = level(array);
    let inner = outer.as_ref().and_then(|(_, array)| level(*array));
    let deepest = match (&outer, &inner) {
        (_, Some((_, array))) | (Some((_, array)), None) => *array,
        (None, None) => array,
    };
    let values = Values::of(deepest).ok_or_else(|| unsupported(array, payload))?;
    let is_lists = stated == Some(Section::Lists) || (stated.is_none() && inner.is_some());
    let section = if is_lists { Section::Lists } else { Section::Context };
    let (frames, rows, middle) = match (section, outer, inner) {
        (Section::Context, _, Some(_)) | (Section::Lists, None, _) => {
            return Err(unsupported(array, payload));
        }
        (Section::Context, None, None) => (None, Rows::One, None),
        (Section::Context, Some((rows, _)), None) => (None, rows, None),
        (Section::Lists, Some((frames, _)), None) => (Some(frames), Rows::One, None),
        (Section::Lists, Some((frames, middle)), Some((rows, _))) => {
            (Some(frames), rows, Some(middle))
        }
    };
    let one_run = match (&rows, &values) {
        (_, Values::Int(_) | Values::Float(_)) | (Rows::One, _) => true,
        (_, Values::Bytes(_) | Values::Nothing) => false,
    };
    let is_scalar = frames.is_none() && matches!(rows, Rows::One);
    let some = |array: &dyn Array| array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    Ok(Column {
        name: name.to_owned(),
        section,
        head: Head::new(key, values.tag(), section, one_run),
        frames,
        rows,
        key: key.to_owned(),
        nulls: some(array),
        inner_nulls: middle.and_then(some),
        value_nulls: if is_scalar { None } else { some(deepest) },
        values,
    })
}

/// The part and the key that a column's name stands for.
pub fn section_of(name: &str) -> (Option<Section>, &str) {
    if let Some(key) = name.strip_prefix(CONTEXT_PREFIX) {
        return (Some(Section::Context), key);
    }
    match name.strip_prefix(LISTS_PREFIX) {
        Some(key) => (Some(Section::Lists), key),
        None => (None, name),
    }
}

/// The lists of an array and their values, or None if it does not hold lists.
fn level(array: &dyn Array) -> Option<(Rows<'_>, &dyn Array)> {
    if let Some(array) = array.as_list_opt::<i32>() {
        return Some((Rows::Small(array.value_offsets()), array.values().as_ref()));
    }
    if let Some(array) = array.as_list_opt::<i64>() {
        return Some((Rows::Large(array.value_offsets()), array.values().as_ref()));
    }
    let array = array.as_fixed_size_list_opt()?;
    let width = usize::try_from(array.value_length()).ok()?;
    Some((Rows::Fixed(width), array.values().as_ref()))
}

#[cold]
fn unsupported(array: &dyn Array, payload: Payload) -> Fault {
    let what = match payload {
        Payload::Example => "a tf.train.Example",
        Payload::Sequence => "this part of a SequenceExample",
    };
    let message = format!("{what} cannot hold a column of type {}", array.data_type());
    Fault::new(FaultKind::Schema, 0, message)
}
