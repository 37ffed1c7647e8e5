//! A pool of large buffers, which a scan fills in one thread and frees in another. Fresh memory
//! would cost a page fault and the clearing of a page for every 4 KiB, which takes as long as
//! reading the data.

use crate::tuned::{POOL_BYTES, POOLED_BYTES};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use arrow_buffer::Buffer;

/// Each buffer, with the thread that filled it last, because that thread's cache may still have it.
/// The buffer that was freed last is at the end.
struct Pool {
    buffers: Vec<(ThreadId, Vec<u8>)>,
    held: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { buffers: Vec::new(), held: 0 });

impl Pool {
    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let own = thread::current().id();
        let mine = self.buffers.iter().rposition(|(id, b)| *id == own && fits(b, length));
        let any = || self.buffers.iter().position(|(_, b)| fits(b, length));
        let (_, bytes) = self.buffers.remove(mine.or_else(any)?);
        self.held = self.held.saturating_sub(bytes.capacity());
        Some(bytes)
    }

    /// Keep a buffer, and return the buffers that are evicted to make room for it. The least
    /// recently used are evicted first, so that unused sizes do not stay forever.
    fn put(&mut self, filler: ThreadId, bytes: Vec<u8>) -> Vec<(ThreadId, Vec<u8>)> {
        if bytes.capacity() > POOL_BYTES {
            return vec![(filler, bytes)];
        }
        self.held = self.held.saturating_add(bytes.capacity());
        self.buffers.push((filler, bytes));
        let mut num_gone = 0usize;
        while let Some((_, oldest)) = self.buffers.get(num_gone)
            && self.held > POOL_BYTES
        {
            self.held = self.held.saturating_sub(oldest.capacity());
            num_gone = num_gone.saturating_add(1);
        }
        self.buffers.drain(..num_gone).collect()
    }
}

/// Whether a buffer is large enough, but not so large that most of it would be wasted.
fn fits(bytes: &Vec<u8>, length: usize) -> bool {
    bytes.capacity() >= length && bytes.capacity() / 2 <= length
}

/// An empty vector with capacity for `length` bytes; None if out of memory.
pub fn take(length: usize) -> Option<Vec<u8>> {
    let mut bytes = take_any(length)?;
    bytes.clear();
    Some(bytes)
}

/// `length` bytes to be overwritten. They may be zeros or old contents, because clearing them would
/// take as long as filling them.
pub fn take_used(length: usize) -> Option<Vec<u8>> {
    let mut bytes = take_any(length)?;
    bytes.resize(length, 0);
    Some(bytes)
}

fn take_any(length: usize) -> Option<Vec<u8>> {
    // try_lock, because after a fork the lock may belong to a thread that the child does not have.
    if length >= POOLED_BYTES
        && let Ok(mut pool) = POOL.try_lock()
        && let Some(bytes) = pool.take(length)
    {
        return Some(bytes);
    }
    // Sizes are rounded up, so that nearly equal sizes share buffers.
    let step = length.checked_next_power_of_two().map_or(1, |power| power / 8).max(1);
    let rounded =
        if length < POOLED_BYTES { length } else { length.checked_next_multiple_of(step)? };
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(rounded).ok()?;
    ask_for_huge_pages(bytes.as_ptr(), bytes.capacity());
    Some(bytes)
}

/// Ask for pages of 2 MiB. They waste little of a much larger buffer, and need one page-table lookup
/// instead of 512.
pub fn ask_for_huge_pages(memory: *const u8, num_bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let address = memory as usize;
        let start = address.next_multiple_of(HUGE);
        let end = address.saturating_add(num_bytes) / HUGE * HUGE;
        if end.saturating_sub(start) >= 2 * HUGE {
            // SAFETY: the pages are completely inside the caller's memory, and advice changes no byte.
            unsafe {
                libc::madvise(start as *mut _, end.wrapping_sub(start), libc::MADV_HUGEPAGE);
            }
        }
    }
    let _ = (memory, num_bytes);
}

struct Shelved(ThreadId, Vec<u8>);

impl Drop for Shelved {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.1);
        if let Ok(mut pool) = POOL.try_lock() {
            let gone = pool.put(self.0, bytes);
            drop(pool);
            drop(gone);
        }
    }
}

/// The bytes as a buffer whose memory returns to the pool after its last use.
pub fn pooled(bytes: Vec<u8>) -> Buffer {
    if bytes.capacity() < POOLED_BYTES {
        return Buffer::from_vec(bytes);
    }
    let owner = Arc::new(Shelved(thread::current().id(), bytes));
    let (pointer, length) = (NonNull::from(owner.1.as_slice()).cast::<u8>(), owner.1.len());
    // SAFETY: the vector is not touched until its owner is dropped, and the owner keeps it in place.
    unsafe { Buffer::from_custom_allocation(pointer, length, owner) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool { buffers: Vec::new(), held: 0 }
    }

    fn of(capacity: usize) -> Vec<u8> {
        Vec::with_capacity(capacity)
    }

    #[test]
    fn a_buffer_is_reused_from_half_its_capacity_to_all_of_it() {
        let (mut pool, me) = (pool(), thread::current().id());
        assert!(pool.put(me, of(1 << 20)).is_empty());
        assert!(pool.take((1 << 20) + 1).is_none());
        assert!(pool.take((1 << 19) - 1).is_none());
        assert_eq!(pool.take(1 << 19).unwrap().capacity(), 1 << 20);
        assert!(pool.take(1 << 20).is_none());
        assert_eq!(pool.held, 0);
    }

    #[test]
    fn sizes_out_of_use_make_room() {
        let (mut pool, me) = (pool(), thread::current().id());
        for _ in 0..POOL_BYTES / (300 << 10) + 10 {
            drop(pool.put(me, of(300 << 10)));
        }
        assert!(pool.held <= POOL_BYTES);
        let held = pool.held;
        assert_eq!(pool.put(me, of(POOL_BYTES + 1)).len(), 1);
        assert_eq!(pool.held, held, "what does not fit takes no place from others");
        assert!(!pool.put(me, of(2 << 20)).is_empty());
        assert_eq!(pool.take(2 << 20).unwrap().capacity(), 2 << 20);
        let counted: usize = pool.buffers.iter().map(|(_, b)| b.capacity()).sum();
        assert_eq!(pool.held, counted);
    }
}
