//! Inflates deflate data that is completely in memory, by libdeflate. The safe interface of libdeflate
//! requires zeroed output, and does not report how much input was used.

use std::ptr::NonNull;

use libdeflate_sys as libdeflate;

use crate::wire::{Fault, FaultKind};

/// Deflate cannot expand a byte to more than this: 258 bytes for two bits.
pub const MAX_RATIO: usize = 1032;

/// Inflates deflate data that is completely in memory and whose plain size is known.
pub struct WholeInflate {
    state: NonNull<libdeflate::libdeflate_decompressor>,
}

// SAFETY: the state is plain memory that only this value owns.
unsafe impl Send for WholeInflate {}

impl WholeInflate {
    /// Ready for any number of streams.
    pub fn new() -> Result<Self, Fault> {
        // SAFETY: no preconditions; the result is checked.
        let state = unsafe { libdeflate::libdeflate_alloc_decompressor() };
        NonNull::new(state).map(|state| Self { state }).ok_or_else(|| no_memory(0))
    }

    /// Append the plain bytes of `input`, which must be exactly one deflate stream of exactly
    /// `plain_bytes`. `out` must have enough capacity.
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

/// The fault if memory runs out.
#[cold]
pub fn no_memory(bytes: usize) -> Fault {
    Fault::new(FaultKind::Limit, 0, format!("no memory for {bytes} bytes"))
}
