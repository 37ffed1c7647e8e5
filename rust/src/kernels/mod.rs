//! The work of one chunk or batch: plain functions over slices and Arrow arrays.

pub mod codec;
pub mod columns;
pub mod decode_examples;
pub mod decode_recordio;
pub mod deflate;
pub mod encode_examples;
pub mod encode_recordio;
pub mod example_columns;
pub mod infer_examples;
pub mod inflate;
pub mod members;
pub mod shelf;
pub mod splice_fields;
pub mod views;
pub mod walk;
