//! Single values and frames on the wire: checked reads that track their position.

pub mod crc32;
pub mod cursor;
pub mod example;
pub mod exif;
pub mod fault;
pub mod fields;
pub mod frames;
pub mod gzip;
pub mod image_head;
pub mod msgpack;
pub mod numpy_map;
pub mod other_images;
pub mod recordio;
pub mod riegeli;
pub mod tar;
pub mod tf_example;
pub mod varint;

pub use fault::{Fault, FaultKind};
