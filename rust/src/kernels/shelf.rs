//! Large buffers, used again: a scan fills one after another in one thread, and lets go of them in
//! another. Fresh memory would cost a page fault and a cleared page for every 4 KiB of them, which
//! is as much as reading costs.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use arrow_buffer::Buffer;

/// Buffers below this size are the allocator's business.
const SMALLEST: usize = 128 << 10;
/// What the shelf holds at most.
const SHELF_BYTES: usize = 56 << 20;

/// Each with the thread that filled it last, in whose cache it may still be.
static SHELF: Mutex<Vec<(ThreadId, Vec<u8>)>> = Mutex::new(Vec::new());

/// An empty vector with room for `length` bytes, or None where there is no memory for them.
pub fn take(length: usize) -> Option<Vec<u8>> {
    let mut bytes = take_any(length)?;
    bytes.clear();
    Some(bytes)
}

/// `length` bytes of any values, all to be overwritten: zeros, or what stood there before. Clearing
/// them would cost as much as filling them.
pub fn take_used(length: usize) -> Option<Vec<u8>> {
    let mut bytes = take_any(length)?;
    bytes.resize(length, 0);
    Some(bytes)
}

fn take_any(length: usize) -> Option<Vec<u8>> {
    // try_lock: after a fork the lock may belong to a thread that the child does not have.
    if length >= SMALLEST
        && let Ok(mut shelf) = SHELF.try_lock()
    {
        let own = thread::current().id();
        let mine = shelf.iter().rposition(|(id, b)| *id == own && fits(b.capacity(), length));
        let any = || shelf.iter().position(|(_, b)| fits(b.capacity(), length));
        if let Some(place) = mine.or_else(any) {
            return Some(shelf.swap_remove(place).1);
        }
    }
    // Sizes that differ by a few bytes must not keep buffers from being used again.
    let step = length.checked_next_power_of_two().map_or(1, |power| power / 8).max(1);
    let rounded = if length < SMALLEST { length } else { length.checked_next_multiple_of(step)? };
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(rounded).ok()?;
    ask_for_huge_pages(bytes.as_ptr(), bytes.capacity());
    Some(bytes)
}

/// Pages of 2 MiB waste little of a buffer that is much larger and is filled, and save the processor
/// from looking up 512 times as many.
pub fn ask_for_huge_pages(memory: *const u8, num_bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let address = memory as usize;
        let start = address.next_multiple_of(HUGE);
        let end = address.saturating_add(num_bytes) / HUGE * HUGE;
        if end.saturating_sub(start) > 2 * HUGE {
            // SAFETY: the pages lie wholly in memory that is the caller's, and advice changes no byte.
            unsafe {
                libc::madvise(start as *mut _, end.wrapping_sub(start), libc::MADV_HUGEPAGE);
            }
        }
    }
    let _ = (memory, num_bytes);
}

/// Large enough, and not so large that most of it would lie idle.
fn fits(capacity: usize, length: usize) -> bool {
    capacity >= length && capacity / 2 <= length
}

struct Shelved(ThreadId, Vec<u8>);

impl Drop for Shelved {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.1);
        if let Ok(mut shelf) = SHELF.try_lock() {
            let held: usize = shelf.iter().map(|(_, held)| held.capacity()).sum();
            if held.saturating_add(bytes.capacity()) <= SHELF_BYTES {
                shelf.push((self.0, bytes));
            }
        }
    }
}

/// The bytes as a buffer whose memory goes back to the shelf when nobody holds it any more.
pub fn shelve(bytes: Vec<u8>) -> Buffer {
    if bytes.capacity() < SMALLEST {
        return Buffer::from_vec(bytes);
    }
    let owner = Arc::new(Shelved(thread::current().id(), bytes));
    let (pointer, length) = (NonNull::from(owner.1.as_slice()).cast::<u8>(), owner.1.len());
    // SAFETY: the vector is not touched until its owner is dropped, which keeps it in place.
    unsafe { Buffer::from_custom_allocation(pointer, length, owner) }
}
