//! Byte strings borrowed from the buffer that was read, until their total size is known. Then they become
//! views, or several threads copy them into memory of exactly that size.

use crate::tuned::JOB_BYTES;
use std::ops::Range;

use arrow_array::BinaryViewArray;
use arrow_buffer::{Buffer, NullBuffer};

use super::buffer_pool;
use super::columns::{Column, MAX_OFFSET, Values, too_large};
use super::parallel_for::parallel_for;
use super::streaming_store;
use super::views::{Views, place_in};
use super::walk::Frames;
use crate::wire::{Fault, FaultKind};

/// Byte strings borrowed from a buffer; strings from elsewhere are copied.
#[derive(Clone, Debug)]
pub struct BorrowedStrings {
    buffer: Buffer,
    /// Start and length of each string. Starts of copies are counted from the end of the buffer.
    spans: Vec<(usize, usize)>,
    copies: Vec<u8>,
    /// How many earlier strings were handed over.
    before: usize,
}

impl BorrowedStrings {
    /// No strings yet.
    pub fn new(buffer: &Buffer) -> Self {
        Self { buffer: buffer.clone(), spans: Vec::new(), copies: Vec::new(), before: 0 }
    }

    /// The number of strings, including those handed over.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.before.wrapping_add(self.spans.len())
    }

    /// Whether there are no strings, including those handed over.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Take the strings since the last call. Only their number is kept.
    pub fn hand_over(&mut self) -> Self {
        let before = self.len();
        let mine = std::mem::replace(self, Self::new(&Buffer::default()));
        self.before = before;
        Self { before: 0, ..mine }
    }

    /// Borrow from this buffer from now on; all earlier strings must have been handed over.
    pub fn go_on(&mut self, buffer: &Buffer) {
        self.buffer = buffer.clone();
    }

    /// Append a string.
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        if value.is_empty() {
            self.spans.push((0, 0));
            return;
        }
        let start = match place_in(value, &self.buffer) {
            Some(start) => start,
            None => self.keep(value),
        };
        self.spans.push((start, value.len()));
    }

    #[cold]
    fn keep(&mut self, value: &[u8]) -> usize {
        let start = self.buffer.len().saturating_add(self.copies.len());
        self.copies.extend_from_slice(value);
        start
    }

    /// Keep only the first `count` strings.
    pub fn truncate(&mut self, count: usize) {
        self.spans.truncate(count.saturating_sub(self.before));
    }

    /// One string.
    #[inline]
    fn get(&self, at: usize) -> Option<&[u8]> {
        let &(start, length) = self.spans.get(at)?;
        match start.checked_sub(self.buffer.len()) {
            Some(start) if length > 0 => self.copies.get(start..start.checked_add(length)?),
            _ => self.buffer.get(start..start.checked_add(length)?),
        }
    }

    /// All strings.
    pub fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        (0..self.spans.len()).map(|at| self.get(at))
    }

    /// Total bytes.
    pub fn num_bytes(&self) -> usize {
        self.spans.iter().fold(0, |all: usize, span| all.saturating_add(span.1))
    }

    /// A view array into the buffer.
    pub fn views(&self, nulls: Option<NullBuffer>) -> Result<BinaryViewArray, Fault> {
        let mut views = Views::new(&self.buffer, self.spans.len());
        for (at, &(start, length)) in self.spans.iter().enumerate() {
            let pushed = match start < self.buffer.len() {
                true => views.push(start, length),
                false => views.push_copy(self.get(at).unwrap_or_default()),
            };
            pushed.ok_or_else(|| {
                let fault = Fault::new(FaultKind::Limit, 0, "a value is too long for a view");
                fault.values(1 << 30, length as u64).in_record(at)
            })?;
        }
        let unequal = || Fault::new(FaultKind::Schema, 0, "nulls of another column");
        views.finish_with_nulls(nulls).ok_or_else(unequal)
    }

    /// Arrow offsets of the strings, if they are stored one after another.
    fn ends(&self) -> Result<Vec<i32>, Fault> {
        let num_bytes = self.num_bytes();
        if num_bytes > MAX_OFFSET {
            return Err(too_large(num_bytes));
        }
        let mut ends = Vec::with_capacity(self.spans.len().saturating_add(1));
        ends.push(0);
        self.push_ends(&mut ends);
        Ok(ends)
    }

    /// Append their offsets to those of earlier strings.
    pub fn push_ends(&self, ends: &mut Vec<i32>) {
        let mut end = ends.last().map_or(0, |&end| end as usize);
        ends.extend(self.spans.iter().map(|span| {
            end = end.saturating_add(span.1);
            end as i32
        }));
    }

    /// Copy all strings into `room`, which they fill exactly, and which is too large for a cache.
    pub fn copy_all(&self, room: &mut [u8]) -> Option<()> {
        self.copy(0..self.spans.len(), room, streaming_store::copy)
    }

    /// Copy some strings into `room`, which they fill exactly.
    fn copy(
        &self,
        values: Range<usize>,
        mut room: &mut [u8],
        copy: impl Fn(&mut [u8], &[u8]),
    ) -> Option<()> {
        for at in values {
            let value = self.get(at)?;
            let (mine, rest) = room.split_at_mut_checked(value.len())?;
            copy(mine, value);
            room = rest;
        }
        room.is_empty().then_some(())
    }
}

/// Verify all records, and copy each borrowed column into its own memory unless `stays_borrowed`. Returns
/// the fault of the first bad record. If a column is too large, the fault has its `key`.
pub fn settle(
    frames: &Frames,
    columns: &mut [Column],
    stays_borrowed: impl Fn(usize) -> bool,
    key: impl Fn(usize) -> String,
    threads: usize,
    verify: impl Fn(Range<usize>) -> Result<(), Fault> + Sync,
) -> Result<(), Fault> {
    let mut borrowed: Vec<(&mut Column, BorrowedStrings)> = Vec::new();
    let mut ends: Vec<Vec<i32>> = Vec::new();
    for (number, column) in columns.iter_mut().enumerate() {
        if let Some(Values::Borrowed(strings)) = &mut column.values
            && !stays_borrowed(number)
        {
            let strings = std::mem::replace(strings, BorrowedStrings::new(&Buffer::default()));
            ends.push(strings.ends().map_err(|fault| fault.in_field(&key(number)))?);
            borrowed.push((column, strings));
        }
    }
    let mut rooms: Vec<Vec<u8>> = Vec::with_capacity(borrowed.len());
    for (_, strings) in &borrowed {
        let num_bytes = strings.num_bytes();
        rooms.push(buffer_pool::take_used(num_bytes).ok_or_else(|| {
            Fault::new(FaultKind::Limit, 0, format!("no memory for {num_bytes} bytes"))
        })?);
    }
    let jobs = jobs(frames, &borrowed, &ends, &mut rooms);
    let count = jobs.len();
    let wrong = || Fault::new(FaultKind::Structure, 0, "a value is outside of what was read");
    parallel_for(
        jobs.into_iter(),
        count,
        threads,
        || (),
        |(), (records, rooms): Job<'_>| {
            verify(records.clone())?;
            for ((column, strings), room) in borrowed.iter().zip(rooms) {
                let values = column.first_value(records.start)..column.first_value(records.end);
                strings.copy(values, room, <[u8]>::copy_from_slice).ok_or_else(wrong)?;
            }
            Ok(())
        },
    )?;
    for ((column, _), (ends, room)) in borrowed.into_iter().zip(ends.into_iter().zip(rooms)) {
        column.values = Some(Values::Bytes(ends, room));
    }
    Ok(())
}

/// A range of records, and for each borrowed column the memory for their values.
type Job<'a> = (Range<usize>, Vec<&'a mut [u8]>);

fn jobs<'a>(
    frames: &Frames,
    borrowed: &[(&mut Column, BorrowedStrings)],
    ends: &[Vec<i32>],
    rooms: &'a mut [Vec<u8>],
) -> Vec<Job<'a>> {
    let mut rooms: Vec<&'a mut [u8]> = rooms.iter_mut().map(Vec::as_mut_slice).collect();
    let mut jobs = Vec::new();
    let records = frames.spans.len();
    let mut first = 0;
    while first < records {
        let mut last = first;
        let mut num_bytes = 0usize;
        while num_bytes < JOB_BYTES
            && let Some(span) = frames.spans.get(last)
        {
            num_bytes = num_bytes.saturating_add(span.1.max(1));
            last = last.wrapping_add(1);
        }
        let parts = borrowed.iter().zip(ends).zip(&mut rooms).map(|(((column, _), ends), room)| {
            let end = |record| ends.get(column.first_value(record)).map_or(0, |&end| end as usize);
            let size = end(last).saturating_sub(end(first)).min(room.len());
            let (mine, rest) = std::mem::take(room).split_at_mut(size);
            *room = rest;
            mine
        });
        jobs.push((first..last, parts.collect()));
        first = last;
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::columns::Layout;
    use crate::wire::example::Kind;

    fn texts(strings: &BorrowedStrings) -> Vec<&[u8]> {
        strings.iter().flatten().collect()
    }

    #[test]
    fn strings_of_the_buffer_are_borrowed_and_others_kept() {
        let buffer = Buffer::from_vec(b"one value and another one of the buffer".to_vec());
        let mut strings = BorrowedStrings::new(&buffer);
        strings.push(&buffer[0..9]);
        strings.push(b"a value that lies somewhere else");
        strings.push(b"");
        strings.push(&buffer[14..]);
        strings.push(b"to be dropped");
        strings.truncate(4);
        let wanted: [&[u8]; 4] =
            [b"one value", b"a value that lies somewhere else", b"", b"another one of the buffer"];
        assert_eq!(texts(&strings), wanted);
        assert_eq!(strings.ends().unwrap(), [0, 9, 41, 41, 66]);
        let array = strings.views(None).unwrap();
        assert_eq!((0..4).map(|at| array.value(at)).collect::<Vec<_>>(), wanted);
        assert!(strings.views(Some(NullBuffer::new_valid(3))).is_err());
    }

    fn frames(records: usize, size: usize) -> Frames {
        let bytes = (0..records * size).map(|n| (n / 3) as u8).collect::<Vec<u8>>();
        let spans = (0..records).map(|record| (record * size, size)).collect();
        Frames { buffer: Buffer::from_vec(bytes), spans, ..Frames::default() }
    }

    /// A column of one string a record, and one of up to four.
    fn columns(frames: &Frames) -> Vec<Column> {
        let records = frames.spans.len();
        let mut scalar = Column::new(Some(Kind::Bytes), Layout::Scalar, false, records);
        let mut lists = Column::new(Some(Kind::Bytes), Layout::List, false, records);
        for column in [&mut scalar, &mut lists] {
            column.borrow_from(&frames.buffer);
        }
        for record in 0..records {
            let payload = frames.payload(record).unwrap();
            scalar.values.as_mut().unwrap().push_bytes(&payload[7..]).unwrap();
            scalar.close_record(record).unwrap();
            let before = lists.values.as_ref().unwrap().len();
            for part in payload.chunks(1000).take(record % 5) {
                lists.values.as_mut().unwrap().push_bytes(part).unwrap();
            }
            lists.close_record(before).unwrap();
        }
        vec![scalar, lists]
    }

    #[test]
    fn several_threads_copy_what_one_does_and_tell_the_first_fault() {
        let frames = frames(40, 50_000);
        let all = |from: fn(usize) -> Range<usize>| -> Vec<u8> {
            (0..40).flat_map(|r| frames.payload(r).unwrap()[from(r)].to_vec()).collect()
        };
        for threads in [1, 3] {
            let fault = |record| Fault::new(FaultKind::DataChecksum, 0, "").in_record(record);
            let verify = |records: Range<usize>| match [17, 33].iter().find(|r| records.contains(r))
            {
                Some(&record) => Err(fault(record)),
                None => Ok(()),
            };
            let (none, key) = (|_| false, |column: usize| column.to_string());
            let found = settle(&frames, &mut columns(&frames), none, key, threads, verify);
            assert_eq!(found.unwrap_err().record, Some(17));
            let mut columns = columns(&frames);
            settle(&frames, &mut columns, |number| number == 2, key, threads, |_| Ok(())).unwrap();
            let data = |number: usize| match &columns[number].values {
                Some(Values::Bytes(_, data)) => data.clone(),
                _ => panic!("still borrowed"),
            };
            assert_eq!(data(0), all(|_| 7..50_000));
            assert_eq!(data(1), all(|record| 0..1000 * (record % 5)));
        }
    }
}
