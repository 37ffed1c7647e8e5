//! Decodes JPEG by libjpeg-turbo: by its parts if possible, otherwise by TurboJPEG. It needs `unsafe`
//! because libjpeg-turbo is a C library: a handle is made and destroyed here, and slices are passed as
//! pointers with their lengths. A fault inside the library is returned as a code; its long jumps end within
//! the call.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use turbojpeg_sys as tj;

use super::crop::Region;
use super::jpeg_parts::{self, Parts};
use super::shrink::shrink;
use super::{Shape, damaged, zeroed};
use crate::wire::image_head::Head;
use crate::wire::{Fault, FaultKind};

/// A progressive JPEG of a few bytes can request very many passes over its whole picture, so the total work
/// of its scans is limited.
const SCANNED_PIXELS: u64 = 1 << 33;
const FEWEST_SCANS: u64 = 32;
const MOST_SCANS: u64 = 500;

struct Handle(NonNull<std::ffi::c_void>);

// SAFETY: a handle is not tied to a thread; `&mut` ensures that only one uses it at a time.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by tj3Init, and destroyed only here.
        unsafe { tj::tj3Destroy(self.0.as_ptr()) }
    }
}

impl Handle {
    fn new(kind: tj::TJINIT) -> Result<Self, Fault> {
        // SAFETY: any kind is valid; null is checked.
        let handle = unsafe { tj::tj3Init(kind as c_int) };
        NonNull::new(handle.cast()).map(Self).ok_or_else(|| damaged("no memory for a JPEG codec"))
    }

    fn raw(&self) -> tj::tjhandle {
        self.0.as_ptr().cast()
    }

    fn set(&mut self, what: tj::TJPARAM, value: c_int) -> Result<(), Fault> {
        // SAFETY: a live handle.
        self.done(unsafe { tj::tj3Set(self.raw(), what as c_int, value) })
    }

    fn get(&self, what: tj::TJPARAM) -> c_int {
        // SAFETY: a live handle.
        unsafe { tj::tj3Get(self.raw(), what as c_int) }
    }

    fn done(&self, code: c_int) -> Result<(), Fault> {
        if code == 0 { Ok(()) } else { Err(self.fault()) }
    }

    /// The same, with warnings allowed.
    fn done_or_warned(&self, code: c_int, allow_damaged: bool) -> Result<(), Fault> {
        // SAFETY: a live handle.
        let warned =
            || unsafe { tj::tj3GetErrorCode(self.raw()) } == tj::TJERR_TJERR_WARNING as c_int;
        if code == 0 || (allow_damaged && warned()) { Ok(()) } else { Err(self.fault()) }
    }

    #[cold]
    fn fault(&self) -> Fault {
        // SAFETY: a live handle, whose text stays until the next call with it.
        let text = unsafe {
            let text = tj::tj3GetErrorStr(self.raw());
            if text.is_null() { c"unknown".to_owned() } else { CStr::from_ptr(text).to_owned() }
        };
        let text = text.to_string_lossy();
        let lower = text.to_ascii_lowercase();
        let kind = if lower.contains("premature end") {
            FaultKind::Truncated
        } else if lower.contains("scans") {
            FaultKind::Limit
        } else {
            FaultKind::Image
        };
        Fault::new(kind, 0, format!("a damaged JPEG: {text}"))
    }
}

/// The output that decoding has to give.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// The shape of the pixels: one channel is grey, three are RGB, four are the inks as stored.
    pub shape: Shape,
    /// 1/`part` of each side: 1, 2, 4 or 8.
    pub part: u8,
    /// Whether warnings are not faults.
    pub allow_damaged: bool,
}

/// Decodes JPEGs: usual ones by [`Parts`], others by TurboJPEG.
pub struct Decompressor {
    parts: Option<Parts>,
}

impl Default for Decompressor {
    fn default() -> Self {
        Self::new()
    }
}

impl Decompressor {
    /// A reusable decoder.
    pub fn new() -> Self {
        Self { parts: Parts::new() }
    }

    /// A decoder that uses TurboJPEG for everything, for comparison.
    pub fn without_parts() -> Self {
        Self { parts: None }
    }

    /// Decode into `pixels`.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        head: &Head,
        wanted: &Wanted,
        pixels: &mut [u8],
    ) -> Result<(), Fault> {
        self.begin(bytes, head, wanted.allow_damaged)?.decode(
            wanted.shape,
            wanted.part,
            None,
            pixels,
        )
    }

    /// Read the header; the head is already known.
    pub fn begin<'a>(
        &'a mut self,
        bytes: &'a [u8],
        head: &Head,
        allow_damaged: bool,
    ) -> Result<Begun<'a>, Fault> {
        let (head, size) = (*head, (head.width, head.height));
        let parts = self.parts.as_mut().and_then(|parts| parts.begin(bytes, size));
        let whole =
            if parts.is_some() { None } else { Some(Whole::begin(bytes, &head, allow_damaged)?) };
        Ok(Begun { parts, whole, bytes, head, allow_damaged })
    }
}

/// A JPEG whose header was read.
pub struct Begun<'a> {
    parts: Option<jpeg_parts::Begun<'a>>,
    /// Set if it is not decoded by parts.
    whole: Option<Whole<'a>>,
    bytes: &'a [u8],
    head: Head,
    allow_damaged: bool,
}

impl Begun<'_> {
    /// The columns of pixels that are coded together: a region can begin only at a multiple of them. None
    /// if only the whole image can be decoded.
    pub fn block_columns(&self) -> Option<u32> {
        match (&self.parts, &self.whole) {
            (Some(parts), _) => parts.block_columns(),
            (None, whole) => whole.as_ref()?.block_columns(),
        }
    }

    /// Decode it at 1/`part` of its size, or the region of that, into `pixels` of this shape. Rows below
    /// the region are not read, so damage in them is not found.
    pub fn decode(
        self,
        shape: Shape,
        part: u8,
        region: Option<Region>,
        pixels: &mut [u8],
    ) -> Result<(), Fault> {
        let whole = |side: u32| side.div_ceil(u32::from(part));
        let expected = match region {
            Some(region) => (region.width, region.height),
            None => (whole(self.head.width), whole(self.head.height)),
        };
        if pixels.len() != shape.bytes()? || (shape.width, shape.height) != expected {
            return Err(damaged("no room for the pixels of a JPEG"));
        }
        if let Some(parts) = self.parts
            && parts.decode(shape, part, region, false, pixels).is_some()
        {
            return Ok(());
        }
        let whole = match self.whole {
            Some(whole) => whole,
            None => Whole::begin(self.bytes, &self.head, self.allow_damaged)?,
        };
        whole.decode(shape, part, region, pixels)
    }
}

/// A JPEG for TurboJPEG. Each has its own handle, because the library would keep the tables of one file for
/// files without tables.
struct Whole<'a> {
    handle: Handle,
    bytes: &'a [u8],
    size: (u32, u32),
    allow_damaged: bool,
}

impl<'a> Whole<'a> {
    fn begin(bytes: &'a [u8], head: &Head, allow_damaged: bool) -> Result<Self, Fault> {
        let mut handle = Handle::new(tj::TJINIT_TJINIT_DECOMPRESS)?;
        let scans = (SCANNED_PIXELS / head.pixels().max(1)).clamp(FEWEST_SCANS, MOST_SCANS);
        handle.set(tj::TJPARAM_TJPARAM_STOPONWARNING, c_int::from(!allow_damaged))?;
        handle.set(tj::TJPARAM_TJPARAM_SCANLIMIT, scans as c_int)?;
        // SAFETY: pointer and length of a slice.
        let code =
            unsafe { tj::tj3DecompressHeader(handle.raw(), bytes.as_ptr(), bytes.len() as _) };
        handle.done_or_warned(code, allow_damaged)?;
        let size =
            (handle.get(tj::TJPARAM_TJPARAM_JPEGWIDTH), handle.get(tj::TJPARAM_TJPARAM_JPEGHEIGHT));
        if code != 0 && size.0 <= 0 {
            return Err(damaged("a JPEG that ends before its pixels"));
        }
        if size != (head.width as c_int, head.height as c_int) {
            let message = format!(
                "a JPEG that states two sizes, one of them {} x {} pixels",
                head.width, head.height
            );
            return Err(damaged(message));
        }
        Ok(Self { handle, bytes, size: (head.width, head.height), allow_damaged })
    }

    fn block_columns(&self) -> Option<u32> {
        if self.is_lossless() {
            return None;
        }
        match self.handle.get(tj::TJPARAM_TJPARAM_SUBSAMP) {
            tj::TJSAMP_TJSAMP_444
            | tj::TJSAMP_TJSAMP_GRAY
            | tj::TJSAMP_TJSAMP_440
            | tj::TJSAMP_TJSAMP_441 => Some(8),
            tj::TJSAMP_TJSAMP_422 | tj::TJSAMP_TJSAMP_420 => Some(16),
            tj::TJSAMP_TJSAMP_411 => Some(32),
            _ => None,
        }
    }

    fn is_lossless(&self) -> bool {
        self.handle.get(tj::TJPARAM_TJPARAM_LOSSLESS) != 0
    }

    /// `shape` is the shape of the region or of the scaled image.
    fn decode(
        self,
        shape: Shape,
        part: u8,
        region: Option<Region>,
        pixels: &mut [u8],
    ) -> Result<(), Fault> {
        if part == 1 || !self.is_lossless() {
            return self.decode_part(shape, part, region, pixels);
        }
        // Whatever part was requested, the library would write all pixels of such a file.
        let whole = Shape { width: self.size.0, height: self.size.1, ..shape };
        let (mut all, mut shrunk) = (zeroed(whole.bytes()?)?, Vec::new());
        self.decode_part(whole, 1, None, &mut all)?;
        shrink(&all, whole, (shape.width, shape.height), &mut shrunk)?;
        pixels.copy_from_slice(shrunk.get(..pixels.len()).ok_or_else(|| damaged("no pixels"))?);
        Ok(())
    }

    fn decode_part(
        self,
        shape: Shape,
        part: u8,
        region: Option<Region>,
        pixels: &mut [u8],
    ) -> Result<(), Fault> {
        let format = match shape.channels {
            1 => tj::TJPF_TJPF_GRAY,
            3 => tj::TJPF_TJPF_RGB,
            _ => tj::TJPF_TJPF_CMYK,
        };
        let [x, y, w, h] = region.map_or([0; 4], |region| {
            [region.left, region.top, region.width, region.height].map(|side| side as c_int)
        });
        let handle = self.handle;
        let factor = tj::tjscalingfactor { num: 1, denom: c_int::from(part) };
        // SAFETY: a live handle.
        handle.done(unsafe { tj::tj3SetScalingFactor(handle.raw(), factor) })?;
        // SAFETY: a live handle that has read a header; it refuses a region outside the image.
        let code = unsafe { tj::tj3SetCroppingRegion(handle.raw(), tj::tjregion { x, y, w, h }) };
        handle.done(code)?;
        // SAFETY: `pixels` has enough space for the rows of the region, or for the header's size, which is
        // scaled here only if the library scales it too. The library reads the header again, from the same
        // bytes.
        let code = unsafe {
            tj::tj3Decompress8(
                handle.raw(),
                self.bytes.as_ptr(),
                self.bytes.len() as _,
                pixels.as_mut_ptr(),
                shape.row_bytes() as c_int,
                format as c_int,
            )
        };
        handle.done_or_warned(code, self.allow_damaged)
    }
}

/// Encodes JPEGs.
pub struct Compressor {
    handle: Handle,
    room: Vec<u8>,
}

impl Compressor {
    /// A reusable encoder.
    pub fn new() -> Result<Self, Fault> {
        Ok(Self { handle: Handle::new(tj::TJINIT_TJINIT_COMPRESS)?, room: Vec::new() })
    }

    /// Encode an image of one or three channels. Colour is subsampled in both directions, as is usual.
    pub fn encode(&mut self, pixels: &[u8], shape: Shape, quality: u8) -> Result<Vec<u8>, Fault> {
        const MOST: u32 = 65_500;
        let (width, height) = (shape.width, shape.height);
        if width > MOST || height > MOST {
            let message = format!("{width} x {height} pixels: JPEG holds at most {MOST} a side");
            return Err(Fault::new(FaultKind::Schema, 0, message));
        }
        let grey = shape.channels == 1;
        let (format, sampling) = if grey {
            (tj::TJPF_TJPF_GRAY, tj::TJSAMP_TJSAMP_GRAY)
        } else {
            (tj::TJPF_TJPF_RGB, tj::TJSAMP_TJSAMP_420)
        };
        if pixels.len() != shape.bytes()? || !(grey || shape.channels == 3) {
            return Err(damaged("the pixels do not have the given shape"));
        }
        let (width, height) = (width as c_int, height as c_int);
        // SAFETY: numbers in, a number out.
        let most = unsafe { tj::tj3JPEGBufSize(width, height, sampling as c_int) } as usize;
        if most == 0 {
            return Err(damaged(format!("no JPEG of {width} x {height} pixels")));
        }
        let room = super::fit(&mut self.room, most)?;
        let handle = &mut self.handle;
        handle.set(tj::TJPARAM_TJPARAM_NOREALLOC, 1)?;
        handle.set(tj::TJPARAM_TJPARAM_QUALITY, c_int::from(quality.clamp(1, 100)))?;
        handle.set(tj::TJPARAM_TJPARAM_SUBSAMP, sampling as c_int)?;
        let mut target = room.as_mut_ptr();
        let mut length = most as _;
        // SAFETY: `pixels` has as many bytes as the shape says. The target is as large as the library may
        // need, and is not reallocated.
        let code = unsafe {
            tj::tj3Compress8(
                handle.raw(),
                pixels.as_ptr(),
                width,
                shape.row_bytes() as c_int,
                height,
                format as c_int,
                &raw mut target,
                &raw mut length,
            )
        };
        handle.done(code)?;
        Ok(room.get(..length as usize).unwrap_or_default().to_vec())
    }
}
