//! Deflate data in and plain bytes out, by zlib-rs (in pieces) and libdeflate (at once).
//!
//! The only file of the kernels with `unsafe`: the safe interface of zlib-rs has neither block
//! borders nor a start between two bytes, which seek points need, and that of libdeflate wants its
//! output zeroed first and does not say how much input it took.

use std::ffi::CStr;
use std::ptr::NonNull;

use libdeflate_sys as libdeflate;
use libz_rs_sys as zlib;

use crate::wire::{Fault, FaultKind};

/// How far back deflate data may point, and so the most that a seek point must keep.
pub const WINDOW_BYTES: usize = 32 << 10;

/// Deflate cannot make more than this of a byte: 258 bytes for two bits.
pub const MAX_RATIO: usize = 1032;

/// Why inflating paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The input is used up or the output is full.
    Full,
    /// Between two blocks; so many bits of the input taken belong to the next block.
    Border {
        /// Fewer than 64.
        unused_bits: u32,
    },
    /// The last block has ended.
    End,
    /// The data breaks deflate's rules.
    Broken(&'static str),
}

/// What one call did.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Input bytes taken.
    pub consumed: usize,
    /// Plain bytes added to the output.
    pub produced: usize,
    /// Why it paused.
    pub pause: Pause,
}

/// A raw deflate stream, inflated in pieces.
pub struct RawInflate {
    stream: Box<zlib::z_stream>,
}

// SAFETY: the stream owns its state, and nothing else points into it between calls.
unsafe impl Send for RawInflate {}
// SAFETY: `&RawInflate` gives only `window`, which reads.
unsafe impl Sync for RawInflate {}

impl RawInflate {
    /// At the start of a deflate stream.
    pub fn new() -> Result<Self, Fault> {
        let mut stream = Box::new(zlib::z_stream::default());
        let size = size_of::<zlib::z_stream>() as i32;
        // SAFETY: the stream is a valid default; version and size are the library's own.
        let code = unsafe { zlib::inflateInit2_(&mut *stream, -15, zlib::zlibVersion(), size) };
        if code != zlib::Z_OK {
            return Err(no_memory(0));
        }
        Ok(Self { stream })
    }

    /// Back to the start of a deflate stream, keeping the memory.
    pub fn reset(&mut self) {
        // SAFETY: the stream was initialised in `new`.
        unsafe {
            zlib::inflateReset(&mut *self.stream);
        }
    }

    /// Stand before a block in the middle of a stream, whose plain bytes before it are `window`.
    pub fn start_inside(&mut self, window: &[u8]) {
        self.reset();
        let window = window.last_chunk::<WINDOW_BYTES>().map_or(window, |last| last.as_slice());
        // SAFETY: the stream was initialised in `new`; the window is a valid slice of at most
        // 32 KiB. The call cannot fail on a raw stream.
        unsafe {
            zlib::inflateSetDictionary(&mut *self.stream, window.as_ptr(), window.len() as u32);
        }
    }

    /// Begin with the low `num_bits` (fewer than 8) of `bits`, from a byte already taken.
    pub fn prime(&mut self, num_bits: u32, bits: u8) {
        let num_bits = num_bits.min(7) as i32;
        let value = i32::from(bits) & ((1 << num_bits) - 1);
        // SAFETY: the stream was initialised in `new`. The call cannot fail before other input.
        unsafe {
            zlib::inflatePrime(&mut *self.stream, num_bits, value);
        }
    }

    /// The last plain bytes, as many as the next block may point back to.
    pub fn window(&self) -> Vec<u8> {
        let mut window = vec![0; WINDOW_BYTES];
        let mut length = 0;
        // SAFETY: the stream was initialised in `new`; at most 32 KiB are written.
        unsafe {
            zlib::inflateGetDictionary(&*self.stream, window.as_mut_ptr(), &mut length);
        }
        window.truncate(length as usize);
        window
    }

    /// Inflate from the front of `input` into the spare capacity of `out`, at most `room` bytes;
    /// on demand only up to the next border between blocks.
    pub fn inflate(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        room: usize,
        to_border: bool,
    ) -> Progress {
        let offered = input.len().min(u32::MAX as usize);
        let before = out.len();
        let spare = out.spare_capacity_mut();
        let room = room.min(spare.len()).min(u32::MAX as usize);
        let flush = if to_border { zlib::Z_BLOCK } else { zlib::Z_NO_FLUSH };
        let stream = &mut *self.stream;
        stream.next_in = input.as_ptr();
        stream.avail_in = offered as u32;
        stream.next_out = spare.as_mut_ptr().cast();
        stream.avail_out = room as u32;
        // SAFETY: both pointers are valid for the lengths given, and inflate only writes output.
        let code = unsafe { zlib::inflate(stream, flush) };
        let consumed = offered.wrapping_sub(stream.avail_in as usize);
        let produced = room.wrapping_sub(stream.avail_out as usize);
        stream.next_in = std::ptr::null();
        stream.next_out = std::ptr::null_mut();
        // SAFETY: inflate wrote that many bytes from the old length on, within the capacity.
        unsafe { out.set_len(before.wrapping_add(produced)) };
        let pause = match code {
            zlib::Z_STREAM_END => Pause::End,
            zlib::Z_OK if self.at_border() => {
                Pause::Border { unused_bits: (self.stream.data_type & 63) as u32 }
            }
            zlib::Z_OK | zlib::Z_BUF_ERROR => Pause::Full,
            zlib::Z_MEM_ERROR => Pause::Broken("no memory to inflate"),
            _ => Pause::Broken(self.message()),
        };
        Progress { consumed, produced, pause }
    }

    /// Between two blocks, and the one before was not the last.
    fn at_border(&self) -> bool {
        self.stream.data_type & (128 | 64) == 128
    }

    fn message(&self) -> &'static str {
        if self.stream.msg.is_null() {
            return "invalid deflate data";
        }
        // SAFETY: the library's messages are static C strings.
        unsafe { CStr::from_ptr(self.stream.msg) }.to_str().unwrap_or("invalid deflate data")
    }
}

impl Drop for RawInflate {
    fn drop(&mut self) {
        // SAFETY: the stream was initialised in `new` and is not used again.
        unsafe {
            zlib::inflateEnd(&mut *self.stream);
        }
    }
}

/// Inflates deflate data that is wholly here and whose plain size is known.
pub struct WholeInflate {
    state: NonNull<libdeflate::libdeflate_decompressor>,
}

// SAFETY: the state is plain memory that this value alone owns.
unsafe impl Send for WholeInflate {}

impl WholeInflate {
    /// Ready for any number of streams.
    pub fn new() -> Result<Self, Fault> {
        // SAFETY: no preconditions; the result is checked.
        let state = unsafe { libdeflate::libdeflate_alloc_decompressor() };
        NonNull::new(state).map(|state| Self { state }).ok_or_else(|| no_memory(0))
    }

    /// Append the plain bytes of `input`, which must be one deflate stream, no more and no less,
    /// of exactly `plain_bytes`. `out` must have the room.
    pub fn inflate(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        plain_bytes: usize,
    ) -> Result<(), &'static str> {
        let before = out.len();
        let spare = out.spare_capacity_mut();
        if spare.len() < plain_bytes {
            return Err("no room for the plain bytes");
        }
        let (mut consumed, mut produced) = (0, 0);
        // SAFETY: both pointers are valid for the lengths given, and only output is written.
        let result = unsafe {
            libdeflate::libdeflate_deflate_decompress_ex(
                self.state.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                spare.as_mut_ptr().cast(),
                plain_bytes,
                &mut consumed,
                &mut produced,
            )
        };
        if result == libdeflate::libdeflate_result_LIBDEFLATE_INSUFFICIENT_SPACE {
            return Err("holds more than its stated length");
        }
        if result != libdeflate::libdeflate_result_LIBDEFLATE_SUCCESS {
            return Err("invalid deflate data");
        }
        if produced != plain_bytes {
            return Err("holds less than its stated length");
        }
        if consumed != input.len() {
            return Err("the deflate data ends before the member does");
        }
        // SAFETY: libdeflate reported success and wrote exactly that many bytes.
        unsafe { out.set_len(before.wrapping_add(produced)) };
        Ok(())
    }
}

impl Drop for WholeInflate {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once.
        unsafe { libdeflate::libdeflate_free_decompressor(self.state.as_ptr()) }
    }
}

/// Room for so many bytes, uninitialised, or a fault instead of an abort.
pub fn reserve(out: &mut Vec<u8>, bytes: usize) -> Result<(), Fault> {
    out.try_reserve_exact(bytes).map_err(|_| no_memory(bytes))
}

/// The fault of having no memory for so many bytes.
#[cold]
pub fn no_memory(bytes: usize) -> Fault {
    Fault::new(FaultKind::Limit, 0, format!("no memory for {bytes} bytes"))
}
