//! Makes a batch of images for a model: several threads crop, resize and mirror them, and write each into
//! its place in the caller's memory.

use super::images::training_view::{Maker, Recipe};
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

    /// Its width and height, if its head is valid.
    fn size(self, most_pixels: u64) -> Option<(u32, u32)> {
        match self.seen(most_pixels).ok()? {
            Self::Pixels(shape, _) => Some((shape.width, shape.height)),
            Self::File(bytes) | Self::Headed(bytes, _) => {
                head_within(bytes, most_pixels).ok().map(|head| (head.width, head.height))
            }
        }
    }
}

/// Width and height of each image; None if its head is not valid.
pub fn sizes(images: &[Option<Picture<'_>>], most_pixels: u64) -> Vec<Option<(u32, u32)>> {
    images.iter().map(|image| image.and_then(|image| image.size(most_pixels))).collect()
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

/// Make all images, one after another in `out`. If images keep their size, an image without a valid head
/// takes no bytes.
pub fn make(
    images: &[Option<Picture<'_>>],
    keys: &[u64],
    recipe: &Recipe,
    rules: &Rules,
    out: &mut [u8],
) -> Result<Vec<Damaged>, Fault> {
    if keys.len() != images.len() {
        let message = format!("{} keys for {} images", keys.len(), images.len());
        return Err(Fault::new(FaultKind::Schema, 0, message));
    }
    let mut rest = out;
    let mut jobs = Vec::with_capacity(images.len());
    let sizes = recipe.law.size.is_none().then(|| sizes(images, rules.most_pixels));
    for (place, (image, &key)) in images.iter().zip(keys).enumerate() {
        let size = sizes.as_ref().map_or(Some((0, 0)), |sizes| sizes.get(place).copied().flatten());
        let length = size.map_or(Ok(0), |(width, height)| recipe.length(width, height))?;
        let Some((mine, others)) = std::mem::take(&mut rest).split_at_mut_checked(length) else {
            return Err(Fault::new(FaultKind::Schema, 0, "the batch has no room for its images"));
        };
        rest = others;
        jobs.push((*image, key, mine));
    }
    if !rest.is_empty() {
        return Err(Fault::new(FaultKind::Schema, 0, "the batch has room for more images"));
    }
    let work = |maker: &mut Maker, (image, key, mine): (Option<Picture<'_>>, u64, &mut [u8])| match (
        one(maker, image, key, recipe, rules, mine),
        rules.damage,
    ) {
        (Err(fault), Damage::Error) => Err(fault),
        (Err(fault), _) => {
            mine.fill(0);
            Ok(Some((fault, false)))
        }
        (Ok(damage), _) => Ok(damage.map(|fault| (fault, true))),
    };
    let done = parallel_for(jobs.into_iter(), images.len(), rules.threads, Maker::default, work)?;
    let damaged = done.into_iter().enumerate().filter_map(|(place, damage)| {
        damage.map(|(fault, salvaged)| Damaged { place, fault, salvaged })
    });
    Ok(damaged.collect())
}

/// Make one image. Returns its fault if it was salvaged.
fn one(
    maker: &mut Maker,
    image: Option<Picture<'_>>,
    key: u64,
    recipe: &Recipe,
    rules: &Rules,
    out: &mut [u8],
) -> Result<Option<Fault>, Fault> {
    let Some(image) = image else {
        return Err(Fault::new(FaultKind::Image, 0, "a null where an image is wanted"));
    };
    let bytes = match image.seen(rules.most_pixels)? {
        Picture::Pixels(shape, pixels) => {
            return maker.raw(pixels, shape, key, recipe, out).map(|()| None);
        }
        Picture::File(bytes) | Picture::Headed(bytes, _) => bytes,
    };
    match maker.encoded(bytes, key, recipe, rules.most_pixels, false, out) {
        Ok(()) => Ok(None),
        Err(fault) if rules.damage == Damage::Salvage => {
            maker.encoded(bytes, key, recipe, rules.most_pixels, true, out).map(|()| Some(fault))
        }
        Err(fault) => Err(fault),
    }
}
