//! Makes one image for a model. Only the pixels that the crop needs are decoded, at the smallest sufficient
//! scale. Then they are resized, mirrored, and written in the wanted type and layout.

use super::crop::{Draw, Law, Region, Span, View};
use super::deep_view::DeepMaker;
use super::frame::{Fill, framed};
use super::jitter::{Jitter, Step, change};
use super::pillow::Filter;
use super::resize::{Place, Resampling, Resizer};
use super::turn::Turn;
use super::values::{DeepValues, Values, mirror, write, write_grey};
use super::{Decoder, Mode, Rules, Shape, change_channels, damaged, head_within, luma, ppm, room};
use crate::wire::image_head::{Codec, Head};
use crate::wire::{Fault, FaultKind};

/// How images are made.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// How images are cropped, resized and flipped.
    pub law: Law,
    /// How they are resized. If that is exact, whole images are decoded, even if a part would be enough.
    pub resampling: Resampling,
    /// Whether the result has one channel, the brightness.
    pub grey: bool,
    /// The output value of each byte.
    pub values: Values,
    /// The output values for images of 16 bits; None uses the upper 8 bits of their values.
    pub deep: Option<DeepValues>,
    /// Channels as planes (NCHW), not interleaved (NHWC).
    pub planes: bool,
    /// The output value of red, green and blue in a margin.
    pub fill: Vec<u8>,
    /// The value of masks in a margin.
    pub mask_fill: u16,
    /// How the colours of the image, but not of its margin, are changed at random.
    pub jitter: Option<Jitter>,
}

impl Recipe {
    fn filled(&self) -> Fill<'_> {
        let planes = if self.planes { self.channels().into() } else { 1 };
        Fill { pixel: &self.fill, planes }
    }

    /// Values for each pixel of the result.
    pub fn channels(&self) -> u8 {
        if self.grey { 1 } else { 3 }
    }

    /// The mode in which images are decoded.
    fn mode(&self) -> Mode {
        if self.grey { Mode::Grey } else { Mode::Rgb }
    }

    /// What is made of an image of this view.
    fn plan(&self, view: View, draw: Draw) -> Plan<'_> {
        let steps = self.jitter.as_ref().map_or_else(Vec::new, |jitter| jitter.drawn(draw.key));
        Plan { recipe: self, view, steps }
    }

    /// Bytes of the result for an image of this size.
    pub fn length(&self, width: u32, height: u32) -> Result<usize, Fault> {
        let (height, width) = self.law.size.unwrap_or((height, width));
        let shape = Shape { width, height, channels: self.channels() };
        let length = shape.bytes()?.checked_mul(self.values.width());
        length.ok_or_else(|| Fault::new(FaultKind::Limit, 0, "an image too large for this machine"))
    }
}

/// What is made of one image, without its margin.
struct Plan<'a> {
    recipe: &'a Recipe,
    view: View,
    /// The changes of its colours.
    steps: Vec<Step>,
}

impl Plan<'_> {
    /// Whether an image of this shape is copied unchanged.
    fn keeps_all(&self, image: Shape) -> bool {
        let View { across, down, width, height, .. } = self.view;
        let whole = |span: Span, old: u32, new: u32| {
            old == new && span == Span { start: 0.0, length: new.into() }
        };
        whole(across, image.width, width) && whole(down, image.height, height) && self.as_bytes()
    }

    /// Whether pixels are written as they were decoded: interleaved, from left to right.
    fn as_bytes(&self) -> bool {
        let Recipe { values, planes, grey, .. } = self.recipe;
        let is_plain = matches!(values, Values::Bytes) && !planes && !grey;
        is_plain && !self.view.flip && self.steps.is_empty()
    }
}

/// Decoded pixels of an image, and where its view is in them.
struct Pixels<'a> {
    pixels: &'a [u8],
    shape: Shape,
    view: View,
}

/// Makes images one after another, and keeps reusable state.
#[derive(Default)]
pub struct Maker {
    decoder: Decoder,
    resizer: Resizer,
    source: Vec<u8>,
    made: Vec<u8>,
    turned: Vec<u8>,
    grey: Vec<u8>,
    deep: DeepMaker,
    room: Vec<u8>,
}

impl Maker {
    /// Make the view of an encoded image.
    pub fn encoded(
        &mut self,
        bytes: &[u8],
        draw: Draw,
        recipe: &Recipe,
        most_pixels: u64,
        allow_damaged: bool,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let head = head_within(bytes, most_pixels)?;
        let turn = Turn::of(bytes, recipe.law.exif);
        let (width, height) = turn.size((head.width, head.height));
        let view = recipe.law.view_of(width, height, draw)?;
        let rules = Rules { mode: recipe.mode(), most_pixels, allow_damaged };
        let mut margin = std::mem::take(&mut self.room);
        let plan = recipe.plan(view, draw);
        let made = framed(&view, recipe.filled(), &mut margin, out, |out| {
            if turn.is_none() {
                self.decoded((bytes, &head), &plan, &rules, out)
            } else {
                self.turned((bytes, &head), turn, &plan, &rules, out)
            }
        });
        self.room = margin;
        made
    }

    /// Make the view of an encoded image without its margin.
    fn decoded(
        &mut self,
        (bytes, head): (&[u8], &Head),
        plan: &Plan<'_>,
        rules: &Rules,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let Self { decoder, resizer, source, made, grey, deep, .. } = self;
        let &Plan { recipe, view, .. } = plan;
        if head.deep
            && let Some(values) = &recipe.deep
        {
            deep.decode(bytes, head, source)?;
            return deep.finish(&view, (recipe, values), resizer, out);
        }
        let shape = Shape::of(head, Mode::Rgb);
        if plan.keeps_all(shape) {
            return decoder.decode(bytes, head, rules, out);
        }
        let part = part_for(&view, recipe.resampling.filter);
        let in_part = !recipe.resampling.exact && !rules.allow_damaged;
        if head.codec == Codec::Jpeg && in_part && (part > 1 || !recipe.grey) {
            let view = view_of_part(&view, part);
            let region = needed(&view, recipe.resampling);
            let found = decoder.decode_region(bytes, head, part, region, source)?;
            let shape = Shape { width: found.width, height: found.height, channels: 3 };
            let pixels = source.get(..shape.bytes()?).unwrap_or_default();
            let view = view_within(&view, found);
            return Pixels { pixels, shape, view }.finish(plan, resizer, made, out);
        }
        if head.codec == Codec::Ppm
            && !recipe.grey
            && let Some(pixels) = ppm::plain(bytes, shape)?
        {
            return Pixels { pixels, shape, view }.finish(plan, resizer, made, out);
        }
        let pixels = whole(decoder, (bytes, head), rules, (source, grey))?;
        Pixels { pixels, shape, view }.finish(plan, resizer, made, out)
    }

    /// Make the view, without its margin, of an encoded image that is first decoded whole and turned
    /// upright.
    fn turned(
        &mut self,
        (bytes, head): (&[u8], &Head),
        turn: Turn,
        plan: &Plan<'_>,
        rules: &Rules,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let Self { decoder, resizer, source, made, turned, grey, deep, .. } = self;
        let &Plan { recipe, view, .. } = plan;
        if head.deep
            && let Some(values) = &recipe.deep
        {
            deep.decode(bytes, head, source)?;
            deep.turn(turn)?;
            return deep.finish(&view, (recipe, values), resizer, out);
        }
        let stored = Shape::of(head, Mode::Rgb);
        let pixels = whole(decoder, (bytes, head), rules, (source, grey))?;
        let (width, height) = turn.size((head.width, head.height));
        let pixels = turn.bytes(pixels, 3, (head.width, head.height), turned)?;
        let shape = Shape { width, height, ..stored };
        Pixels { pixels, shape, view }.finish(plan, resizer, made, out)
    }

    /// Make the view of raw pixels.
    pub fn raw(
        &mut self,
        pixels: &[u8],
        shape: Shape,
        draw: Draw,
        recipe: &Recipe,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let view = recipe.law.view_of(shape.width, shape.height, draw)?;
        let Self { resizer, source, made, grey, room: margin, .. } = self;
        let plan = recipe.plan(view, draw);
        framed(&view, recipe.filled(), margin, out, |out| {
            let rgb = Shape { channels: 3, ..shape };
            if recipe.grey {
                let one = room(grey, Shape { channels: 1, ..shape }.bytes()?)?;
                change_channels(pixels, shape.channels, 1, one)?;
                let pixels = repeated(one, rgb, source)?;
                return Pixels { pixels, shape: rgb, view }.finish(&plan, resizer, made, out);
            }
            if shape.channels == 3 {
                return Pixels { pixels, shape, view }.finish(&plan, resizer, made, out);
            }
            let changed = room(source, rgb.bytes()?)?;
            change_channels(pixels, shape.channels, 3, changed)?;
            Pixels { pixels: changed, shape: rgb, view }.finish(&plan, resizer, made, out)
        })
    }
}

/// Decode the whole image to RGB. If the mode is grey, all channels have the brightness, because there is
/// one kind of pixels to resize.
fn whole<'a>(
    decoder: &mut Decoder,
    (bytes, head): (&[u8], &Head),
    rules: &Rules,
    (source, grey): (&'a mut Vec<u8>, &mut Vec<u8>),
) -> Result<&'a mut [u8], Fault> {
    let rgb = Shape::of(head, Mode::Rgb);
    if rules.mode == Mode::Rgb {
        let pixels = room(source, rgb.bytes()?)?;
        decoder.decode(bytes, head, rules, pixels)?;
        return Ok(pixels);
    }
    let one = room(grey, Shape::of(head, rules.mode).bytes()?)?;
    decoder.decode(bytes, head, rules, one)?;
    repeated(one, rgb, source)
}

/// Grey pixels as RGB of this shape.
fn repeated<'a>(grey: &[u8], rgb: Shape, source: &'a mut Vec<u8>) -> Result<&'a mut [u8], Fault> {
    let pixels = room(source, rgb.bytes()?)?;
    change_channels(grey, 1, 3, pixels)?;
    Ok(pixels)
}

/// The scale at which a JPEG is decoded: 1 / 2, 1 / 4 or 1 / 8 if the result is not smaller than wanted.
/// (libjpeg-turbo has other eighths too, but without vector instructions.)
fn part_for(view: &View, filter: Filter) -> u8 {
    if filter == Filter::Nearest {
        return 1; // the pixels of a smaller image are means
    }
    let enough = |span: Span, part: f64, new: u32| span.length >= part * f64::from(new);
    let suffices = |part: &u8| {
        let part = f64::from(*part);
        enough(view.across, part, view.width) && enough(view.down, part, view.height)
    };
    [8, 4, 2].into_iter().find(suffices).unwrap_or(1)
}

/// The view in coordinates of the image at 1/`part` of its size.
fn view_of_part(view: &View, part: u8) -> View {
    if part == 1 {
        return *view;
    }
    let whole = u32::from(part);
    let less = |span: Span| Span {
        start: span.start / f64::from(part),
        length: span.length / f64::from(part),
    };
    let Region { left, top, width, height } = view.bounds;
    let (right, bottom) = ((left + width).div_ceil(whole), (top + height).div_ceil(whole));
    let (left, top) = (left / whole, top / whole);
    let bounds = Region { left, top, width: right - left, height: bottom - top };
    View { bounds, across: less(view.across), down: less(view.down), ..*view }
}

/// The pixels that the filter reads.
fn needed(view: &View, how: Resampling) -> Region {
    let side = |span: Span, new: u32, first: u32, length: u32| {
        let reach = how.reach(span, new) + 1.0;
        let start = (span.start - reach).floor().max(f64::from(first)) as u32;
        let end = (span.start + span.length + reach).ceil().min(f64::from(first + length)) as u32;
        (start, end.saturating_sub(start).max(1))
    };
    let (left, width) = side(view.across, view.width, view.bounds.left, view.bounds.width);
    let (top, height) = side(view.down, view.height, view.bounds.top, view.bounds.height);
    Region { left, top, width, height }
}

/// The view relative to the first pixel of the region.
fn view_within(view: &View, region: Region) -> View {
    let moved = |span: Span, by: u32| Span { start: span.start - f64::from(by), ..span };
    let side = |first: u32, length: u32, start: u32, size: u32| {
        let begin = first.max(start);
        let end = (first + length).min(start + size);
        (begin - start, end.saturating_sub(begin))
    };
    let bounds = view.bounds;
    let (left, width) = side(bounds.left, bounds.width, region.left, region.width);
    let (top, height) = side(bounds.top, bounds.height, region.top, region.height);
    View {
        bounds: Region { left, top, width, height },
        across: moved(view.across, region.left),
        down: moved(view.down, region.top),
        ..*view
    }
}

impl Pixels<'_> {
    /// Resize if needed, change the colours, and write the result.
    fn finish(
        &self,
        plan: &Plan<'_>,
        resizer: &mut Resizer,
        made: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let view = self.view;
        let new = Shape { width: view.width, height: view.height, channels: 3 };
        let wanted = Shape { channels: plan.recipe.channels(), ..new };
        if wanted.bytes()?.checked_mul(plan.recipe.values.width()) != Some(out.len()) {
            return Err(damaged("no room for the pixels that are made"));
        }
        let as_they_are = |span: Span, new: u32| {
            span.length == f64::from(new) && span.start.fract() == 0.0 && span.start >= 0.0
        };
        if as_they_are(view.across, view.width) && as_they_are(view.down, view.height) {
            let stride = self.shape.row_bytes();
            let before = view.down.start as usize * stride + view.across.start as usize * 3;
            let from = self.pixels.get(before..).unwrap_or_default();
            if plan.steps.is_empty() {
                return written(plan, from, stride, new, out);
            }
            copy_rows(from, stride, new, room(made, new.bytes()?)?)?;
        } else {
            let target = if plan.as_bytes() { &mut *out } else { room(made, new.bytes()?)? };
            let spans = (view.across, view.down);
            let place = Place { bounds: view.bounds, spans, new: (view.width, view.height) };
            resizer.resize(self.pixels, self.shape, place, plan.recipe.resampling, target)?;
            if plan.as_bytes() {
                return Ok(());
            }
        }
        let pixels = made.get_mut(..new.bytes()?).unwrap_or_default();
        change(&plan.steps, pixels);
        written(plan, pixels, new.row_bytes(), new, out)
    }
}

/// Copy the beginnings of rows.
fn copy_rows(from: &[u8], stride: usize, new: Shape, out: &mut [u8]) -> Result<(), Fault> {
    if stride == new.row_bytes() {
        let from = from.get(..out.len()).ok_or_else(|| damaged("fewer pixels than said"))?;
        out.copy_from_slice(from);
        return Ok(());
    }
    for (target, row) in out.chunks_exact_mut(new.row_bytes()).zip(rows_of(from, stride, new)) {
        target.copy_from_slice(row);
    }
    Ok(())
}

fn rows_of(from: &[u8], stride: usize, new: Shape) -> impl Iterator<Item = &[u8]> {
    let rows = from.chunks(stride.max(1)).filter_map(move |row| row.get(..new.row_bytes()));
    rows.take(new.height as usize)
}

/// Write rows of pixels, `stride` bytes apart, as values.
fn written(
    plan: &Plan<'_>,
    from: &[u8],
    stride: usize,
    new: Shape,
    out: &mut [u8],
) -> Result<(), Fault> {
    if plan.recipe.grey {
        written_grey(plan, from, stride, new, out);
        return Ok(());
    }
    let (flip, planes) = (plan.view.flip, plan.recipe.planes);
    let rows = rows_of(from, stride, new);
    let pixels = rows_of(from, stride, new).map(|row| row.as_chunks::<3>().0);
    let how = (flip, planes);
    match &plan.recipe.values {
        Values::Bytes if !flip && !planes => return copy_rows(from, stride, new, out),
        Values::Bytes if !planes => {
            for (target, row) in out.chunks_exact_mut(new.row_bytes()).zip(rows) {
                mirror(row, target);
            }
        }
        Values::Bytes => write(pixels, new, how, |pixel| pixel.map(|byte| [byte]), out),
        Values::Two(table) => write(pixels, new, how, |pixel| table.pixel(pixel), out),
        Values::Four(table) => write(pixels, new, how, |pixel| table.pixel(pixel), out),
    }
    Ok(())
}

/// Write the brightness of rows of pixels as values.
fn written_grey(plan: &Plan<'_>, from: &[u8], stride: usize, new: Shape, out: &mut [u8]) {
    let (flip, values) = (plan.view.flip, &plan.recipe.values);
    let rows = rows_of(from, stride, new).map(|row| row.as_chunks::<3>().0);
    let grey = |[red, green, blue]: [u8; 3]| [luma(red, green, blue); 3];
    match values {
        Values::Bytes => write_grey(rows, new, flip, |pixel| grey(pixel).map(|one| [one]), out),
        Values::Two(table) => write_grey(rows, new, flip, |pixel| table.pixel(grey(pixel)), out),
        Values::Four(table) => write_grey(rows, new, flip, |pixel| table.pixel(grey(pixel)), out),
    }
}
