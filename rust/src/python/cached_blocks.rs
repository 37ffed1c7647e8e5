//! The blocks of an object in the files of a cache. `storage/_cache_files.py` writes them and says what is in them.
//!
//! A file is opened for each call, so that a block that another process removed takes no room. Each piece is
//! compared with its checksum when it is first read, and again when the file was written to since.

use std::ffi::OsString;
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_codecs::crc32c::extend;
use pyo3::prelude::*;

const BLOCK_BYTES: u64 = 8 << 20;
const PIECE_BYTES: usize = 64 << 10;
const PIECES: usize = BLOCK_BYTES as usize / PIECE_BYTES;
const MAGIC: &[u8] = b"penblk01";
const FIXED_BYTES: usize = 24;
/// A block that was used so recently is not marked as used again.
const TOUCHED: Duration = Duration::from_secs(60);
/// Upper bound for the tick of a system clock: two writes within it may have the same time.
const TICK: Duration = Duration::from_millis(20);
/// Files that one call keeps open.
const MOST_OPEN: usize = 32;

/// How many ranges were read from a cache.
#[pyclass(name = "CacheHits", frozen, module = "penstock._core")]
#[derive(Default)]
pub struct PyHits(Arc<AtomicU64>);

#[pymethods]
impl PyHits {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[getter]
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What this process knows of one block's file: when it was written, and which of its pieces are right.
#[derive(Clone, Copy, Default)]
struct Known {
    written_ns: i64,
    verified: u128,
}

/// The blocks of one object in one state.
pub struct Blocks {
    /// The path of a block's file without the block's number.
    prefix: OsString,
    key: Vec<u8>,
    size: u64,
    known: Mutex<Vec<Known>>,
    hits: Arc<AtomicU64>,
}

impl Blocks {
    pub fn new(prefix: PathBuf, key: Vec<u8>, size: u64, hits: &PyHits) -> Self {
        let prefix = prefix.into_os_string();
        Self { prefix, key, size, known: Mutex::default(), hits: hits.0.clone() }
    }

    /// Count ranges that were read.
    pub fn count(&self, ranges: usize) {
        self.hits.fetch_add(ranges as u64, Ordering::Relaxed);
    }

    /// Fill `target` with the bytes from `start`. NotFound if a block is not there or not what was written.
    pub fn fill<'a>(
        &'a self,
        open: &mut Vec<Opened<'a>>,
        mut target: &mut [u8],
        mut start: u64,
    ) -> Result<()> {
        while !target.is_empty() {
            let inside = start % BLOCK_BYTES;
            let count = target.len().min((BLOCK_BYTES - inside) as usize);
            let (mine, rest) = std::mem::take(&mut target).split_at_mut(count);
            let number = start / BLOCK_BYTES;
            let at = match open.iter().position(|block| block.number == number) {
                Some(at) => at,
                None => {
                    if open.len() >= MOST_OPEN {
                        open.clear();
                    }
                    open.push(self.open(number)?);
                    open.len() - 1
                }
            };
            open.get_mut(at).ok_or_else(missing)?.read(mine, inside as usize)?;
            target = rest;
            start += count as u64;
        }
        Ok(())
    }

    fn open(&self, number: u64) -> Result<Opened<'_>> {
        let mut path = self.prefix.clone();
        path.push(number.to_string());
        let path = PathBuf::from(path);
        let file = fs::File::open(&path)?;
        let told = file.metadata()?;
        let now = SystemTime::now();
        if now.duration_since(told.modified()?.max(told.accessed()?)).is_ok_and(|age| age > TOUCHED)
        {
            let _ = file.set_times(fs::FileTimes::new().set_accessed(now));
        }
        let written_ns = told.mtime().wrapping_mul(1_000_000_000).wrapping_add(told.mtime_nsec());
        let left = self.size.checked_sub(number * BLOCK_BYTES).ok_or_else(missing)?;
        let num_bytes = left.min(BLOCK_BYTES) as usize;
        // Later, a write may leave the file's time as it is.
        let before = now.checked_sub(TICK).and_then(|then| then.duration_since(UNIX_EPOCH).ok());
        let is_past = before.is_some_and(|then| then.as_nanos() as i128 > i128::from(written_ns));
        let mut block = Opened {
            of: self,
            number,
            path,
            file,
            num_bytes,
            is_past,
            known: Known { written_ns, verified: 0 },
            sums: Vec::new(),
        };
        if told.len() != (num_bytes + block.end_bytes()) as u64 {
            return Err(block.wrong());
        }
        if let Some(known) = self.known(number, |known| *known)
            && known.written_ns == written_ns
        {
            block.known = known;
        }
        Ok(block)
    }

    /// Look at what is known of a block. None if it is not known, because another thread is looking: a child of a fork
    /// must not wait for it.
    fn known<T>(&self, number: u64, look: impl FnOnce(&mut Known) -> T) -> Option<T> {
        let mut all = match self.known.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(all)) => all.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let number = usize::try_from(number).ok()?;
        if all.len() <= number {
            all.resize(number + 1, Known::default());
        }
        all.get_mut(number).map(look)
    }
}

/// A block's file.
pub struct Opened<'a> {
    of: &'a Blocks,
    number: u64,
    path: PathBuf,
    file: fs::File,
    num_bytes: usize,
    /// Whether any later write gives the file another time.
    is_past: bool,
    known: Known,
    /// The checksums of the pieces, once they are needed.
    sums: Vec<u32>,
}

impl Opened<'_> {
    fn read(&mut self, target: &mut [u8], start: usize) -> Result<()> {
        let pieces = start / PIECE_BYTES..(start + target.len()).div_ceil(PIECE_BYTES);
        let mask = pieces.clone().fold(0u128, |mask, piece| mask | bit(piece));
        if self.known.verified & mask == mask {
            return self.read_at(target, start);
        }
        self.read_verified(target, start, pieces)?;
        let known = self.known;
        if self.is_past {
            self.of.known(self.number, |kept| match kept.written_ns == known.written_ns {
                true => kept.verified |= known.verified,
                false => *kept = known,
            });
        }
        Ok(())
    }

    fn read_verified(
        &mut self,
        mut target: &mut [u8],
        mut start: usize,
        pieces: std::ops::Range<usize>,
    ) -> Result<()> {
        let mut whole = Vec::new();
        for piece in pieces {
            let begin = piece * PIECE_BYTES;
            let length = PIECE_BYTES.min(self.num_bytes.saturating_sub(begin));
            let inside = start - begin;
            let count = target.len().min(length.saturating_sub(inside));
            let (mine, rest) = std::mem::take(&mut target).split_at_mut(count);
            if self.known.verified & bit(piece) != 0 {
                self.read_at(mine, start)?;
            } else if count == length {
                self.read_at(mine, start)?;
                self.compare(mine, piece)?;
            } else {
                whole.resize(length, 0);
                self.read_at(&mut whole, begin)?;
                self.compare(&whole, piece)?;
                mine.copy_from_slice(whole.get(inside..inside + count).ok_or_else(missing)?);
            }
            target = rest;
            start += count;
        }
        Ok(())
    }

    fn compare(&mut self, bytes: &[u8], piece: usize) -> Result<()> {
        if self.sums.is_empty() {
            self.sums = self.read_sums()?;
        }
        if self.sums.get(piece) != Some(&extend(0, bytes)) {
            return Err(self.wrong());
        }
        self.known.verified |= bit(piece);
        Ok(())
    }

    /// The checksums of the pieces, from what follows the bytes.
    fn read_sums(&self) -> Result<Vec<u32>> {
        let mut end = vec![0; self.end_bytes()];
        self.read_at(&mut end, self.num_bytes)?;
        let table = 4 * self.num_bytes.div_ceil(PIECE_BYTES);
        let parts = end.split_at_checked(table).and_then(|(sums, rest)| {
            let (key, fixed) = rest.split_at_checked(self.of.key.len())?;
            Some((sums, key, fixed.split_last_chunk::<4>()?))
        });
        let Some((sums, key, (fixed, crc))) = parts else { return Err(self.wrong()) };
        let numbers = [self.num_bytes as u32, self.number as u32, key.len() as u32];
        let expected = [MAGIC, numbers.map(u32::to_le_bytes).as_flattened()].concat();
        let found = [sums, key, fixed, &[0; 4]].iter().fold(0, |crc, part| extend(crc, part));
        if key != self.of.key || fixed != expected || u32::from_le_bytes(*crc) != found {
            return Err(self.wrong());
        }
        Ok(sums.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect())
    }

    fn end_bytes(&self) -> usize {
        4 * self.num_bytes.div_ceil(PIECE_BYTES) + self.of.key.len() + FIXED_BYTES
    }

    fn read_at(&self, target: &mut [u8], start: usize) -> Result<()> {
        self.file.read_exact_at(target, start as u64).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.wrong(), // it was cut since it was opened
            _ => error,
        })
    }

    /// Remove a file that is not as it was written.
    #[cold]
    fn wrong(&self) -> Error {
        let _ = fs::remove_file(&self.path);
        missing()
    }
}

fn bit(piece: usize) -> u128 {
    debug_assert!(piece < PIECES);
    1 << (piece % PIECES)
}

#[cold]
fn missing() -> Error {
    Error::from(ErrorKind::NotFound)
}
