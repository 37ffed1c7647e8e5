//! Local files. Only this file, `cached_blocks.rs` and `mapping.rs` get data from the operating system.

use crate::tuned::{PARALLEL_BYTES, TIMED_READS, WAITING, WAITING_THREADS};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::Instant;

use pyo3::exceptions::{PyEOFError, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

use super::buffer::{PyBuffer, room};
use super::cached_blocks::{Blocks, Opened, PyHits};
use super::frames::u64s;
use super::mapping::{Mapping, Touched};
use super::raise;
use crate::kernels::buffer_pool;
use crate::wire::{Fault, FaultKind};

/// Where the bytes of a `PyFile` are.
enum Place {
    File(fs::File),
    Blocks(Blocks),
}

/// A local file, read by position. Its bytes may also be in the blocks of a cache.
#[pyclass(name = "File", frozen, module = "penstock._core")]
pub struct PyFile {
    place: Place,
    #[pyo3(get)]
    pub size: u64,
    touched: OnceLock<Touched>,
}

impl PyFile {
    fn of(file: fs::File, size: u64) -> Self {
        Self { place: Place::File(file), size, touched: OnceLock::new() }
    }

    fn file(&self) -> std::io::Result<&fs::File> {
        match &self.place {
            Place::File(file) => Ok(file),
            Place::Blocks(_) => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// How many of `length` bytes from `start` the file had when it was opened.
    pub fn clamp(&self, start: u64, length: usize) -> usize {
        length.min(usize::try_from(self.size.saturating_sub(start)).unwrap_or(usize::MAX))
    }

    /// Append up to `length` bytes from `start`, or fewer at the end of the file.
    pub fn read_into(&self, bytes: &mut Vec<u8>, start: u64, length: usize) -> std::io::Result<()> {
        let before = bytes.len();
        bytes.try_reserve(length).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        let file = match &self.place {
            Place::File(file) => file,
            Place::Blocks(blocks) => {
                let spare = &mut bytes.spare_capacity_mut()[..length];
                self.fill(spare, &[(start, length as u64)], &mut Vec::new())?;
                // SAFETY: these bytes were filled, or an error was returned above.
                unsafe { bytes.set_len(before + length) };
                blocks.count(1);
                return Ok(());
            }
        };
        while bytes.len() - before < length {
            let done = bytes.len() - before;
            let spare = &mut bytes.spare_capacity_mut()[..length - done];
            // SAFETY: `read_at` only writes into the slice; the length grows by what was written.
            unsafe {
                let target =
                    std::slice::from_raw_parts_mut(spare.as_mut_ptr().cast::<u8>(), spare.len());
                match file.read_at(target, start + done as u64) {
                    Ok(0) => break,
                    Ok(count) => bytes.set_len(before + done + count),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl PyFile {
    /// Overwrite bytes with those from `start`. Returns how many: fewer at the end of the file.
    pub fn read_part(&self, part: &mut [u8], start: u64) -> std::io::Result<usize> {
        let mut done = 0;
        while done < part.len() {
            match self.file()?.read_at(&mut part[done..], start + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// The number of threads that gather this many scattered bytes.
pub fn threads_for(num_bytes: usize) -> usize {
    match num_bytes < PARALLEL_BYTES {
        true => 1,
        false => std::thread::available_parallelism().map_or(1, usize::from).min(8),
    }
}

fn size_of_ranges(ranges: &[(u64, u64)]) -> usize {
    ranges.iter().map(|range| range.1 as usize).sum()
}

impl PyFile {
    /// Read ranges, one after another, into an empty vector that has enough capacity. Several
    /// threads read if there are many bytes or the storage is slow, unless `alone` is set.
    pub(super) fn gather_into(
        &self,
        bytes: &mut Vec<u8>,
        ranges: &[(u64, u64)],
        alone: bool,
    ) -> std::io::Result<()> {
        let total = size_of_ranges(ranges);
        let mut spare = &mut bytes.spare_capacity_mut()[..total];
        let (mut rest, mut open) = (ranges, Vec::new());
        let mut threads = if alone { 1 } else { threads_for(total) };
        if threads == 1 && !alone {
            while let Some((some, others)) = rest.split_at_checked(TIMED_READS.min(rest.len())) {
                if some.is_empty() {
                    break;
                }
                let (mine, theirs) = std::mem::take(&mut spare).split_at_mut(size_of_ranges(some));
                (spare, rest) = (theirs, others);
                let start = Instant::now();
                self.fill(mine, some, &mut open)?;
                if start.elapsed() > WAITING {
                    threads = WAITING_THREADS;
                    break;
                }
            }
        }
        self.fill_in_parallel(spare, rest, threads)?;
        // SAFETY: every part was filled, or an error was returned above.
        unsafe { bytes.set_len(total) };
        if let Place::Blocks(blocks) = &self.place {
            blocks.count(ranges.len());
        }
        Ok(())
    }

    fn fill_in_parallel(
        &self,
        mut spare: &mut [MaybeUninit<u8>],
        ranges: &[(u64, u64)],
        threads: usize,
    ) -> std::io::Result<()> {
        if threads == 1 || ranges.len() < threads {
            return self.fill(spare, ranges, &mut Vec::new());
        }
        let share = ranges.len().div_ceil(threads);
        let (own, others) = ranges.split_at(share);
        // Scoped threads, because the threads of a pool would be missing after a fork.
        std::thread::scope(|scope| {
            let (mine, rest) = std::mem::take(&mut spare).split_at_mut(size_of_ranges(own));
            spare = rest;
            let mut readers = Vec::new();
            for part in others.chunks(share) {
                let (theirs, rest) = std::mem::take(&mut spare).split_at_mut(size_of_ranges(part));
                spare = rest;
                readers.push(scope.spawn(move || self.fill(theirs, part, &mut Vec::new())));
            }
            let mut done = self.fill(mine, own, &mut Vec::new());
            for reader in readers {
                let other = reader.join();
                done = done
                    .and(other.unwrap_or_else(|_| Err(std::io::Error::other("a reader panicked"))));
            }
            done
        })
    }

    /// Fill a part of uninitialised memory with the ranges. `open` has the open blocks of a cache.
    fn fill<'a>(
        &'a self,
        mut part: &mut [MaybeUninit<u8>],
        ranges: &[(u64, u64)],
        open: &mut Vec<Opened<'a>>,
    ) -> std::io::Result<()> {
        for &(start, length) in ranges {
            let (mine, rest) = std::mem::take(&mut part).split_at_mut(length as usize);
            part = rest;
            // SAFETY: both calls write every byte or fail, and do not read what they have not written.
            let target = unsafe {
                std::slice::from_raw_parts_mut(mine.as_mut_ptr().cast::<u8>(), mine.len())
            };
            match &self.place {
                Place::File(file) => file.read_exact_at(target, start)?,
                Place::Blocks(blocks) => blocks.fill(open, target, start)?,
            }
        }
        Ok(())
    }
}

#[pymethods]
impl PyFile {
    #[new]
    fn new(py: Python<'_>, path: std::path::PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| {
            let file = fs::File::open(&path)?;
            let data = file.metadata()?;
            if data.is_dir() {
                return Err(std::io::Error::from(std::io::ErrorKind::IsADirectory));
            }
            Ok((file, data.len()))
        });
        match opened {
            Ok((file, size)) => Ok(Self::of(file, size)),
            Err(error) => Err(os_error(&error, &path)),
        }
    }

    /// An object whose blocks are in the files of a cache: `prefix` and a number. A read raises OSError if a
    /// block is not there or not what was written.
    #[staticmethod]
    fn of_blocks(prefix: std::path::PathBuf, key: Vec<u8>, size: u64, hits: &PyHits) -> Self {
        let place = Place::Blocks(Blocks::new(prefix, key, size, hits));
        Self { place, size, touched: OnceLock::new() }
    }

    /// `length` bytes from `start`, or fewer at the end of the file.
    fn read(&self, py: Python<'_>, start: u64, length: usize) -> PyResult<PyBuffer> {
        let length = self.clamp(start, length);
        let mut bytes = room(length)?;
        py.detach(|| self.read_into(&mut bytes, start, length))?;
        Ok(PyBuffer(buffer_pool::pooled(bytes)))
    }

    /// Ranges of the file, one after another in one buffer. `starts` and `lengths` are uint64 arrays.
    /// Several threads read large gathers and slow storage.
    fn gather(
        &self,
        py: Python<'_>,
        starts: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
    ) -> PyResult<PyBuffer> {
        let (starts, lengths) = (u64s(starts)?, u64s(lengths)?);
        let ranges: Vec<(u64, u64)> =
            starts.values().iter().copied().zip(lengths.values().iter().copied()).collect();
        if ranges
            .iter()
            .any(|&(start, length)| start.checked_add(length).is_none_or(|end| end > self.size))
        {
            return Err(PyValueError::new_err("a range reaches beyond the file"));
        }
        let total = ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.1));
        let Some(total) = total.and_then(|total| usize::try_from(total).ok()) else {
            return Err(PyMemoryError::new_err("the ranges are too large together"));
        };
        let mut bytes = room(total)?;
        py.detach(|| self.gather_into(&mut bytes, &ranges, false)).map_err(cut)?;
        Ok(PyBuffer(buffer_pool::pooled(bytes)))
    }

    /// The current size of the open file, and the time of its last change in nanoseconds.
    fn state(&self) -> PyResult<(u64, i64)> {
        let metadata = self.file()?.metadata()?;
        Ok((metadata.len(), written_at(&metadata)))
    }

    /// Load a part of the mapped file into memory in one step, instead of page by page when it is accessed.
    /// False if the file is now too short for it.
    fn populate(&self, py: Python<'_>, mapped: &PyBuffer) -> bool {
        let buffer = &mapped.0;
        let base = buffer.data_ptr().as_ptr() as usize;
        let start = buffer.as_ptr() as usize - base;
        let Some(touched) = self.touched.get() else { return true };
        py.detach(|| touched.populate(base, start, buffer.len()))
    }

    /// The whole file as a memory map. If the file is truncated later, the next access kills the process
    /// (SIGBUS), so this is never the default.
    fn map(&self) -> PyResult<PyBuffer> {
        self.touched.get_or_init(|| Touched::of(self.size as usize));
        Mapping::map(self.file()?, self.size as usize).map(PyBuffer).map_err(PyErr::from)
    }
}

/// Read whole files of a folder into one buffer. Also returns the length of each, and the time of its last
/// change in nanoseconds, taken after it was read. A file may have at most `most_bytes`.
#[pyfunction]
pub fn read_files(
    py: Python<'_>,
    folder: std::path::PathBuf,
    names: Vec<std::path::PathBuf>,
    expected_bytes: usize,
    most_bytes: u64,
) -> PyResult<(PyBuffer, Vec<u64>, Vec<i64>)> {
    let mut bytes = room(expected_bytes)?;
    let mut lengths = Vec::with_capacity(names.len());
    let mut times = Vec::with_capacity(names.len());
    let read = py.detach(|| {
        for (number, name) in names.iter().enumerate() {
            let path = folder.join(name);
            let read = || {
                let file = fs::File::open(&path)?;
                let size = file.metadata()?.len();
                Ok(PyFile::of(file, size))
            };
            let file: PyFile = read().map_err(|error: std::io::Error| os_error(&error, &path))?;
            if file.size > most_bytes {
                let message = format!("a file of {} bytes", file.size);
                let fault = Fault::new(FaultKind::Limit, 0, message).values(most_bytes, file.size);
                return Err(raise(fault.in_record(number)));
            }
            let before = bytes.len();
            file.read_into(&mut bytes, 0, file.size as usize)
                .map_err(|error| os_error(&error, &path))?;
            lengths.push((bytes.len() - before) as u64);
            let metadata = file
                .file()
                .and_then(fs::File::metadata)
                .map_err(|error| os_error(&error, &path))?;
            times.push(written_at(&metadata));
        }
        Ok(())
    });
    read?;
    Ok((PyBuffer(buffer_pool::pooled(bytes)), lengths, times))
}

/// The time of a file's last change, in nanoseconds.
fn written_at(metadata: &fs::Metadata) -> i64 {
    use std::os::unix::fs::MetadataExt;
    metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec())
}

/// An EOFError if the file is shorter than when it was opened, otherwise the system's error.
#[cold]
fn cut(error: std::io::Error) -> PyErr {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            PyEOFError::new_err("the file is shorter than when it was opened")
        }
        _ => error.into(),
    }
}

#[cold]
fn os_error(error: &std::io::Error, path: &std::path::Path) -> PyErr {
    let Some(code) = error.raw_os_error() else {
        let code =
            if error.kind() == std::io::ErrorKind::IsADirectory { libc::EISDIR } else { libc::EIO };
        let text = std::io::Error::from_raw_os_error(code);
        return os_error(&text, path);
    };
    // SAFETY: strerror's text is a valid C string until the next call on this thread.
    let text = unsafe { std::ffi::CStr::from_ptr(libc::strerror(code)) };
    // The path is passed as a str, as for Python's `open`. Passing a `Path` would import pathlib,
    // which fails if no more files can be opened.
    PyOSError::new_err((code, text.to_string_lossy().into_owned(), path.as_os_str().to_owned()))
}

/// Start writing these bytes of a file to disk, without waiting. Does nothing if the system has no such
/// call.
#[pyfunction]
pub fn start_sync(py: Python<'_>, fd: i32, start: i64, length: i64) {
    // This waits if the disk's queue is full.
    py.detach(|| {
        #[cfg(target_os = "linux")]
        // SAFETY: the call touches no memory of the process, and refuses an invalid descriptor.
        unsafe {
            libc::sync_file_range(fd, start, length, libc::SYNC_FILE_RANGE_WRITE);
        }
        let _ = (fd, start, length);
    });
}

/// Swap the names of two files or folders in one step, so that neither name is ever missing. False if the
/// system or the file system has no such call.
#[pyfunction]
pub fn exchange(
    py: Python<'_>,
    one: std::path::PathBuf,
    other: std::path::PathBuf,
) -> PyResult<bool> {
    use std::os::unix::ffi::OsStrExt;
    let named = |path: &std::path::Path| {
        std::ffi::CString::new(path.as_os_str().as_bytes())
            .map_err(|_| PyValueError::new_err("a path with a NUL in it"))
    };
    let (from, to) = (named(&one)?, named(&other)?);
    let error = py.detach(|| {
        // SAFETY: both are C strings that outlive the call.
        let failed = unsafe { swap_names(&from, &to) } != 0;
        failed.then(std::io::Error::last_os_error)
    });
    match error {
        None => Ok(true),
        Some(error) => match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EINVAL | libc::ENOTSUP) => Ok(false),
            _ => Err(os_error(&error, &one)),
        },
    }
}

#[cfg(target_os = "linux")]
unsafe fn swap_names(from: &std::ffi::CStr, to: &std::ffi::CStr) -> i64 {
    // Call it by its number, because not every C library on Linux has a function for it.
    unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    }
}

#[cfg(target_os = "macos")]
unsafe fn swap_names(from: &std::ffi::CStr, to: &std::ffi::CStr) -> i64 {
    i64::from(unsafe { libc::renamex_np(from.as_ptr(), to.as_ptr(), libc::RENAME_SWAP) })
}

/// Sync the whole file system of an open file or folder, and report write errors that occurred
/// since the file or folder was opened. False if the system has no call that reports errors.
#[pyfunction]
pub fn sync_file_system(py: Python<'_>, fd: i32) -> PyResult<bool> {
    #[cfg(target_os = "linux")]
    {
        let error = py.detach(|| {
            // SAFETY: the call touches no memory of the process.
            let failed = unsafe { libc::syncfs(fd) } != 0;
            failed.then(std::io::Error::last_os_error)
        });
        match error {
            None => Ok(true),
            Some(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(false),
            Some(error) => Err(error.into()),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (py, fd);
        Ok(false)
    }
}

/// Reserve disk space for these bytes of a file without changing its size, so that the file system
/// need not find space page by page while the bytes are written. This is done only on ext4, where
/// it is faster (in memory it is slower), and only for a small part of the free space. Returns
/// whether it was done.
#[pyfunction]
pub fn reserve(py: Python<'_>, fd: i32, start: i64, length: i64) -> bool {
    py.detach(|| {
        #[cfg(target_os = "linux")]
        // SAFETY: the first call fills a structure of integers, for which zeros are valid. No call accesses
        // other memory of the process, and both refuse an invalid descriptor.
        unsafe {
            let mut system: libc::statfs = std::mem::zeroed();
            if libc::fstatfs(fd, &raw mut system) != 0 || system.f_type != libc::EXT4_SUPER_MAGIC {
                return false;
            }
            let free = i128::from(system.f_bavail) * i128::from(system.f_bsize);
            i128::from(length) <= free / 16
                && libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, start, length) == 0
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (fd, start, length);
            false
        }
    })
}
