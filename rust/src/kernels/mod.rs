//! The work of one chunk or batch: plain functions over slices and Arrow arrays.

pub mod buffer;
pub mod codec;
pub mod columns;
pub mod decode_examples;
pub mod decode_images;
pub mod decode_msgpack;
pub mod decode_recordio;
pub mod decode_tar;
pub mod deflate;
pub mod encode_examples;
pub mod encode_images;
pub mod encode_msgpack;
pub mod encode_recordio;
pub mod encode_tar;
pub mod example_columns;
pub mod images;
pub mod infer_examples;
pub mod infer_msgpack;
pub mod inflate;
pub mod members;
pub mod permute;
pub mod riegeli;
pub mod shelf;
pub mod splice_fields;
pub mod views;
pub mod walk;
