//! Decodes baseline JPEGs by the parts of libjpeg-turbo, with the Huffman codes decoded by [`Scan`].
//!
//! It needs `unsafe` because of `jpeg_parts.c`: a handle is made and freed here, pointers are to data that
//! outlives the call, and the callbacks access only their arguments.

use std::any::Any;
use std::ffi::{c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use super::Shape;
use super::crop::Region;
use penstock_codecs::jpeg_scan::bits::Block;
use penstock_codecs::jpeg_scan::codes::Spec;
use penstock_codecs::jpeg_scan::{Component, Layout, MOST_BLOCKS, Ready, Scan, Tables, Wanted};

const MOST_COMPONENTS: usize = 4;

// The structs below mirror those in jpeg_parts.c.

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Facts {
    width: c_uint,
    height: c_uint,
    components: c_uint,
    across: c_uint,
    down: c_uint,
}

#[repr(C)]
struct ScanComponent {
    first_counts: *const [u8; 16],
    first_symbols: *const [u8; 256],
    other_counts: *const [u8; 16],
    other_symbols: *const [u8; 256],
    is_wanted: c_int,
    scaled_size: c_int,
}

#[repr(C)]
struct ScanFacts {
    components: [ScanComponent; MOST_COMPONENTS],
    block_components: [c_int; MOST_BLOCKS],
    num_components: c_uint,
    num_blocks: c_uint,
    interval: c_uint,
    columns: c_uint,
    rows: c_uint,
    first_column: c_uint,
    last_column: c_uint,
    bytes: *const u8,
    num_bytes: usize,
}

#[repr(C)]
struct Request {
    part: c_uint,
    left: c_uint,
    top: c_uint,
    width: c_uint,
    height: c_uint,
    is_region: c_uint,
    channels: c_uint,
    is_quick: c_uint,
    pixels: *mut u8,
    row_bytes: usize,
    decoder: *mut c_void,
    begin: unsafe extern "C" fn(*mut c_void, *const ScanFacts) -> c_int,
    unit: unsafe extern "C" fn(*mut c_void, *const *mut Block) -> isize,
}

unsafe extern "C" {
    fn penstock_jpeg_new() -> *mut c_void;
    fn penstock_parts_free(jpeg: *mut c_void);
    fn penstock_jpeg_begin(
        jpeg: *mut c_void,
        bytes: *const u8,
        num_bytes: usize,
        facts: *mut Facts,
    ) -> c_int;
    fn penstock_jpeg_decode(jpeg: *mut c_void, request: *const Request) -> c_int;
}

struct Handle(NonNull<c_void>);

// SAFETY: a handle is not tied to a thread; `&mut` ensures that only one uses it at a time.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by penstock_jpeg_new, and freed only here.
        unsafe { penstock_parts_free(self.0.as_ptr()) }
    }
}

/// Decodes baseline JPEGs one after another, and keeps reusable state.
pub struct Parts {
    handle: Handle,
    tables: Tables,
    ready: Ready,
}

impl Parts {
    /// None if memory runs out.
    pub fn new() -> Option<Self> {
        // SAFETY: the function has no preconditions; its result is checked for null.
        let handle = Handle(NonNull::new(unsafe { penstock_jpeg_new() })?);
        Some(Self { handle, tables: Tables::default(), ready: Ready::default() })
    }

    /// Read the header. None if it is not the header of a baseline JPEG of this size in one scan, or
    /// anything is odd.
    pub fn begin<'a>(&'a mut self, bytes: &'a [u8], size: (u32, u32)) -> Option<Begun<'a>> {
        let mut facts = Facts::default();
        let handle = self.handle.0.as_ptr();
        // SAFETY: a live handle; pointer and length of a slice. The handle does not use the slice after
        // `Begun` is dropped, because it reads nothing before the next call of this function.
        let fits =
            unsafe { penstock_jpeg_begin(handle, bytes.as_ptr(), bytes.len(), &raw mut facts) };
        let fits = fits != 0 && (facts.width, facts.height) == size;
        fits.then_some(Begun { parts: self, bytes, facts })
    }
}

/// A JPEG whose header was read.
pub struct Begun<'a> {
    parts: &'a mut Parts,
    bytes: &'a [u8],
    facts: Facts,
}

impl Begun<'_> {
    /// The columns of pixels that are coded together: a region can begin only at a multiple of them. None
    /// if they are not known here.
    pub fn block_columns(&self) -> Option<u32> {
        match (self.facts.components, self.facts.across, self.facts.down) {
            (1, ..) | (3, 1, 1 | 2 | 4) => Some(8),
            (3, 2, 1 | 2) => Some(16),
            (3, 4, 1) => Some(32),
            _ => None,
        }
    }

    /// The number of components.
    pub fn components(&self) -> u32 {
        self.facts.components
    }

    /// Decode it at 1/`part` of its size, or the `region` of that, into `pixels` of this shape, with the
    /// accurate or the fast transform. None if anything is odd; `pixels` are then undefined.
    pub fn decode(
        self,
        shape: Shape,
        part: u8,
        region: Option<Region>,
        is_quick: bool,
        pixels: &mut [u8],
    ) -> Option<()> {
        let cannot_begin = region.is_some() && self.block_columns().is_none();
        if shape.bytes().ok()? != pixels.len() || cannot_begin {
            return None;
        }
        let Parts { handle, tables, ready } = self.parts;
        let mut decoder =
            Decoder { bytes: self.bytes, tables, ready: Some(ready), scan: None, panic: None };
        let decoder: *mut Decoder<'_> = &raw mut decoder;
        let request = Request {
            part: part.into(),
            left: region.map_or(0, |region| region.left),
            top: region.map_or(0, |region| region.top),
            width: shape.width,
            height: shape.height,
            is_region: region.is_some().into(),
            channels: shape.channels.into(),
            is_quick: is_quick.into(),
            pixels: pixels.as_mut_ptr(),
            row_bytes: shape.row_bytes(),
            decoder: decoder.cast(),
            begin,
            unit,
        };
        // SAFETY: a live handle whose bytes still exist. `pixels` has enough space for the rows in the
        // request, which the C side compares with the image. The decoder lives until here, and only its
        // functions access it.
        let done = unsafe { penstock_jpeg_decode(handle.0.as_ptr(), &raw const request) };
        // SAFETY: nothing else refers to it any more.
        let decoder = unsafe { &mut *decoder };
        if let Some(panic) = decoder.panic.take() {
            resume_unwind(panic);
        }
        (done != 0 && decoder.scan.is_some()).then_some(())
    }
}

/// The state of the callbacks.
struct Decoder<'a> {
    bytes: &'a [u8],
    tables: &'a mut Tables,
    ready: Option<&'a mut Ready>,
    /// None before it begins, and after an odd part.
    scan: Option<Scan<'a>>,
    /// The panic of a callback, resumed after C has returned, because a panic that reaches C ends the
    /// process.
    panic: Option<Box<dyn Any + Send>>,
}

impl Decoder<'_> {
    /// The result of `step`; None if it panics.
    fn guarded<T>(&mut self, step: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(|| step(self))) {
            Ok(done) => done,
            Err(panic) => {
                self.scan = None;
                self.panic = Some(panic);
                None
            }
        }
    }

    /// None if the scan cannot be decoded here.
    ///
    /// # Safety
    /// The pointers in `facts` are valid, and its bytes are the last `num_bytes` bytes of the
    /// file.
    unsafe fn begin(&mut self, facts: &ScanFacts) -> Option<()> {
        let start = self.bytes.len().checked_sub(facts.num_bytes)?;
        let source = self.bytes.get(start..)?;
        if source.as_ptr() != facts.bytes {
            return None;
        }
        let mut components = Vec::with_capacity(MOST_COMPONENTS);
        for component in facts.components.get(..facts.num_components as usize)? {
            // SAFETY: as the caller says.
            let [firsts, others]: [Spec; 2] = unsafe {
                [
                    (*component.first_counts, *component.first_symbols),
                    (*component.other_counts, *component.other_symbols),
                ]
            };
            let wanted = match (component.is_wanted, component.scaled_size) {
                (0, _) => Wanted::Nothing,
                (_, 1) => Wanted::First,
                _ => Wanted::All,
            };
            let (firsts, others) = (self.tables.firsts(&firsts)?, self.tables.others(&others)?);
            components.push(Component { firsts, others, wanted });
        }
        let blocks = facts.block_components.get(..facts.num_blocks as usize)?;
        let layout = Layout {
            components,
            blocks: blocks.iter().map(|block| block.cast_unsigned() as usize).collect(),
            interval: facts.interval,
            columns: facts.columns,
            rows: facts.rows,
            wanted: (facts.first_column, facts.last_column),
        };
        self.scan = Some(Scan::new(layout, source, self.ready.take()?));
        Some(())
    }

    /// Decode a unit; after the last one, returns the bytes of the scan.
    ///
    /// # Safety
    /// `blocks` is null, or points to one pointer per block of a unit; the blocks are
    /// consecutive.
    unsafe fn unit(&mut self, blocks: *const *mut Block) -> Option<isize> {
        let scan = self.scan.as_mut()?;
        let blocks = if blocks.is_null() {
            None
        } else {
            // SAFETY: as the caller says.
            Some(unsafe { std::slice::from_raw_parts_mut(*blocks, scan.num_blocks()) })
        };
        match scan.unit(blocks) {
            Ok(end) => isize::try_from(end.unwrap_or(0)).ok(),
            Err(_) => {
                self.scan = None;
                None
            }
        }
    }
}

/// # Safety
/// See [`Decoder::begin`]; `decoder` points to a [`Decoder`].
unsafe extern "C" fn begin(decoder: *mut c_void, facts: *const ScanFacts) -> c_int {
    // SAFETY: as the caller says.
    let (decoder, facts) = unsafe { (&mut *decoder.cast::<Decoder<'_>>(), &*facts) };
    // SAFETY: as the caller says.
    decoder.guarded(|decoder| unsafe { decoder.begin(facts) }).is_some().into()
}

/// # Safety
/// See [`Decoder::unit`]; `decoder` points to a [`Decoder`].
unsafe extern "C" fn unit(decoder: *mut c_void, blocks: *const *mut Block) -> isize {
    // SAFETY: as the caller says.
    let decoder = unsafe { &mut *decoder.cast::<Decoder<'_>>() };
    // SAFETY: as the caller says.
    decoder.guarded(|decoder| unsafe { decoder.unit(blocks) }).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_leave_a_function_that_c_calls() {
        let (mut tables, mut ready) = (Tables::default(), Ready::default());
        let mut decoder = Decoder {
            bytes: &[],
            tables: &mut tables,
            ready: Some(&mut ready),
            scan: None,
            panic: None,
        };
        let done: Option<()> = decoder.guarded(|_| panic!("a fault of the decoder"));
        assert_eq!(done, None);
        let panic = decoder.panic.take().unwrap();
        assert_eq!(panic.downcast_ref(), Some(&"a fault of the decoder"));
        assert_eq!(decoder.guarded(|_| Some(1)), Some(1));
    }
}
