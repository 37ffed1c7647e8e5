//! The core of penstock: bytes in, Arrow out.
//!
//! `wire` reads and writes single values and frames; `kernels` process one chunk or batch. Neither uses
//! Python or does I/O. `remote` reads and writes object stores. `python` is the PyO3 layer on top.

#[cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
pub mod kernels;
#[cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
pub mod wire;

#[cfg(feature = "cloud")]
#[cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
pub mod remote;

#[cfg_attr(not(feature = "python"), expect(dead_code, reason = "some are of `python`"))]
mod tuned;

#[cfg(feature = "python")]
mod python;
