//! Tuned sizes, each with the names of the benchmark rows (in `benchmarks/`) that depend on it.
//! `python/penstock/tuned.py` has the sizes for Python; the codecs contain the sizes of their
//! tables.
//!
//! Limits, sizes from a specification, and round numbers that no row depends on are defined where
//! they are used. Change a number here only if its rows are measured in the same run.

use std::time::Duration;

/// How many records are verified right before they are decoded, so that decoding finds them in the L1
/// cache. scan-small: 16, 32 and 128 are not faster.
pub const BLOCK_RECORDS: usize = 64;

/// How many bytes one thread verifies and copies at a time, for the same reason (the cache).
/// take-large, load-large.
pub const JOB_BYTES: usize = 256 << 10;

/// How far ahead to prefetch while finding small frames, in bytes. The hardware cannot predict the
/// addresses, because each header gives the position of the next. scan-small.
pub const AHEAD_BYTES: usize = 4096;

/// The same in records, if only views are made. scan-small, mapped and undecoded: 19.2 instead of
/// 17.0 M/s.
pub const AHEAD_VIEWS: usize = 24;

/// The same in records, for records at random positions. take-small.
pub const AHEAD_TAKES: usize = 8;

/// Writers borrow values of at least this length. For shorter values, a separate piece of output
/// costs as much as a copy. tfrecord-tar, tar-beton.
pub const BORROWED_BYTES: usize = 16 << 10;

/// Values from this length on are written past the caches. take-large, load-large.
pub const UNCACHED_BYTES: usize = 16 << 10;

/// A writer computes the checksums of payloads together once they have this many bytes. write-small.
pub const UNSEALED_BYTES: usize = 4 << 10;

/// The bytes of freed buffers that are kept for the next chunk. gzip-read, memory-large.
pub const POOL_BYTES: usize = 56 << 20;

/// The minimum size of a buffer that is kept. scan-small.
pub const POOLED_BYTES: usize = 128 << 10;

/// A long payload is verified and copied in pieces of this size. fields-add-large.
pub const SPLICE_BYTES: usize = 16 << 10;

/// Several threads copy scattered bytes from this total on. take-large.
pub const PARALLEL_BYTES: usize = 2 << 20;

/// Small reads are timed, this many at a time. If they take longer than `WAITING`, they wait for a disk or
/// a network, and `WAITING_THREADS` threads read the rest. take-small.
pub const TIMED_READS: usize = 16;
/// See `TIMED_READS`.
pub const WAITING: Duration = Duration::from_micros(400);
/// See `TIMED_READS`.
pub const WAITING_THREADS: usize = 16;

/// A kernel with less work than this keeps the GIL, because it ends before another thread wakes up.
/// load-small.
pub const BRIEF_BYTES: usize = 64 << 10;

/// Frames from this size on are skipped instead of read. index-build-large.
pub const HOP_BYTES: u64 = 16 << 10;
