//! Copies to memory that is too large for a cache. Non-temporal stores do not load the cache lines that
//! they overwrite, which saves a third of the memory traffic.

use crate::tuned::UNCACHED_BYTES;

/// Copy a value to a place of the same length. If the lengths differ, nothing is copied.
#[inline]
pub fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() != from.len() {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if from.len() >= UNCACHED_BYTES {
        return streamed(to, from);
    }
    to.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
fn streamed(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    // SAFETY: any 16 bytes are a valid vector, and vice versa.
    let (head, body, tail) = unsafe { to.align_to_mut::<__m128i>() };
    let (first, rest) = from.split_at(head.len().min(from.len()));
    let (vectors, last) = rest.as_chunks::<16>();
    head.copy_from_slice(first);
    for (to, from) in body.iter_mut().zip(vectors) {
        // SAFETY: SSE2 is part of x86-64; 16 bytes are read from `from` and written to `to`, which is aligned.
        unsafe { _mm_stream_si128(to, _mm_loadu_si128(from.as_ptr().cast())) };
    }
    // SAFETY: as above. The fence makes the copy visible to threads that learn of its end.
    unsafe { _mm_sfence() };
    tail.copy_from_slice(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_same_at_any_place_and_of_any_length() {
        let from: Vec<u8> = (0..UNCACHED_BYTES + 100).map(|n| (n / 3) as u8).collect();
        for (start, length) in (0..20)
            .flat_map(|start| [0, 1, 31, UNCACHED_BYTES, UNCACHED_BYTES + 33].map(|l| (start, l)))
        {
            let mut room = vec![7; length + 40];
            copy(&mut room[start..start + length], &from[start..start + length]);
            assert_eq!(room[start..start + length], from[start..start + length]);
            assert!(room[..start].iter().chain(&room[start + length..]).all(|&byte| byte == 7));
        }
    }
}
