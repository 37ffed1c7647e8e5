//! A batch of images as a model looks at them: each cropped, resized, mirrored and written into its
//! place in one piece of memory that the caller has, by several threads.

use super::images::look::{Maker, Recipe};
use super::images::{Shape, head_within};
use super::side_by_side::side_by_side;
use crate::wire::{Fault, FaultKind};

/// The images of a batch.
pub enum Images<'a> {
    /// Files of images; None for a null.
    Encoded(Vec<Option<&'a [u8]>>),
    /// Pixels of one shape; None for a null.
    Raw(Shape, Vec<Option<&'a [u8]>>),
}

impl<'a> Images<'a> {
    fn bytes(&self) -> &[Option<&'a [u8]>] {
        match self {
            Self::Encoded(bytes) | Self::Raw(_, bytes) => bytes,
        }
    }

    /// Width and height of each image; of one that cannot be told, nothing.
    pub fn sizes(&self, most_pixels: u64) -> Vec<Option<(u32, u32)>> {
        let size = |bytes: &Option<&[u8]>| match (self, bytes) {
            (_, None) => None,
            (Self::Raw(shape, _), Some(_)) => Some((shape.width, shape.height)),
            (Self::Encoded(_), Some(bytes)) => {
                head_within(bytes, most_pixels).ok().map(|head| (head.width, head.height))
            }
        };
        self.bytes().iter().map(size).collect()
    }
}

/// What is done about damaged images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The first of them is a fault.
    Error,
    /// They become zeros, and are told.
    Skip,
    /// What can be had of them is given, and they are told.
    Salvage,
}

impl Damage {
    /// The mode of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "skip" => Some(Self::Skip),
            "salvage" => Some(Self::Salvage),
            _ => None,
        }
    }
}

/// An image that is damaged.
#[derive(Debug)]
pub struct Damaged {
    /// Its place in the batch.
    pub place: usize,
    /// What is wrong with it.
    pub fault: Fault,
    /// Whether something of it was given all the same.
    pub salvaged: bool,
}

/// What holds for all images of a batch.
pub struct Rules {
    /// Pixels that an image may have.
    pub most_pixels: u64,
    /// What is done about damaged ones.
    pub damage: Damage,
    /// How many work side by side.
    pub threads: usize,
}

/// Make them all, one behind another in `out`. Where each keeps its size, one that cannot be told
/// has no bytes there.
pub fn make(
    images: &Images<'_>,
    keys: &[u64],
    recipe: &Recipe,
    rules: &Rules,
    out: &mut [u8],
) -> Result<Vec<Damaged>, Fault> {
    let bytes = images.bytes();
    if keys.len() != bytes.len() {
        let message = format!("{} keys for {} images", keys.len(), bytes.len());
        return Err(Fault::new(FaultKind::Schema, 0, message));
    }
    let mut rest = out;
    let mut jobs = Vec::with_capacity(bytes.len());
    let sizes = recipe.law.size.is_none().then(|| images.sizes(rules.most_pixels));
    for (place, (bytes, &key)) in bytes.iter().zip(keys).enumerate() {
        let size = sizes.as_ref().map_or(Some((0, 0)), |sizes| sizes.get(place).copied().flatten());
        let length = size.map_or(Ok(0), |(width, height)| recipe.length(width, height))?;
        let Some((mine, others)) = std::mem::take(&mut rest).split_at_mut_checked(length) else {
            return Err(Fault::new(FaultKind::Schema, 0, "the batch has no room for its images"));
        };
        rest = others;
        jobs.push((*bytes, key, mine));
    }
    if !rest.is_empty() {
        return Err(Fault::new(FaultKind::Schema, 0, "the batch has room for more images"));
    }
    let work = |maker: &mut Maker, (bytes, key, mine): (Option<&[u8]>, u64, &mut [u8])| match (
        one(maker, images, bytes, key, recipe, rules, mine),
        rules.damage,
    ) {
        (Err(fault), Damage::Error) => Err(fault),
        (Err(fault), _) => {
            mine.fill(0);
            Ok(Some((fault, false)))
        }
        (Ok(damage), _) => Ok(damage.map(|fault| (fault, true))),
    };
    let done = side_by_side(jobs.into_iter(), bytes.len(), rules.threads, Maker::default, work)?;
    let told = done.into_iter().enumerate().filter_map(|(place, damage)| {
        damage.map(|(fault, salvaged)| Damaged { place, fault, salvaged })
    });
    Ok(told.collect())
}

/// Make one; tells what is wrong with one that was salvaged.
fn one(
    maker: &mut Maker,
    images: &Images<'_>,
    bytes: Option<&[u8]>,
    key: u64,
    recipe: &Recipe,
    rules: &Rules,
    out: &mut [u8],
) -> Result<Option<Fault>, Fault> {
    let Some(bytes) = bytes else {
        return Err(Fault::new(FaultKind::Image, 0, "a null where an image is wanted"));
    };
    if let Images::Raw(shape, _) = images {
        return maker.raw(bytes, *shape, key, recipe, out).map(|()| None);
    }
    match maker.encoded(bytes, key, recipe, rules.most_pixels, false, out) {
        Ok(()) => Ok(None),
        Err(fault) if rules.damage == Damage::Salvage => {
            maker.encoded(bytes, key, recipe, rules.most_pixels, true, out).map(|()| Some(fault))
        }
        Err(fault) => Err(fault),
    }
}
