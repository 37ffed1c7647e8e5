//! Decodes a column of encoded images: their sizes, and their pixels in one allocation.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use super::images::{Decoder, Rules, Shape, head_within, zeroed};
use super::parallel_for::parallel_for;
use crate::wire::image_head::{Head, probe};
use crate::wire::{Fault, FaultKind};

/// The bytes of each record of a binary array; None if it is null.
pub fn values(array: &ArrayRef) -> Result<Vec<Option<&[u8]>>, Fault> {
    match array.data_type() {
        DataType::Binary => Ok(array.as_binary::<i32>().iter().collect()),
        DataType::LargeBinary => Ok(array.as_binary::<i64>().iter().collect()),
        DataType::BinaryView => Ok(array.as_binary_view().iter().collect()),
        DataType::FixedSizeBinary(_) => Ok(array.as_fixed_size_binary().iter().collect()),
        other => {
            let message = format!("images are bytes, not {other}");
            Err(Fault::new(FaultKind::Schema, 0, message))
        }
    }
}

/// The head of each image, None for a null.
pub fn heads(images: &[Option<&[u8]>]) -> Result<Vec<Option<Head>>, Fault> {
    let head = |(record, bytes): (usize, &Option<&[u8]>)| {
        bytes.map(probe).transpose().map_err(|fault| fault.in_record(record))
    };
    images.iter().enumerate().map(head).collect()
}

/// Images in one allocation.
pub struct Decoded {
    /// The pixels of the images, one after another.
    pub pixels: Vec<u8>,
    /// The shape of each image; None for a null, which has no pixels.
    pub shapes: Vec<Option<Shape>>,
}

/// Decode all images. The total size is known from their heads, and is allocated once, within the limit.
pub fn decode(
    images: &[Option<&[u8]>],
    rules: &Rules,
    most_bytes: u64,
    threads: usize,
) -> Result<Decoded, Fault> {
    let mut found = Vec::with_capacity(images.len());
    let mut lengths = Vec::with_capacity(images.len());
    let mut total = 0u64;
    for (record, bytes) in images.iter().enumerate() {
        let head = bytes.map(|bytes| head_within(bytes, rules.most_pixels));
        let head = head.transpose().map_err(|fault| fault.in_record(record))?;
        let length = head.map_or(Ok(0), |head| Shape::of(&head, rules.mode).bytes())?;
        total = total.saturating_add(length as u64);
        if total > most_bytes {
            let message = format!("the pixels of the records up to this one are {total} bytes");
            let message = format!("{message}, beyond the limit batch_bytes={most_bytes}");
            let fault = Fault::new(FaultKind::Limit, 0, message).values(most_bytes, total);
            return Err(fault.in_record(record));
        }
        found.push(head);
        lengths.push(length);
    }
    let mut pixels = zeroed(total as usize)?;
    let mut rest = pixels.as_mut_slice();
    let mut jobs = Vec::with_capacity(images.len());
    for ((bytes, head), length) in images.iter().zip(&found).zip(lengths) {
        let (mine, others) = std::mem::take(&mut rest).split_at_mut(length);
        rest = others;
        jobs.push((bytes, head, mine));
    }
    parallel_for(
        jobs.into_iter(),
        images.len(),
        threads,
        Decoder::default,
        |decoder, job| match job {
            (Some(bytes), Some(head), mine) => decoder.decode(bytes, head, rules, mine),
            _ => Ok(()),
        },
    )?;
    let shapes = found.iter().map(|head| head.map(|head| Shape::of(&head, rules.mode))).collect();
    Ok(Decoded { pixels, shapes })
}
