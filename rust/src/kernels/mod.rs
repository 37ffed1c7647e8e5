//! The work of one chunk or batch: plain functions over slices and Arrow arrays.

pub mod codec;
pub mod columns;
pub mod decode_examples;
pub mod decode_msgpack;
pub mod deflate;
pub mod encode_examples;
pub mod encode_msgpack;
pub mod example_columns;
pub mod infer_examples;
pub mod infer_msgpack;
pub mod inflate;
pub mod members;
pub mod shelf;
pub mod splice_fields;
pub mod walk;
