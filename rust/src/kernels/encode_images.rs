//! Encodes pixels to a column of images, and re-encodes encoded images: smaller, or with another
//! codec.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::BinaryArray;
use arrow_array::builder::BinaryBuilder;

use super::images::shrink::{shrink, within};
use super::images::{Decoder, Encoder, Rules, Shape, Target, head_within};
use super::parallel_for::parallel_for;
use crate::wire::image_head::Codec;
use crate::wire::{Fault, FaultKind};

/// Counts the bytes of a column while it is made, because its offsets have 31 bits.
#[derive(Default)]
struct Column(AtomicU64);

impl Column {
    fn add(&self, length: usize) -> Result<(), Fault> {
        let before = self.0.fetch_add(length as u64, Ordering::Relaxed);
        if before.saturating_add(length as u64) > i32::MAX as u64 {
            let message =
                "encoded images of more than 2 GiB in one column: pass fewer images at a time";
            return Err(Fault::new(FaultKind::Limit, 0, message));
        }
        Ok(())
    }
}

/// Encode images whose pixels follow one another, in one allocation or several.
pub fn encode(
    pieces: &[&[u8]],
    shapes: &[Shape],
    to: &Target,
    threads: usize,
) -> Result<BinaryArray, Fault> {
    let mut pieces = pieces.iter();
    let mut rest: &[u8] = &[];
    let mut jobs = Vec::with_capacity(shapes.len());
    for (record, shape) in shapes.iter().enumerate() {
        let mismatch = || {
            let message = "fewer pixels than the shapes say";
            Fault::new(FaultKind::Schema, 0, message).in_record(record)
        };
        if shape.width == 0 || shape.height == 0 || !(1..=4).contains(&shape.channels) {
            let message = "an image has at least one pixel, of one to four channels";
            return Err(Fault::new(FaultKind::Schema, 0, message).in_record(record));
        }
        if rest.is_empty() {
            rest = pieces.next().copied().unwrap_or_default();
        }
        let (mine, others) = rest.split_at_checked(shape.bytes()?).ok_or_else(mismatch)?;
        rest = others;
        jobs.push((mine, *shape));
    }
    let column = Column::default();
    let work = |encoder: &mut Encoder, (mine, shape): (&[u8], Shape)| {
        let bytes = encoder.encode(mine, shape, to)?;
        column.add(bytes.len())?;
        Ok(bytes)
    };
    let encoded = parallel_for(jobs.into_iter(), shapes.len(), threads, Encoder::default, work)?;
    Ok(encoded.iter().map(|bytes| Some(bytes.as_slice())).collect())
}

/// How images are re-encoded.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The codec, or None to keep the codec of each image.
    pub codec: Option<Codec>,
    /// 1 to 100; None keeps an image unchanged if nothing else changes it.
    pub quality: Option<u8>,
    /// Whether WebP is lossless.
    pub lossless: bool,
    /// The maximum length of the longer side.
    pub max_side: Option<u32>,
}

const USUAL_QUALITY: u8 = 90;

impl Change {
    /// The default quality.
    pub fn quality(&self) -> u8 {
        self.quality.unwrap_or(USUAL_QUALITY)
    }
}

#[derive(Default)]
struct Worker {
    decoder: Decoder,
    encoder: Encoder,
    pixels: Vec<u8>,
    shrunk: Vec<u8>,
}

impl Worker {
    /// The new bytes of an image, or None if the old ones are kept.
    fn change(
        &mut self,
        old: &[u8],
        how: &Change,
        rules: &Rules,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let head = head_within(old, rules.most_pixels)?;
        let (width, height) = (head.width, head.height);
        let size = how.max_side.map_or((width, height), |side| within(width, height, side));
        let codec = how.codec.unwrap_or(head.codec);
        let same_channels = rules.mode.channels(&head) == head.channels && !head.cmyk;
        let lossy = matches!(codec, Codec::Jpeg | Codec::Webp);
        let kept = codec == head.codec && same_channels && !(lossy && how.quality.is_some());
        // Raw pixels can be written in many equivalent forms; this is the simplest one.
        if kept && size == (width, height) && codec != Codec::Ppm {
            return Ok(None);
        }
        let max_side = (size != (width, height)).then(|| size.0.max(size.1));
        let decoder = &mut self.decoder;
        let mut shape = decoder.decode_for(old, &head, rules, max_side, &mut self.pixels)?;
        let mut pixels = &self.pixels;
        if size != (shape.width, shape.height) {
            shape = shrink(pixels, shape, size, &mut self.shrunk)?;
            pixels = &self.shrunk;
        }
        let to = Target { codec, quality: how.quality(), lossless: how.lossless };
        self.encoder.encode(pixels, shape, &to).map(Some)
    }
}

/// Re-encode each image; an image that needs no change keeps its bytes, and nulls stay nulls.
pub fn reencode(
    images: &[Option<&[u8]>],
    how: &Change,
    rules: &Rules,
    threads: usize,
) -> Result<BinaryArray, Fault> {
    let column = Column::default();
    let work = |worker: &mut Worker, old: &Option<&[u8]>| {
        let Some(old) = old else { return Ok(None) };
        let new = worker.change(old, how, rules)?;
        column.add(new.as_ref().map_or(old.len(), Vec::len))?;
        Ok(new)
    };
    let changed = parallel_for(images.iter(), images.len(), threads, Worker::default, work)?;
    let total = usize::try_from(column.0.into_inner()).unwrap_or_default();
    let mut made = BinaryBuilder::with_capacity(images.len(), total);
    for (old, new) in images.iter().zip(changed) {
        made.append_option(new.as_deref().or(*old));
    }
    Ok(made.finish())
}
