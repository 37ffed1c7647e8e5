//! Framings: how a container marks where one record ends and the next begins.

use super::{Fault, FaultKind};
use penstock_codecs::crc32c::{self, crc32c, crc32c_u64, mask};

/// What is at the front of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A complete frame: its payload and its total bytes.
    Frame {
        /// Where the payload starts, from the front of the window.
        payload: usize,
        /// Bytes of payload.
        length: usize,
        /// Bytes to the next frame.
        total: usize,
    },
    /// The frame extends beyond the window. A window of this many bytes contains it, or its next
    /// part.
    Need(u64),
    /// There are this many bytes without a record.
    Blank(usize),
    /// The bytes break the framing rules.
    Broken(Fault),
}

/// The state of skimming a frame, which is finding its end without reading all of it.
#[derive(Clone, Debug, Default)]
pub struct Skim {
    /// For a tar record: the key of its members.
    pub key: Option<Vec<u8>>,
    /// For a tar record: whether the zeros that end an archive were skipped.
    pub ended: bool,
    /// Whether a part of the frame was skipped.
    pub begun: bool,
    /// For MessagePack: the number of values that are still to come.
    pub left: u64,
}

/// Where to continue skimming a frame, relative to the front of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// At this offset, which may be beyond the window.
    On(u64),
    /// At this offset, with a window of at least this many bytes.
    More(usize),
    /// The frame ends here, which may be beyond the window.
    End(u64),
    /// The bytes break the rules.
    Broken(Fault),
}

/// A container whose records are found one after another: the input is a window of bytes, the output the
/// next frame.
///
/// In a framing with a head and a tail of fixed size (TFRecord), the payload is between them. In
/// the other framings (`HEAD` and `TAIL` are 0), each frame encodes its size in some other way: the
/// payload is the whole frame, and its decoder interprets it.
pub trait Framing: Copy + Send + Sync {
    /// The frame at the front of `window`, which is not empty. `last` means that the stream of frames ends
    /// where the window ends.
    fn next(self, window: &[u8], last: bool) -> Step;
    /// The first offset from `from` on where a frame seems to begin, to continue after damage.
    fn find(self, window: &[u8], from: usize) -> Option<Candidate>;
    /// The next step from the front of `window` to the end of a frame that is too long for memory. `state`
    /// is the state of the frame, new at its front; `last` means that the stream ends with the window.
    fn skim(self, state: &mut Skim, window: &[u8], last: bool) -> Skip {
        let _ = state;
        match self.next(window, last) {
            Step::Frame { total, .. } => Skip::End(total as u64),
            Step::Need(total) if window.len() >= Self::HEAD => Skip::End(total),
            Step::Need(_) => Skip::More(Self::HEAD),
            Step::Blank(length) => Skip::On(length as u64),
            Step::Broken(fault) => Skip::Broken(fault),
        }
    }
    /// Compare the payload of a whole frame with its stored checksum, if there is one.
    fn check(self, frame: &[u8]) -> Result<(), Fault> {
        let _ = frame;
        Ok(())
    }
    /// The index of the first of some whole frames in `window` whose payload does not match its
    /// stored checksum. `spans` has the start and length of each payload.
    fn first_broken(self, window: &[u8], spans: &[(usize, usize)]) -> Option<usize> {
        let _ = (window, spans);
        None
    }
    /// The checksum of a frame for the index: the one stored in the frame, or that of all its
    /// bytes.
    fn stored(self, frame: &[u8]) -> u32 {
        crc32c(frame)
    }
    /// Bytes of framing before the payload.
    const HEAD: usize = 0;
    /// Bytes of framing after the payload.
    const TAIL: usize = 0;
    /// Whether frames have checksums and their ends are known from their heads.
    const CHECKED: bool = false;
}

/// A position where a frame may start again after damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Offset in the window.
    pub at: usize,
    /// Bytes of the whole frame, as far as its head says.
    pub total: u64,
}

/// The framings by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnyFraming {
    /// TFRecord.
    #[default]
    TfRecord,
    /// TFRecord whose checksums are not verified.
    UncheckedTfRecord,
    /// MXNet's RecordIO.
    RecordIo,
    /// No framing: the payloads were found in another way.
    Bare,
    /// Tar archives of WebDataset.
    Tar,
    /// MessagePack: each value is a record.
    MessagePack,
}

impl AnyFraming {
    /// The framing with this name in Python.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "tfrecord" => Self::TfRecord,
            "tfrecord_unchecked" => Self::UncheckedTfRecord,
            "recordio" => Self::RecordIo,
            "webdataset" => Self::Tar,
            "msgpack" => Self::MessagePack,
            _ => return None,
        })
    }
}

/// Run code that is generic over a framing, with the framing of a kind.
macro_rules! with_framing {
    ($kind:expr, $framing:ident => $body:expr) => {
        match $kind {
            $crate::wire::frames::AnyFraming::TfRecord => {
                let $framing = $crate::wire::frames::TfRecord;
                $body
            }
            $crate::wire::frames::AnyFraming::UncheckedTfRecord => {
                let $framing = $crate::wire::frames::UncheckedTfRecord;
                $body
            }
            $crate::wire::frames::AnyFraming::Bare => {
                let $framing = $crate::wire::frames::Bare;
                $body
            }
            $crate::wire::frames::AnyFraming::RecordIo => {
                let $framing = $crate::wire::recordio::RecordIo;
                $body
            }
            $crate::wire::frames::AnyFraming::Tar => {
                let $framing = $crate::wire::tar::Tar;
                $body
            }
            $crate::wire::frames::AnyFraming::MessagePack => {
                let $framing = $crate::wire::msgpack::MessagePack;
                $body
            }
        }
    };
}
pub(crate) use with_framing;

/// Payloads without frames, in a container that gives their positions.
#[derive(Clone, Copy, Debug)]
pub struct Bare;

impl Framing for Bare {
    fn next(self, _window: &[u8], _last: bool) -> Step {
        Step::Broken(Fault::new(FaultKind::Framing, 0, "such records are not found by walking"))
    }

    fn find(self, _window: &[u8], _from: usize) -> Option<Candidate> {
        None
    }
}

/// TFRecord: `length u64, masked crc32c of length u32, payload, masked crc32c of payload u32`.
#[derive(Clone, Copy, Debug)]
pub struct TfRecord;

/// Bytes before a TFRecord payload.
pub const TFRECORD_HEAD: usize = 12;
/// Bytes after a TFRecord payload.
pub const TFRECORD_TAIL: usize = 4;

#[inline(always)]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|w| u32::from_le_bytes(*w))
}

#[inline(always)]
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|w| u64::from_le_bytes(*w))
}

/// Whether some bytes begin with a length and its checksum.
#[inline(always)]
fn is_head(bytes: &[u8]) -> bool {
    let length = u64_at(bytes, 0).map(|length| mask(crc32c_u64(length)));
    length.is_some() && length == u32_at(bytes, 8)
}

impl Framing for TfRecord {
    const HEAD: usize = TFRECORD_HEAD;
    const TAIL: usize = TFRECORD_TAIL;
    const CHECKED: bool = true;

    fn find(self, window: &[u8], from: usize) -> Option<Candidate> {
        let mut heads = window.get(from..)?.windows(TFRECORD_HEAD);
        let at = from.saturating_add(heads.position(is_head)?);
        let length = u64_at(window, at)?;
        Some(Candidate { at, total: length.saturating_add((TFRECORD_HEAD + TFRECORD_TAIL) as u64) })
    }

    #[inline(always)]
    fn next(self, window: &[u8], _last: bool) -> Step {
        let (Some(length), Some(stored)) = (u64_at(window, 0), u32_at(window, 8)) else {
            return Step::Need(TFRECORD_HEAD as u64);
        };
        let found = mask(crc32c_u64(length));
        if found != stored {
            return Step::Broken(
                Fault::new(FaultKind::LengthChecksum, 0, "length checksum does not match")
                    .values(u64::from(stored), u64::from(found)),
            );
        }
        frame(length, window)
    }

    #[inline(always)]
    fn check(self, frame: &[u8]) -> Result<(), Fault> {
        let payload =
            frame.get(TFRECORD_HEAD..frame.len().saturating_sub(TFRECORD_TAIL)).unwrap_or_default();
        let stored = self.stored(frame);
        let found = mask(crc32c(payload));
        if found == stored {
            return Ok(());
        }
        Err(Fault::new(
            FaultKind::DataChecksum,
            TFRECORD_HEAD as u64,
            "data checksum does not match",
        )
        .values(u64::from(stored), u64::from(found)))
    }

    #[inline(always)]
    fn first_broken(self, window: &[u8], spans: &[(usize, usize)]) -> Option<usize> {
        crc32c::first_mismatch(spans.iter().map(|&(start, length)| {
            let payload = window.get(start..).unwrap_or_default();
            let (payload, tail) = payload.split_at_checked(length).unwrap_or_default();
            // The masked checksum of nothing is not 0.
            tail.first_chunk().map_or((&[][..], 0), |stored| (payload, u32::from_le_bytes(*stored)))
        }))
    }

    #[inline(always)]
    fn stored(self, frame: &[u8]) -> u32 {
        u32_at(frame, frame.len().saturating_sub(TFRECORD_TAIL)).unwrap_or_default()
    }
}

/// A frame of this length at the front of a window.
#[inline(always)]
fn frame(length: u64, window: &[u8]) -> Step {
    let total = length.saturating_add((TFRECORD_HEAD + TFRECORD_TAIL) as u64);
    if total > window.len() as u64 {
        return Step::Need(total);
    }
    Step::Frame { payload: TFRECORD_HEAD, length: length as usize, total: total as usize }
}

/// The same frames without checksums: a length is trusted if there are enough bytes.
#[derive(Clone, Copy, Debug)]
pub struct UncheckedTfRecord;

impl Framing for UncheckedTfRecord {
    const HEAD: usize = TFRECORD_HEAD;
    const TAIL: usize = TFRECORD_TAIL;
    const CHECKED: bool = true;

    fn find(self, window: &[u8], from: usize) -> Option<Candidate> {
        TfRecord.find(window, from)
    }

    #[inline(always)]
    fn next(self, window: &[u8], _last: bool) -> Step {
        match u64_at(window, 0) {
            Some(length) if window.len() >= TFRECORD_HEAD => frame(length, window),
            _ => Step::Need(TFRECORD_HEAD as u64),
        }
    }

    #[inline(always)]
    fn stored(self, frame: &[u8]) -> u32 {
        TfRecord.stored(frame)
    }
}

/// Append one TFRecord frame.
pub fn write_tfrecord(out: &mut Vec<u8>, payload: &[u8]) {
    let length = payload.len() as u64;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&mask(crc32c_u64(length)).to_le_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(&mask(crc32c(payload)).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_frame_is_written_and_read() {
        let mut out = Vec::new();
        write_tfrecord(&mut out, b"hello");
        assert_eq!(
            out,
            [
                5, 0, 0, 0, 0, 0, 0, 0, 0xea, 0xb2, 0x04, 0x3e, b'h', b'e', b'l', b'l', b'o', 0xbb,
                0x1f, 0x1c, 0x19
            ]
        );
        assert_eq!(TfRecord.next(&out, true), Step::Frame { payload: 12, length: 5, total: 21 });
        assert!(TfRecord.check(&out).is_ok());
    }

    #[test]
    fn without_checks_a_frame_is_what_its_length_says() {
        let mut out = Vec::new();
        write_tfrecord(&mut out, b"hello");
        out[8..12].fill(0);
        out[17..].fill(0);
        assert!(matches!(TfRecord.next(&out, true), Step::Broken(_)));
        let frame = Step::Frame { payload: 12, length: 5, total: 21 };
        assert_eq!(UncheckedTfRecord.next(&out, true), frame);
        assert_eq!(UncheckedTfRecord.next(&out[..20], true), Step::Need(21));
        assert_eq!(UncheckedTfRecord.next(&out[..11], true), Step::Need(12));
        assert!(UncheckedTfRecord.check(&out).is_ok());
    }

    #[test]
    fn every_flipped_bit_of_a_frame_is_found() {
        let mut frame = Vec::new();
        write_tfrecord(&mut frame, b"some payload");
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let whole = matches!(TfRecord.next(&bad, true), Step::Frame { total, .. } if total == bad.len());
            assert!(!whole || TfRecord.check(&bad).is_err(), "bit {bit}");
        }
    }
}
