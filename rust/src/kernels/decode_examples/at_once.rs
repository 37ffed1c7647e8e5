//! Reads, verifies and decodes large records a few at a time, and copies their strings while the records
//! are still in the L1 and L2 caches, so that the bytes do not go to memory and back.

use crate::tuned::JOB_BYTES;
use std::ops::Range;
use std::sync::{Condvar, Mutex};

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;

use super::{Plan, finished, read};
use crate::kernels::buffer_pool;
use crate::kernels::columns::{Column, MAX_OFFSET, Values, too_large};
use crate::kernels::parallel_for::parallel_for;
use crate::kernels::strings::BorrowedStrings;
use crate::kernels::walk::Frames;
use crate::wire::example::Kind;
use crate::wire::{Fault, FaultKind};

/// Whether `decode_at_once` supports the plan: at most one column of strings, which is not borrowed.
pub fn is_simple(plan: &Plan) -> bool {
    let strings = plan.wanted.iter().filter(|wanted| wanted.kind == Some(Kind::Bytes));
    strings.clone().count() <= 1 && !strings.into_iter().any(|wanted| wanted.borrow)
}

/// Decode records of these sizes, which include the frames, with `threads` threads. `read_frames` reads the
/// frames of some records into a new buffer; `verify` checks them before they are decoded. The plan must be
/// simple (`is_simple`).
///
/// Returns None if strings are less than half of the bytes of the first records, because most of
/// the memory reserved for strings would stay empty. Faults have no exact position, so the caller
/// decodes again to find it.
pub fn decode_at_once(
    sizes: &[u64],
    plan: &Plan,
    threads: usize,
    read_frames: impl Fn(Range<usize>) -> Result<Frames, Fault> + Sync,
    verify: impl Fn(&Frames, Range<usize>) -> Result<(), Fault> + Sync,
) -> Result<Option<Vec<ArrayRef>>, Fault> {
    let num_bytes = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size));
    let num_bytes = usize::try_from(num_bytes).ok().filter(|&all| all <= MAX_OFFSET);
    let num_bytes = num_bytes.ok_or_else(|| too_large(MAX_OFFSET))?;
    let strings = plan.wanted.iter().position(|wanted| wanted.kind == Some(Kind::Bytes));
    let mut filling =
        Filling { strings, columns: plan.columns(sizes.len()), ends: vec![0], room: &mut [] };
    let frames_of = |records: Range<usize>| {
        let frames = read_frames(records.clone())?;
        verify(&frames, records)?;
        Ok::<_, Fault>(frames)
    };
    let mut jobs = jobs(sizes).into_iter();
    let frames = frames_of(jobs.next().unwrap_or_default())?;
    let first = filling.decode(&frames, plan)?;
    let read: usize = frames.spans.iter().map(|span| span.1).sum();
    if strings.is_some() && first.num_bytes() < read / 2 {
        return Ok(None);
    }
    let mut room = match strings {
        Some(_) => buffer_pool::take_used(num_bytes).ok_or_else(|| no_memory(num_bytes))?,
        None => Vec::new(),
    };
    filling.room = &mut room;
    first.copy_all(filling.place(&first)?).ok_or_else(elsewhere)?;
    let turn = Turn::new(filling);
    let num_jobs = jobs.len();
    parallel_for(
        jobs.enumerate(),
        num_jobs,
        threads,
        || (),
        |(), (number, records)| {
            let job = Job { turn: &turn, number, is_done: false };
            let frames = frames_of(records)?;
            let (values, room) = job.in_turn(|filling| {
                let values = filling.decode(&frames, plan)?;
                let room = filling.place(&values)?;
                Ok((values, room))
            })?;
            values.copy_all(room).ok_or_else(elsewhere)
        },
    )?;
    let Filling { mut columns, ends, .. } = turn.end()?;
    if let Some(column) = strings.and_then(|number| columns.get_mut(number)) {
        room.truncate(ends.last().map_or(0, |&end| end as usize));
        if room.len() < num_bytes / 2 {
            room = room.as_slice().into();
        }
        column.values = Some(Values::Bytes(ends, room));
    }
    finished(columns, plan).map(Some)
}

/// Ranges of consecutive records, each of which is read in one call.
fn jobs(sizes: &[u64]) -> Vec<Range<usize>> {
    let mut jobs = Vec::new();
    let (mut first, mut num_bytes) = (0, 0);
    for (record, &size) in sizes.iter().enumerate() {
        num_bytes = size.saturating_add(num_bytes);
        if num_bytes >= JOB_BYTES as u64 || record.wrapping_add(1) == sizes.len() {
            let next = record.wrapping_add(1);
            jobs.push(first..next);
            (first, num_bytes) = (next, 0);
        }
    }
    jobs
}

/// The columns that all jobs fill, in turn.
struct Filling<'a> {
    /// The column of strings.
    strings: Option<usize>,
    columns: Vec<Column>,
    /// Arrow offsets of the strings.
    ends: Vec<i32>,
    /// The part of the string memory that is still free.
    room: &'a mut [u8],
}

impl<'a> Filling<'a> {
    /// Decode the next records. Their strings are borrowed from `frames`.
    fn decode(&mut self, frames: &Frames, plan: &Plan) -> Result<BorrowedStrings, Fault> {
        if let Some(column) = self.strings.and_then(|number| self.columns.get_mut(number)) {
            column.borrow_from(&frames.buffer);
        }
        read(frames, plan, &mut self.columns, |_| Ok(()))?;
        let column = self.strings.and_then(|number| self.columns.get_mut(number));
        match column.and_then(|column| column.values.as_mut()) {
            Some(Values::Borrowed(all)) => Ok(all.hand_over()),
            _ => Ok(BorrowedStrings::new(&Buffer::default())),
        }
    }

    /// The memory for the strings that were decoded last.
    fn place(&mut self, strings: &BorrowedStrings) -> Result<&'a mut [u8], Fault> {
        // Defaults may be longer than the bytes that were read.
        let (mine, rest) = std::mem::take(&mut self.room)
            .split_at_mut_checked(strings.num_bytes())
            .ok_or_else(elsewhere)?;
        self.room = rest;
        strings.push_ends(&mut self.ends);
        Ok(mine)
    }
}

/// Admits threads in the order of their jobs.
struct Turn<'a> {
    state: Mutex<State<'a>>,
    passed: Condvar,
}

struct State<'a> {
    next: usize,
    stopped: bool,
    filling: Filling<'a>,
}

impl<'a> Turn<'a> {
    fn new(filling: Filling<'a>) -> Self {
        let state = Mutex::new(State { next: 0, stopped: false, filling });
        Self { state, passed: Condvar::new() }
    }

    fn end(self) -> Result<Filling<'a>, Fault> {
        self.state.into_inner().map(|state| state.filling).map_err(|_| stopped())
    }
}

/// A job that waits for its turn. If it fails or panics before its turn, the waiting jobs are stopped.
struct Job<'t, 'a> {
    turn: &'t Turn<'a>,
    number: usize,
    is_done: bool,
}

impl<'a> Job<'_, 'a> {
    /// Run `work` after all earlier jobs have run theirs.
    fn in_turn<R>(
        mut self,
        work: impl FnOnce(&mut Filling<'a>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let state = self.turn.state.lock().map_err(|_| stopped())?;
        let is_early = |state: &mut State<'_>| !state.stopped && state.next != self.number;
        let mut state = self.turn.passed.wait_while(state, is_early).map_err(|_| stopped())?;
        if state.stopped {
            return Err(stopped());
        }
        let done = work(&mut state.filling)?;
        state.next = state.next.wrapping_add(1);
        drop(state);
        self.is_done = true;
        self.turn.passed.notify_all();
        Ok(done)
    }
}

impl Drop for Job<'_, '_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if let Ok(mut state) = self.turn.state.lock() {
            state.stopped = true;
        }
        self.turn.passed.notify_all();
    }
}

#[cold]
fn stopped() -> Fault {
    Fault::new(FaultKind::Structure, 0, "records before these could not be decoded")
}

#[cold]
fn elsewhere() -> Fault {
    Fault::new(FaultKind::Structure, 0, "values are longer than what was read")
}

#[cold]
fn no_memory(num_bytes: usize) -> Fault {
    Fault::new(FaultKind::Limit, 0, format!("no memory for {num_bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::super::{Dialect, Numbers, Wanted, decode};
    use super::*;
    use crate::kernels::columns::Layout;

    /// A field of a message with this tag and body.
    fn field(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        let mut left = body.len();
        while left >= 0x80 {
            out.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
        [out, body.to_vec()].concat()
    }

    fn entry(key: &[u8], list_tag: u8, values: &[u8]) -> Vec<u8> {
        field(10, &[field(10, key), field(18, &field(list_tag, values))].concat())
    }

    /// An Example with these strings and a number.
    fn example(strings: &[Vec<u8>], number: u8) -> Vec<u8> {
        let list: Vec<u8> = strings.iter().flat_map(|value| field(10, value)).collect();
        let strings = if strings.is_empty() { vec![] } else { entry(b"s", 10, &list) };
        field(10, &[strings, entry(b"n", 26, &field(10, &[number]))].concat())
    }

    fn wanted(key: &[u8], kind: Kind, layout: Layout) -> Wanted {
        let (key, kind) = (key.to_vec(), Some(kind));
        let (in_lists, text, borrow, required, default) = (false, false, false, false, None);
        let numbers = Numbers::OfItsKind;
        Wanted { key, in_lists, kind, numbers, layout, text, borrow, required, default }
    }

    fn plan(layout: Layout) -> Plan {
        let columns =
            [wanted(b"s", Kind::Bytes, layout), wanted(b"n", Kind::Int64, Layout::Scalar)];
        Plan::new(columns.into(), Dialect::Protobuf)
    }

    fn frames(payloads: &[Vec<u8>]) -> Frames {
        let mut spans = Vec::new();
        for payload in payloads {
            let start = spans.last().map_or(0, |&(start, length)| start + length);
            spans.push((start, payload.len()));
        }
        Frames { buffer: Buffer::from_vec(payloads.concat()), spans, ..Frames::default() }
    }

    fn at_once(
        payloads: &[Vec<u8>],
        plan: &Plan,
        threads: usize,
    ) -> Result<Option<Vec<ArrayRef>>, Fault> {
        let sizes: Vec<u64> = payloads.iter().map(|payload| payload.len() as u64).collect();
        let read = |records| Ok(frames(&payloads[records]));
        decode_at_once(&sizes, plan, threads, read, |_, _| Ok(()))
    }

    /// Records of up to 600 KB, some without strings.
    fn payloads(most: usize) -> Vec<Vec<u8>> {
        let string = |n: usize| vec![n as u8; n * 7919 % 600_000];
        let strings = |n: usize| (0..n % (most + 1)).map(|k| string(n + k)).collect::<Vec<_>>();
        (0..60).map(|n| example(&strings(n), n as u8)).collect()
    }

    #[test]
    fn columns_are_those_of_records_read_before_by_any_number_of_threads() {
        for (layout, most) in [(Layout::Scalar, 1), (Layout::List, 4)] {
            let (plan, payloads) = (plan(layout), payloads(most));
            let known = decode(&frames(&payloads), &plan, 1, |_| Ok(())).unwrap();
            for threads in 1..5 {
                assert_eq!(at_once(&payloads, &plan, threads).unwrap().as_ref(), Some(&known));
            }
        }
    }

    #[test]
    fn a_fault_anywhere_ends_all_jobs_and_none_waits_for_ever() {
        for broken in [0, 17, 59] {
            let mut payloads = payloads(1);
            payloads[broken] = vec![10, 200, 1];
            for threads in [1, 2, 4] {
                assert!(at_once(&payloads, &plan(Layout::Scalar), threads).is_err());
            }
        }
        let sizes = [200_000; 30];
        let panics = |records: Range<usize>| match records.start < 20 {
            true => Ok(frames(&vec![example(&[vec![1; 200_000]], 1); records.len()])),
            false => panic!("as a reader must not"),
        };
        let plan = plan(Layout::Scalar);
        for threads in [2, 4] {
            let done = std::panic::catch_unwind(|| {
                decode_at_once(&sizes, &plan, threads, panics, |_, _| Ok(())).is_err()
            });
            assert!(done.unwrap_or(true));
        }
    }

    #[test]
    fn defaults_longer_than_what_was_read_are_left_to_others() {
        let mut plan = plan(Layout::Scalar);
        let payloads = vec![example(&[], 1); 9];
        plan.wanted[0].default = Some(Values::Bytes(vec![0, 1000], vec![7; 1000]));
        assert!(at_once(&payloads, &plan, 2).is_err());
        plan.wanted[0].default = Some(Values::Bytes(vec![0, 10], vec![7; 10]));
        let known = decode(&frames(&payloads), &plan, 1, |_| Ok(())).unwrap();
        assert_eq!(at_once(&payloads, &plan, 2).unwrap(), Some(known));
    }

    #[test]
    fn strings_that_are_little_of_what_is_read_are_left_to_others() {
        let payloads = vec![example(&[vec![1; 9000]], 1); 90];
        let twice: Vec<_> = payloads
            .iter()
            .map(|payload| [payload.clone(), vec![0x82, 1, 0], field(0x7a, &[0; 9100])].concat())
            .collect();
        assert!(at_once(&payloads, &plan(Layout::Scalar), 2).unwrap().is_some());
        assert!(at_once(&twice, &plan(Layout::Scalar), 2).unwrap().is_none());
        let numbers = Plan::new(vec![wanted(b"n", Kind::Int64, Layout::Scalar)], Dialect::Protobuf);
        let known = decode(&frames(&twice), &numbers, 1, |_| Ok(())).unwrap();
        assert_eq!(at_once(&twice, &numbers, 2).unwrap(), Some(known));
    }

    #[test]
    fn nothing_is_simple_that_has_two_columns_of_strings_or_borrows() {
        assert!(is_simple(&plan(Layout::List)));
        let mut borrows = plan(Layout::Scalar);
        borrows.wanted[0].borrow = true;
        assert!(!is_simple(&borrows));
        let two = [b"a", b"b"].map(|key| wanted(key, Kind::Bytes, Layout::Scalar));
        assert!(!is_simple(&Plan::new(two.into(), Dialect::Protobuf)));
    }
}
