//! A batch of images or masks for a model: several threads crop, resize and mirror them, and write each
//! into its place in the caller's memory.

use super::images::crop::{Draw, Law, View};
use super::images::masks::{self, MaskMaker, Samples};
use super::images::training_view::{Maker, Recipe};
use super::images::turn::Turn;
use super::images::{Mode, Shape, head_within, within};
use super::parallel_for::parallel_for;
use crate::wire::{Fault, FaultKind, image_head};

/// One image of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Picture<'a> {
    /// The bytes of an image file.
    File(&'a [u8]),
    /// Pixels of this shape.
    Pixels(Shape, &'a [u8]),
    /// The head of a PPM file, and its pixels from another buffer.
    Headed(&'a [u8], &'a [u8]),
}

impl<'a> Picture<'a> {
    /// The image, read by its head if that is separate.
    fn seen(self, most_pixels: u64) -> Result<Self, Fault> {
        let Self::Headed(head, pixels) = self else { return Ok(self) };
        let (found, start, largest) = image_head::ppm(head)?;
        within(&found, most_pixels)?;
        let shape = Shape::of(&found, Mode::Stored);
        if (start, largest, pixels.len()) != (head.len(), 255, shape.bytes()?) {
            return Err(Fault::new(FaultKind::Image, 0, "a head of other pixels"));
        }
        Ok(Self::Pixels(shape, pixels))
    }

    /// Its width and height, if its head is valid; with `exif`, those of the upright image.
    fn size(self, most_pixels: u64, exif: bool) -> Option<(u32, u32)> {
        match self.seen(most_pixels).ok()? {
            Self::Pixels(shape, _) => Some((shape.width, shape.height)),
            Self::File(bytes) | Self::Headed(bytes, _) => {
                let head = head_within(bytes, most_pixels).ok()?;
                Some(Turn::of(bytes, exif).size((head.width, head.height)))
            }
        }
    }
}

/// Width and height of each image; None if its head is not valid. With `exif`, they are those of the
/// upright image.
pub fn sizes(
    images: &[Option<Picture<'_>>],
    most_pixels: u64,
    exif: bool,
) -> Vec<Option<(u32, u32)>> {
    images.iter().map(|image| image.and_then(|image| image.size(most_pixels, exif))).collect()
}

/// The type in which the masks of a batch are delivered: with the channels of the first mask that
/// has a valid head, and with 16 bits if any mask has 16 bits. A mask with a palette has one
/// channel.
pub fn mask_samples(images: &[Option<Picture<'_>>], most_pixels: u64) -> Samples {
    let kind = |image: &Picture<'_>| match image.seen(most_pixels).ok()? {
        Picture::Pixels(shape, _) => Some((shape.channels, false)),
        Picture::File(bytes) | Picture::Headed(bytes, _) => {
            let head = head_within(bytes, most_pixels).ok()?;
            Some((if head.indexed { 1 } else { head.channels }, head.deep))
        }
    };
    let kinds = images.iter().flatten().filter_map(kind);
    let (mut first, mut wide) = (None, false);
    for (channels, deep) in kinds {
        first.get_or_insert(channels);
        wide |= deep;
    }
    Samples {
        channels: if first.is_some_and(|channels| channels > 2) { 3 } else { 1 },
        wide,
        fill: 0,
    }
}

/// How damaged images are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The first damaged image is a fault.
    Error,
    /// They become zeros, and are reported.
    Skip,
    /// They are decoded as far as possible and reported.
    Salvage,
}

impl Damage {
    /// The mode with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "skip" => Some(Self::Skip),
            "salvage" => Some(Self::Salvage),
            _ => None,
        }
    }
}

/// A damaged image.
#[derive(Debug)]
pub struct Damaged {
    /// Its index in the batch.
    pub place: usize,
    /// Its fault.
    pub fault: Fault,
    /// Whether a part of it was decoded.
    pub salvaged: bool,
}

/// The rules for all images of a batch.
pub struct Rules {
    /// Pixels that an image may have.
    pub most_pixels: u64,
    /// How damaged images are handled.
    pub damage: Damage,
    /// The number of threads.
    pub threads: usize,
}

/// The output for each image.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// How the image is cropped, resized and written. For a mask, only the geometry is used.
    pub recipe: &'a Recipe,
    /// The type of the values, if the images are masks.
    pub mask: Option<Samples>,
}

impl Product<'_> {
    /// Bytes of the output for an image of this size.
    fn length(&self, width: u32, height: u32) -> Result<usize, Fault> {
        let Some(samples) = self.mask else { return self.recipe.length(width, height) };
        let (height, width) = self.recipe.law.size.unwrap_or((height, width));
        let pixels = Shape { width, height, channels: 1 }.bytes()?;
        pixels
            .checked_mul(samples.pixel_bytes())
            .ok_or_else(|| Fault::new(FaultKind::Limit, 0, "a mask too large for this machine"))
    }
}

/// The geometry for each image of these sizes; None if the size is not known.
pub fn views(law: &Law, sizes: &[Option<(u32, u32)>], keys: &[u64]) -> Vec<Option<View>> {
    let view = |(size, key): (&Option<(u32, u32)>, &u64)| {
        size.map(|(width, height)| law.view(width, height, *key))
    };
    sizes.iter().zip(keys).map(view).collect()
}

/// Make all images, one after another in `out`. If images keep their sizes, an image whose head is
/// not valid takes no bytes. An image without a draw becomes zeros, because the main image of its
/// record is damaged.
pub fn make(
    images: &[Option<Picture<'_>>],
    draws: &[Option<Draw>],
    product: Product<'_>,
    rules: &Rules,
    out: &mut [u8],
) -> Result<Vec<Damaged>, Fault> {
    if draws.len() != images.len() {
        let message = format!("{} keys for {} images", draws.len(), images.len());
        return Err(Fault::new(FaultKind::Schema, 0, message));
    }
    let mut rest = out;
    let mut jobs = Vec::with_capacity(images.len());
    let keep_sizes = product.recipe.law.size.is_none();
    let sizes = keep_sizes.then(|| sizes(images, rules.most_pixels, product.recipe.law.exif));
    for (place, (image, &draw)) in images.iter().zip(draws).enumerate() {
        let size = sizes.as_ref().map_or(Some((0, 0)), |sizes| sizes.get(place).copied().flatten());
        let length = size.map_or(Ok(0), |(width, height)| product.length(width, height))?;
        let Some((mine, others)) = std::mem::take(&mut rest).split_at_mut_checked(length) else {
            return Err(Fault::new(FaultKind::Schema, 0, "the batch has no room for its images"));
        };
        rest = others;
        jobs.push((*image, draw, mine));
    }
    if !rest.is_empty() {
        return Err(Fault::new(FaultKind::Schema, 0, "the batch has room for more images"));
    }
    let work = |makers: &mut Makers, (image, draw, mine): (_, Option<Draw>, &mut [u8])| {
        let Some(draw) = draw else {
            mine.fill(0);
            return Ok(None);
        };
        match (makers.one(image, draw, product, rules, mine), rules.damage) {
            (Err(fault), Damage::Error) => Err(fault),
            (Err(fault), _) => {
                mine.fill(0);
                Ok(Some((fault, false)))
            }
            (Ok(damage), _) => Ok(damage.map(|fault| (fault, true))),
        }
    };
    let done = parallel_for(jobs.into_iter(), images.len(), rules.threads, Makers::default, work)?;
    let damaged = done.into_iter().enumerate().filter_map(|(place, damage)| {
        damage.map(|(fault, salvaged)| Damaged { place, fault, salvaged })
    });
    Ok(damaged.collect())
}

/// The state of one thread.
#[derive(Default)]
struct Makers {
    images: Maker,
    masks: MaskMaker,
}

impl Makers {
    /// Make one image. Returns the fault of an image that was salvaged.
    fn one(
        &mut self,
        image: Option<Picture<'_>>,
        draw: Draw,
        product: Product<'_>,
        rules: &Rules,
        out: &mut [u8],
    ) -> Result<Option<Fault>, Fault> {
        let Some(image) = image else {
            return Err(Fault::new(FaultKind::Image, 0, "a null where an image is wanted"));
        };
        let bytes = match image.seen(rules.most_pixels)? {
            Picture::Pixels(shape, pixels) => {
                return self.raw(pixels, shape, draw, product, out).map(|()| None);
            }
            Picture::File(bytes) | Picture::Headed(bytes, _) => bytes,
        };
        match self.encoded(bytes, draw, product, rules, false, out) {
            Ok(()) => Ok(None),
            Err(fault) if rules.damage == Damage::Salvage => {
                self.encoded(bytes, draw, product, rules, true, out).map(|()| Some(fault))
            }
            Err(fault) => Err(fault),
        }
    }

    fn raw(
        &mut self,
        pixels: &[u8],
        shape: Shape,
        draw: Draw,
        product: Product<'_>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        match product.mask {
            None => self.images.raw(pixels, shape, draw, product.recipe, out),
            Some(samples) => masks::raw(pixels, shape, draw, &product.recipe.law, samples, out),
        }
    }

    fn encoded(
        &mut self,
        bytes: &[u8],
        draw: Draw,
        product: Product<'_>,
        rules: &Rules,
        allow_damaged: bool,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let (recipe, most_pixels) = (product.recipe, rules.most_pixels);
        let Some(samples) = product.mask else {
            return self.images.encoded(bytes, draw, recipe, most_pixels, allow_damaged, out);
        };
        let rules = super::images::Rules { mode: Mode::Stored, most_pixels, allow_damaged };
        self.masks.encoded(bytes, draw, &recipe.law, samples, &rules, out)
    }
}
