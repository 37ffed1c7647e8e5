//! Sizes that were tuned, each with the rows of `benchmarks/` that it matters to.
//! `python/penstock/tuned.py` has those of Python; the tables of the codecs have theirs.
//!
//! Limits, sizes that a specification sets and round numbers that no row depends on stay where they
//! are used. Change a number here only with its rows measured in one run.

use std::time::Duration;

/// Records verified right before they are decoded, so that decoding finds them in the L1 cache.
/// scan-small: 16, 32 and 128 are no faster.
pub const BLOCK_RECORDS: usize = 64;

/// Bytes that one thread verifies and copies at a time, for the same reason. take-large, load-large.
pub const JOB_BYTES: usize = 256 << 10;

/// Bytes to prefetch ahead while finding small frames: each header gives the place of the next, so the
/// hardware cannot predict it. scan-small.
pub const AHEAD_BYTES: usize = 4096;

/// The same in records, when only views are made. scan-small, mapped and undecoded: 17.0 to
/// 19.2 M/s.
pub const AHEAD_VIEWS: usize = 24;

/// The same in records at random places. take-small.
pub const AHEAD_TAKES: usize = 8;

/// From this length on writers borrow a value: below it, one more part costs as much as a copy.
/// tfrecord-tar, tar-beton.
pub const BORROWED_BYTES: usize = 16 << 10;

/// From this length on a value is written past the caches. take-large, load-large.
pub const UNCACHED_BYTES: usize = 16 << 10;

/// Payloads of a writer wait for their checksums until they are this many bytes. write-small.
pub const UNSEALED_BYTES: usize = 4 << 10;

/// Freed buffers that are kept for the next chunk. gzip-read, memory-large.
pub const POOL_BYTES: usize = 56 << 20;

/// The least size of a buffer that is kept. scan-small.
pub const POOLED_BYTES: usize = 128 << 10;

/// A long payload is verified and copied in pieces of this size. fields-add-large.
pub const SPLICE_BYTES: usize = 16 << 10;

/// Bytes from many places from which several threads copy them. take-large.
pub const PARALLEL_BYTES: usize = 2 << 20;

/// Small reads are timed, this many at a time; if they take longer than `WAITING`, they wait for a disk
/// or a network, and the rest is read by `WAITING_THREADS` threads. take-small.
pub const TIMED_READS: usize = 16;
/// See `TIMED_READS`.
pub const WAITING: Duration = Duration::from_micros(400);
/// See `TIMED_READS`.
pub const WAITING_THREADS: usize = 16;

/// A kernel with less work than this keeps the GIL: it ends before another thread wakes up.
/// load-small.
pub const BRIEF_BYTES: usize = 64 << 10;

/// Frames from this size on are skipped instead of read. index-build-large.
pub const HOP_BYTES: u64 = 16 << 10;
