//! The second pass: writes map entries, lists and values from front to back, into memory of the right size.

use crate::tuned::BORROWED_BYTES;
use arrow_buffer::Buffer;

use super::lengths::{field_len, run_len};
use super::{ABSENT, FIRST, SECOND};
use crate::kernels::example_columns::{Column, Section, Values};
use crate::kernels::parts::Between;

impl Values<'_> {
    /// The values of a list, after its length.
    #[inline(always)]
    pub(super) fn write_list(
        &self,
        pen: &mut Pen<'_>,
        start: usize,
        count: usize,
        length: u64,
    ) -> Option<()> {
        match self {
            Self::Nothing => Some(()),
            Self::Bytes(values) => {
                for at in start..start.checked_add(count)? {
                    let value = values.get(at)?;
                    pen.open(FIRST, value.len() as u64)?;
                    pen.put_or_borrow(value, || values.home(at))?;
                }
                Some(())
            }
            Self::Int(_) | Self::Float(_) if length == 0 => Some(()),
            Self::Int(_) | Self::Float(_) => {
                pen.open(FIRST, run_len(length)?)?;
                self.write_run(pen, start, count)
            }
        }
    }

    /// The content of a list: packed numbers, or its only byte string.
    #[inline(always)]
    pub(super) fn write_run(&self, pen: &mut Pen<'_>, start: usize, count: usize) -> Option<()> {
        match self {
            Self::Nothing => Some(()),
            Self::Int(values) => {
                for &value in values.get(start..start.checked_add(count)?)? {
                    pen.varint(value as u64)?;
                }
                Some(())
            }
            Self::Float(values) => pen.floats(values.get(start..start.checked_add(count)?)?),
            Self::Bytes(values) => pen.put(values.get(start)?),
        }
    }
}

/// The entries of one part of one record's message.
#[inline(always)]
pub(super) fn write_section(
    pen: &mut Pen<'_>,
    columns: &[Column<'_>],
    measured: &[Vec<u32>],
    record: usize,
    section: Section,
) -> Option<()> {
    for (column, lengths) in columns.iter().zip(measured) {
        let length = *lengths.get(record)?;
        if length != ABSENT && column.section == section {
            write_entry(pen, column, record, length)?;
        }
    }
    Some(())
}

#[inline(always)]
pub(super) fn write_entry(
    pen: &mut Pen<'_>,
    column: &Column<'_>,
    record: usize,
    length: u32,
) -> Option<()> {
    let Some(frames) = &column.frames else {
        let (start, count) = column.rows.span(record)?;
        if column.head.write_short(pen, length) {
            return column.values.write_run(pen, start, count);
        }
        let length = u64::from(length);
        column.head.write(pen, length)?;
        pen.open(column.head.tag, length)?;
        return column.values.write_list(pen, start, count, length);
    };
    column.head.write(pen, u64::from(length))?;
    let (start, count) = frames.span(record)?;
    for frame in start..start.checked_add(count)? {
        if matches!(column.values, Values::Nothing) {
            pen.open(FIRST, 0)?; // a feature without a type
            continue;
        }
        let (start, count) = column.rows.span(frame)?;
        let length = column.values.list_len(start, count)?;
        pen.open(FIRST, field_len(length))?;
        pen.open(column.head.tag, length)?;
        column.values.write_list(pen, start, count, length)?;
    }
    Some(())
}

/// Maximum number of bytes of a precomputed head.
pub(super) const SHORT_HEAD: usize = 48;
/// Bytes of a precomputed head besides its key: six before and around it, five after.
pub(super) const AROUND_KEY: usize = 10;

/// The bytes before a column's values in every record: the map entry, its key, and the tags and lengths
/// down to the list.
#[derive(Clone, Debug)]
pub struct Head {
    key: Box<[u8]>,
    /// The list's field in Feature, which is its type.
    tag: u8,
    section: Section,
    /// The head of a list with one run, with space for the lengths.
    short: [u8; SHORT_HEAD],
    /// The longest list for which `short` works: all of its lengths take one byte.
    short_max: u32,
}

impl Head {
    /// The head of the column `key`. `one_run`: the list has packed numbers, or one byte string.
    pub fn new(key: &str, tag: u8, section: Section, one_run: bool) -> Self {
        let mut head =
            Self { key: key.as_bytes().into(), tag, section, short: [0; SHORT_HEAD], short_max: 0 };
        let length = head.key.len();
        if one_run && section == Section::Context && length <= SHORT_HEAD.saturating_sub(16) {
            let start = [FIRST, 0, FIRST, length as u8];
            let bytes = start.iter().chain(&head.key).chain(&[SECOND]);
            for (to, from) in head.short.iter_mut().zip(bytes) {
                *to = *from;
            }
            head.short_max = 121u32.saturating_sub(length as u32);
        }
        head
    }

    /// Add the bytes of this entry to each record's message, given the bytes inside its list.
    pub(super) fn add_entries(&self, lengths: &[u32], messages: &mut [u64]) {
        // If all lengths in an entry take one byte, they and the tags are eight bytes.
        let around = self.key.len().saturating_add(8) as u64;
        let most = 127u64.saturating_sub(around.saturating_sub(2)) as u32;
        let all = |most| lengths.iter().fold(0, |max: u32, &length| max.max(length)) <= most;
        if self.section == Section::Context && around < 127 && all(most) {
            for (message, &length) in messages.iter_mut().zip(lengths) {
                *message = message.wrapping_add(around.wrapping_add(u64::from(length)));
            }
            return;
        }
        for (message, &length) in messages.iter_mut().zip(lengths) {
            if length != ABSENT {
                *message = message.saturating_add(field_len(self.entry_len(u64::from(length))));
            }
        }
    }

    /// Bytes of the map entry, given the bytes inside its list (or feature list).
    #[inline(always)]
    pub(super) fn entry_len(&self, length: u64) -> u64 {
        field_len(self.key.len() as u64).saturating_add(field_len(self.value_len(length)))
    }

    #[inline(always)]
    pub(super) fn value_len(&self, length: u64) -> u64 {
        match self.section {
            Section::Context => field_len(length),
            Section::Lists => length,
        }
    }

    /// The entry down to the length of its value.
    pub(super) fn write(&self, pen: &mut Pen<'_>, length: u64) -> Option<()> {
        pen.open(FIRST, self.entry_len(length))?;
        pen.open(FIRST, self.key.len() as u64)?;
        pen.put(&self.key)?;
        pen.open(SECOND, self.value_len(length))
    }

    /// Write the entry down to the list's run: a precomputed head, with its five lengths filled in. False,
    /// and nothing is written, if a length takes more than one byte or the buffer's end is near.
    #[inline(always)]
    pub(super) fn write_short(&self, pen: &mut Pen<'_>, length: u32) -> bool {
        if length < 3 || length > self.short_max {
            return false;
        }
        let end = pen.at.wrapping_add(SHORT_HEAD);
        let Some(room) =
            pen.out.get_mut(pen.at..end).and_then(|r| r.first_chunk_mut::<SHORT_HEAD>())
        else {
            return false;
        };
        *room = self.short;
        let (key, list) = (self.key.len(), length as u8);
        // Every sum stays below 128, by `short_max`.
        if let Some(entry) = room.get_mut(1) {
            *entry = list.wrapping_add(key as u8).wrapping_add(6);
        }
        let lengths = [list.wrapping_add(2), self.tag, list, FIRST, list.wrapping_sub(2), 0, 0, 0];
        let after_key = key.wrapping_add(5);
        match room.get_mut(after_key..).and_then(|r| r.first_chunk_mut::<8>()) {
            Some(place) => *place = lengths,
            None => return false,
        }
        pen.at = pen.at.wrapping_add(key).wrapping_add(AROUND_KEY);
        true
    }
}

/// Writes from front to back into memory of exactly the right size. None if something does not fit.
pub struct Pen<'a> {
    pub(super) out: &'a mut [u8],
    pub(super) at: usize,
    /// Collects borrowed values; None if all values are copied.
    pub(super) borrowed: Option<&'a mut Between>,
}

impl Pen<'_> {
    #[inline(always)]
    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.wrapping_add(bytes.len());
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    /// Write a value. It is borrowed if it is long, has a `home` buffer and borrowing is on; otherwise it
    /// is copied.
    #[inline(always)]
    pub(super) fn put_or_borrow<'b>(
        &mut self,
        value: &[u8],
        home: impl FnOnce() -> Option<&'b Buffer>,
    ) -> Option<()> {
        if value.len() >= BORROWED_BYTES
            && let (Some(borrowed), Some(home)) = (&mut self.borrowed, home())
        {
            return borrowed.borrow(self.at, value, home).then_some(());
        }
        self.put(value)
    }

    #[inline(always)]
    pub(super) fn byte(&mut self, byte: u8) -> Option<()> {
        *self.out.get_mut(self.at)? = byte;
        self.at = self.at.wrapping_add(1);
        Some(())
    }

    #[inline(always)]
    pub(super) fn varint(&mut self, mut value: u64) -> Option<()> {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80)?;
            value >>= 7;
        }
        self.byte(value as u8)
    }

    /// The tag and length of a length-delimited field.
    #[inline(always)]
    pub(super) fn open(&mut self, tag: u8, length: u64) -> Option<()> {
        self.byte(tag)?;
        self.varint(length)
    }

    #[inline(always)]
    pub(super) fn floats(&mut self, values: &[f32]) -> Option<()> {
        let end = self.at.wrapping_add(values.len().checked_mul(4)?);
        let (words, _) = self.out.get_mut(self.at..end)?.as_chunks_mut::<4>();
        for (word, value) in words.iter_mut().zip(values) {
            *word = value.to_le_bytes();
        }
        self.at = end;
        Some(())
    }
}
