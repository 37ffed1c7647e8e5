//! Faults in bytes, as facts. The Python layer turns them into errors with messages.

use std::fmt;
use std::num::NonZeroU32;

/// The rule that the bytes break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The checksum over a frame's length does not match.
    LengthChecksum,
    /// The bytes break the framing rules.
    Framing,
    /// The checksum over a payload does not match.
    DataChecksum,
    /// The bytes end before the announced end.
    Truncated,
    /// A declared size is beyond a limit.
    Limit,
    /// A payload that is not a valid message.
    Message,
    /// A value that does not fit the wanted column.
    Schema,
    /// A field of a record that is not in the schema, if that is not allowed.
    Unexpected,
    /// A compressed stream that breaks its format's rules.
    Compression,
    /// A checksum or length at the end of a compressed stream does not match.
    CompressionChecksum,
    /// An empty gzip member before others: TensorFlow stops reading there without an error.
    EmptyMember,
    /// All data is there, but the checksum after it is truncated: TensorFlow reports nothing.
    CutTrailer,
    /// A zlib stream after the first: TensorFlow reads only the first, without an error.
    SecondStream,
    /// Bytes after the end of the compressed data that do not belong to it.
    TrailingBytes,
    /// The file does not match its index.
    Stale,
    /// Bytes that are not an image, or a damaged image.
    Image,
    /// Parts of a container that contradict each other.
    Structure,
    /// Valid, but not supported by penstock.
    Unsupported,
}

impl FaultKind {
    /// Its name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::LengthChecksum => "length_checksum",
            Self::Framing => "framing",
            Self::DataChecksum => "data_checksum",
            Self::Truncated => "truncated",
            Self::Limit => "limit",
            Self::Message => "message",
            Self::Schema => "schema",
            Self::Unexpected => "unexpected",
            Self::Compression => "compression",
            Self::CompressionChecksum => "compression_checksum",
            Self::EmptyMember => "empty_member",
            Self::CutTrailer => "cut_trailer",
            Self::SecondStream => "second_stream",
            Self::TrailingBytes => "trailing_bytes",
            Self::Stale => "stale",
            Self::Image => "image",
            Self::Structure => "structure",
            Self::Unsupported => "unsupported",
        }
    }
}

/// One fault and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The broken rule.
    pub kind: FaultKind,
    /// Offset of the offending byte from the start of the kernel's input (plus its base).
    pub byte: u64,
    /// The record in the input.
    pub record: Option<usize>,
    /// The field of the record.
    pub field: Option<String>,
    /// The frame of a feature list, counted from 1, so that the Option takes no extra space.
    pub frame: Option<NonZeroU32>,
    /// The stored or announced value.
    pub expected: Option<u64>,
    /// The value found.
    pub found: Option<u64>,
    /// One line for users.
    pub message: String,
}

impl Fault {
    /// A fault of this kind at this byte.
    #[cold]
    pub fn new(kind: FaultKind, byte: u64, message: impl Into<String>) -> Self {
        Self {
            kind,
            byte,
            record: None,
            field: None,
            frame: None,
            expected: None,
            found: None,
            message: message.into(),
        }
    }

    /// The same, with the stored and the found value.
    #[cold]
    pub fn values(mut self, expected: u64, found: u64) -> Self {
        self.expected = Some(expected);
        self.found = Some(found);
        self
    }

    /// The fault of an unexpected field, at the position of its key in the record.
    #[cold]
    pub fn unexpected(byte: u64, key: &[u8]) -> Self {
        let message = "the record has a field that was not seen when the schema was inferred";
        Self::new(FaultKind::Unexpected, byte, message).in_field(&String::from_utf8_lossy(key))
    }

    /// The same, in this record.
    #[cold]
    pub fn in_record(mut self, record: usize) -> Self {
        self.record.get_or_insert(record);
        self
    }

    /// The same, in this field.
    #[cold]
    pub fn in_field(mut self, field: &str) -> Self {
        self.field.get_or_insert_with(|| field.to_owned());
        self
    }

    /// The same, in this frame of a feature list.
    #[cold]
    pub fn in_frame(mut self, frame: u32) -> Self {
        self.frame = self.frame.or(NonZeroU32::new(frame.saturating_add(1)));
        self
    }

    /// The same, counted from an earlier origin.
    #[cold]
    pub fn shifted(mut self, by: u64) -> Self {
        self.byte = self.byte.saturating_add(by);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.message, self.byte)
    }
}

impl std::error::Error for Fault {}
