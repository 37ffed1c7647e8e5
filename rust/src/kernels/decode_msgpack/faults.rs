//! The faults of MessagePack values that do not fit their columns.

use super::columns::MAX_OFFSET;
use crate::wire::numpy_map::{Dtype, NumpyArray};
use crate::wire::{Fault, FaultKind};

#[cold]
pub(super) fn too_large(bytes: usize) -> Fault {
    let message = "a column of this batch outgrows Arrow's 2 GiB; read fewer records at once";
    Fault::new(FaultKind::Limit, 0, message).values(MAX_OFFSET as u64, bytes as u64)
}

#[cold]
pub(super) fn blanks() -> Fault {
    let message = "the values that records lack would take too much of the limit batch_bytes";
    Fault::new(FaultKind::Limit, 0, message)
}

#[cold]
pub(super) fn no_text() -> Fault {
    Fault::new(FaultKind::Message, 0, "the string is not UTF-8; read it as binary")
}

#[cold]
pub(super) fn no_time() -> Fault {
    let message =
        "the timestamp is invalid, or outside the range of 64-bit nanoseconds (1677 to 2262)";
    Fault::new(FaultKind::Schema, 0, message)
}

#[cold]
pub(super) fn other_array(array: &NumpyArray<'_>, dtype: Dtype, wanted: &str) -> Fault {
    let [found, wants] =
        [array.dtype, dtype].map(|d| String::from_utf8_lossy(&d.text()).into_owned());
    let message =
        format!("an array of {found} {:?}, the schema wants {wants} with {wanted}", array.shape);
    Fault::new(FaultKind::Schema, 0, message)
}
