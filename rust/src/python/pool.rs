//! Windows of a file, used again: a scan reads one chunk after another, in one thread, and lets go
//! of them in another. Fresh memory would cost a page fault and a cleared page for every 4 KiB of
//! them, which is as much as reading costs.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use arrow_buffer::Buffer;

/// Buffers below this size are the allocator's business.
const SMALLEST: usize = 128 << 10;
/// What the shelf holds at most.
const SHELF_BYTES: usize = 64 << 20;

static SHELF: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// An empty vector with room for `length` bytes, or None where there is no memory for them.
pub fn take(length: usize) -> Option<Vec<u8>> {
    // try_lock: after a fork the lock may belong to a thread that the child does not have.
    if length >= SMALLEST
        && let Ok(mut shelf) = SHELF.try_lock()
        && let Some(place) = shelf.iter().position(|b| fits(b.capacity(), length))
    {
        return Some(shelf.swap_remove(place));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).ok()?;
    Some(bytes)
}

/// Large enough, and not so large that most of it would lie idle.
fn fits(capacity: usize, length: usize) -> bool {
    capacity >= length && capacity / 2 <= length
}

struct Shelved(Vec<u8>);

impl Drop for Shelved {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        if let Ok(mut shelf) = SHELF.try_lock() {
            let held: usize = shelf.iter().map(Vec::capacity).sum();
            if held + bytes.capacity() <= SHELF_BYTES {
                bytes.clear();
                shelf.push(bytes);
            }
        }
    }
}

/// The bytes as a buffer whose memory goes back to the shelf when nobody holds it any more.
pub fn shelve(bytes: Vec<u8>) -> Buffer {
    if bytes.capacity() < SMALLEST {
        return Buffer::from_vec(bytes);
    }
    let owner = Arc::new(Shelved(bytes));
    let (pointer, length) = (NonNull::from(owner.0.as_slice()).cast::<u8>(), owner.0.len());
    // SAFETY: the vector is not touched until its owner is dropped, which keeps it in place.
    unsafe { Buffer::from_custom_allocation(pointer, length, owner) }
}
