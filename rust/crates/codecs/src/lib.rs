//! penstock's codecs, each at least a fifth faster than the libraries: bytes in, bytes out, independent of
//! formats, files and penstock's errors.
//!
//! | module | does | speed | oracle | fuzz target |
//! |---|---|---|---|---|
//! | [`inflate`] | raw deflate streams, in pieces of any size | 0.75 to 0.80 GB/s, zlib-rs 0.60 (decision 0018) | zlib-rs, in `inflate/oracle.rs` | `inflate`, `member` |
//! | [`jpeg_scan`] | the Huffman codes of baseline JPEGs | random crops 1.36×, center crops at a quarter of the size 1.53× (decision 0012) | libjpeg-turbo, on whole pictures | `jpeg_ways` |
//! | [`crc32c`] | checksums of short strings | 150 bytes 4.8 ns, by the processor's CRC instruction 10.8 (`benchmarks/NOTES.md`) | one bit at a time, in its tests | `checksums` |
//!
//! `python -m fuzz TARGET --runs N` runs a target against its oracle.
//!
//! # Invariants
//!
//! All codecs, as the tests here and the fuzz targets check:
//!
//! 1. No input causes a panic, a read outside its slice, or a loop that neither uses input nor makes
//!    output. Slices are read by `get` (clippy denies indexing), and each `unsafe` block states why it is
//!    sound.
//! 2. The result depends neither on how input and output are divided into pieces, nor on the
//!    instruction sets of the machine.
//! 3. Memory is bounded by constants: 32 KiB of window and three tables for `inflate`, 16 KiB of
//!    prepared input and four pairs of tables for `jpeg_scan`, nothing for `crc32c`.
//!
//! Each codec:
//!
//! - `inflate` returns the same bytes as zlib, uses the same number of input bytes, and gives the same
//!   verdict: damaged, truncated or complete. From a damaged stream it returns no byte that zlib would not.
//! - `jpeg_scan` decodes only valid, usual scans. On anything else (an unknown code, a marker out of
//!   place, missing or surplus bits) it stops with [`jpeg_scan::bits::Odd`], and the caller decodes
//!   the file from its start with libjpeg-turbo, whose result counts.
//! - `crc32c` equals the remainder by Castagnoli's polynomial, for every length and on every code
//!   path.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod crc32c;
pub mod inflate;
pub mod jpeg_scan;
pub mod prefetch;
