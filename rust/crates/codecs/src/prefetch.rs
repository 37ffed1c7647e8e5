//! A hint to the CPU that bytes will be read soon.
//!
//! The only `unsafe` here is for the instruction, which reads nothing and cannot fault.

/// Load the cache lines of `length` bytes from `at` on, as far as the slice reaches.
#[inline(always)]
pub fn prefetch(bytes: &[u8], at: usize, length: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64;
        let end = at.saturating_add(length).min(bytes.len());
        let mut place = at;
        while place < end {
            // SAFETY: the address is within the slice, and the instruction is a hint.
            unsafe { _mm_prefetch(bytes.as_ptr().wrapping_add(place).cast::<i8>(), _MM_HINT_T0) };
            place = place.wrapping_add(LINE);
        }
    }
    let _ = (bytes, at, length);
}
