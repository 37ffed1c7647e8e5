//! The work of one chunk or batch: plain functions over slices and Arrow arrays.

pub mod walk;
