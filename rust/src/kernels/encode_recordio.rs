//! Encodes columns as RecordIO frames: raw byte strings, or with the header of an image pack.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt64Type};
use arrow_array::{Array, StructArray};
use arrow_schema::DataType;

use super::buffer_pool;
use super::encode_examples::Framed;
use super::example_columns::Bytes;
use super::parts::Pieces;
use crate::wire::recordio::{LENGTH_LIMIT, PART_HEAD, write_frame};
use crate::wire::{Fault, FaultKind};
use penstock_codecs::crc32c::crc32c;

/// The headers of a batch: label, id and id2 of each record, without nulls.
struct Headers<'a> {
    labels: Labels<'a>,
    ids: &'a [u64],
    id2s: &'a [u64],
}

enum Labels<'a> {
    Scalars(&'a [f32]),
    Lists(&'a [i32], &'a [f32]),
}

#[cold]
fn wrong(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Schema, 0, message)
}

impl<'a> Headers<'a> {
    fn of(batch: &'a StructArray) -> Result<Self, Fault> {
        let column = |name| {
            let array = batch.column_by_name(name).filter(|array| array.null_count() == 0);
            array.ok_or_else(|| wrong("a column of the header is missing, or has nulls"))
        };
        let numbers = |name| {
            let array = column(name)?.as_primitive_opt::<UInt64Type>();
            array.map(|array| &array.values()[..]).ok_or_else(|| wrong("an id must be uint64"))
        };
        let label = column("label")?;
        let floats = |array: &'a dyn Array| {
            let array = array.as_primitive_opt::<Float32Type>().filter(|a| a.null_count() == 0);
            let values = array.map(|array| &array.values()[..]);
            values.ok_or_else(|| wrong("a label must be float32, or a list of these"))
        };
        let labels = match label.data_type() {
            DataType::List(_) => {
                let lists = label.as_list_opt::<i32>().ok_or_else(|| wrong("no list"))?;
                Labels::Lists(lists.value_offsets(), floats(lists.values().as_ref())?)
            }
            _ => Labels::Scalars(floats(label.as_ref())?),
        };
        Ok(Self { labels, ids: numbers("id")?, id2s: numbers("id2")? })
    }

    /// The header and labels of one record. None if the columns contradict themselves.
    fn write(&self, record: usize, out: &mut Vec<u8>) -> Option<()> {
        out.clear();
        let (flag, label, labels): (u32, f32, &[f32]) = match self.labels {
            Labels::Scalars(values) => (0, *values.get(record)?, &[]),
            Labels::Lists(ends, values) => {
                let start = usize::try_from(*ends.get(record)?).ok()?;
                let end = usize::try_from(*ends.get(record.checked_add(1)?)?).ok()?;
                let labels = values.get(start..end)?;
                (u32::try_from(labels.len()).ok()?, 0.0, labels)
            }
        };
        out.extend_from_slice(&flag.to_le_bytes());
        out.extend_from_slice(&label.to_le_bytes());
        out.extend_from_slice(&self.ids.get(record)?.to_le_bytes());
        out.extend_from_slice(&self.id2s.get(record)?.to_le_bytes());
        labels.iter().for_each(|label| out.extend_from_slice(&label.to_le_bytes()));
        Some(())
    }
}

/// Frame byte strings, each after its header, if there are headers.
pub fn encode_recordio(bodies: &dyn Array, headers: Option<&StructArray>) -> Result<Framed, Fault> {
    let Some(bytes) = Bytes::of(bodies).filter(|_| bodies.null_count() == 0) else {
        let message = format!("a record must be a byte string, not {}", bodies.data_type());
        return Err(wrong(message));
    };
    let headers = headers.map(Headers::of).transpose()?;
    let mut data = room(bodies.len(), &bytes)?;
    let mut lengths = Vec::with_capacity(bodies.len());
    let mut checksums = Vec::with_capacity(bodies.len());
    let mut header = Vec::new();
    for record in 0..bodies.len() {
        let disagree =
            || wrong("the array's offsets point outside of its values").in_record(record);
        let body = bytes.get(record).ok_or_else(disagree)?;
        if let Some(headers) = &headers {
            headers.write(record, &mut header).ok_or_else(disagree)?;
        }
        let length = (header.len() as u64).saturating_add(body.len() as u64);
        if length >= u64::from(LENGTH_LIMIT) {
            let fault = wrong("takes more bytes than a RecordIO record may have");
            let most = u64::from(LENGTH_LIMIT).wrapping_sub(1);
            return Err(fault.values(most, length).in_record(record));
        }
        let start = data.len();
        write_frame(&mut data, &header, body);
        let frame = data.get(start..).unwrap_or_default();
        lengths.push(frame.len() as u64);
        checksums.push(crc32c(frame));
    }
    Ok(Framed { bytes: Pieces::whole(data), lengths, checksums })
}

/// Memory for the frames of these bodies, unless one has to be split.
fn room(num_records: usize, bytes: &Bytes<'_>) -> Result<Vec<u8>, Fault> {
    const AROUND: usize = PART_HEAD + 3 + 24 + 4;
    let sizes = (0..num_records).filter_map(|record| bytes.get(record)).map(<[u8]>::len);
    let total = sizes.fold(num_records.saturating_mul(AROUND), usize::saturating_add);
    buffer_pool::take(total)
        .ok_or_else(|| Fault::new(FaultKind::Limit, 0, format!("no memory for {total} bytes")))
}
