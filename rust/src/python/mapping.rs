//! Memory maps of files.

use std::fs;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_buffer::Buffer;

/// A whole file in memory, for as long as a buffer over it exists.
pub struct Mapping {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is read-only and private to this owner.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map the file into a buffer. If it is truncated later, the next access kills the process.
    pub fn map(file: &fs::File, length: usize) -> std::io::Result<Buffer> {
        use std::os::fd::AsRawFd;
        if length == 0 {
            return Ok(Buffer::from_vec(Vec::<u8>::new()));
        }
        // SAFETY: a fresh read-only mapping of an open file; the result is checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let Some(address) = NonNull::new(address.cast::<u8>()) else {
            return Err(std::io::Error::other("mapped at zero"));
        };
        let owner = Arc::new(Self { address, length });
        // SAFETY: the mapping lives as long as `owner`.
        Ok(unsafe { Buffer::from_custom_allocation(address, length, owner) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those from mmap.
        unsafe {
            libc::munmap(self.address.as_ptr().cast(), self.length);
        }
    }
}

/// Which parts of a mapped file were loaded into memory, with one bit for each block, so that later
/// epochs need not ask the system again. Pages that the system evicts in the meantime are loaded
/// one by one.
pub struct Touched(Vec<AtomicU64>);

impl Touched {
    /// A request for one page also maps the cached pages around it, up to this many bytes. A request for
    /// each page would cost twice as much.
    const BLOCK: usize = 64 << 10;

    /// For a file of this length, of which nothing is loaded yet.
    pub fn of(length: usize) -> Self {
        Self((0..length.div_ceil(64 * Self::BLOCK)).map(|_| AtomicU64::new(0)).collect())
    }

    /// See `PyFile::populate`. Returns true if the system has no such call.
    pub fn populate(&self, base: usize, start: usize, length: usize) -> bool {
        let Some(last) = length.checked_sub(1).map(|n| start + n) else { return true };
        for block in start / Self::BLOCK..=last / Self::BLOCK {
            let Some(word) = self.0.get(block / 64) else { return false };
            let bit = 1 << (block % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                if !populate_page(base + (block * Self::BLOCK).max(start)) {
                    return false;
                }
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        // Truncation removes the end of a file, so it is enough to check the last page each time.
        populate_page(base + last)
    }
}

/// Load the page at an address into memory. False if the mapped file no longer has it.
fn populate_page(address: usize) -> bool {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let page = address & !(PAGE - 1);
        // SAFETY: the advice loads pages of a mapping and changes nothing.
        let failed = unsafe { libc::madvise(page as *mut _, PAGE, libc::MADV_POPULATE_READ) };
        if failed != 0 {
            let code = std::io::Error::last_os_error().raw_os_error();
            return !matches!(code, Some(libc::EFAULT) | Some(libc::EHWPOISON));
        }
    }
    let _ = address;
    true
}
