//! Finding records: from a window of bytes to the list of frames in it.

use arrow_buffer::Buffer;

use crate::wire::frames::{Framing, Step};
use crate::wire::{Fault, FaultKind};

/// Where records lie in one buffer. `base` is where the buffer starts in its file (or in the
/// decompressed stream), so that places can be told to people.
#[derive(Clone, Debug)]
pub struct Frames {
    /// The bytes.
    pub buffer: Buffer,
    /// Offset of the buffer in its file.
    pub base: u64,
    /// Where each payload starts in the buffer, and its length.
    pub spans: Vec<(usize, usize)>,
}

impl Frames {
    /// The payload of one record.
    #[inline(always)]
    pub fn payload(&self, record: usize) -> Option<&[u8]> {
        let &(start, length) = self.spans.get(record)?;
        self.buffer.get(start..start.checked_add(length)?)
    }
}

/// What a walk over a window found.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The whole frames, in order.
    pub spans: Vec<(usize, usize)>,
    /// Bytes that they take together.
    pub consumed: usize,
    /// Bytes that the next frame, or its next part, needs in all; 0 at the window's end.
    pub need: u64,
    /// What stopped the walk, if not the end of the window.
    pub fault: Option<Fault>,
}

/// Walk over the frames at the front of `window`, until it ends, something is wrong, or the next
/// frame is longer than `max_record`.
pub fn walk<F: Framing>(framing: F, window: &[u8], max_record: u64) -> Walk {
    let mut found = Walk {
        spans: Vec::new(),
        consumed: 0,
        need: 0,
        fault: None,
    };
    loop {
        let rest = window.get(found.consumed..).unwrap_or_default();
        if rest.is_empty() {
            return found;
        }
        match framing.next(rest) {
            Step::Frame { payload, length, total } => {
                if found.spans.len() == found.spans.capacity() {
                    // One guess from the first frame's size beats ten reallocations.
                    found.spans.reserve((rest.len() / total.max(1)).clamp(16, 1 << 20));
                }
                found.spans.push((found.consumed.wrapping_add(payload), length));
                found.consumed = found.consumed.wrapping_add(total);
            }
            Step::Need(need) => {
                if need > max_record.saturating_add((F::HEAD + F::TAIL) as u64) {
                    let message = format!("a record of {need} bytes is beyond the limit");
                    let fault = Fault::new(FaultKind::Limit, found.consumed as u64, message);
                    found.fault = Some(fault.values(max_record, need).in_record(found.spans.len()));
                    return found;
                }
                found.need = need;
                return found;
            }
            Step::Broken(fault) => {
                let at = found.consumed as u64;
                found.fault = Some(fault.shifted(at).in_record(found.spans.len()));
                return found;
            }
        }
    }
}
