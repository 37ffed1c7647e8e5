//! Inflates a gzip file or zlib stream in pieces that the caller pushes.
//!
//! Every fault has its byte offset, empty and truncated members are reported, and inflating can start at a
//! seek point in the middle of a member. Good bytes before a fault are returned before the fault.

use penstock_codecs::inflate::{Pause, RawInflate};

use self::member::Member;
use super::buffer_pool;
use super::codec::{MAX_RATIO, no_memory};
use crate::wire::gzip::{Container, HeaderReader, PLAIN_HEAD_BYTES};
use crate::wire::{Fault, FaultKind};

/// The maximum number of findings that are kept until the caller takes them. Further empty members
/// are only counted.
const MAX_FINDINGS: usize = 1000;

/// The most input bytes that the decoder may still keep from earlier pushes, with a margin.
const HELD_BYTES: usize = 64;

/// A position where inflating may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeekPoint {
    /// Compressed position in bits.
    pub compressed_bit: u64,
    /// Plain position in bytes.
    pub plain_start: u64,
    /// Up to 32 KiB of plain bytes before the point; empty at the start of a member.
    pub window: Vec<u8>,
}

/// The result of one push.
#[derive(Debug)]
pub struct Piece {
    /// Plain bytes.
    pub plain: Vec<u8>,
    /// Input bytes used from the front.
    pub consumed: usize,
}

/// The part of the stream that comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a member, or at the end of the file.
    Start,
    Header,
    Body,
    Trailer,
    Finished,
    Failed,
}

enum Step {
    Again,
    Stop,
}

/// Inflates a gzip file of any number of members, or a zlib stream.
pub struct Inflater {
    container: Container,
    join_streams: bool,
    point_bytes: u64,
    raw: Box<RawInflate>,
    state: State,
    fault: Option<Fault>,
    reader: HeaderReader,
    member: Member,
    /// Bits of the first byte before the seek point, if it is inside a byte.
    skip_bits: u32,
    compressed: u64,
    plain: u64,
    num_members: u64,
    num_empty: u64,
    /// The start of an empty member that may or may not be the last.
    empty: Option<u64>,
    last_point: Option<u64>,
    points: Vec<SeekPoint>,
    members: Vec<(u64, u64)>,
    findings: Vec<Fault>,
}

impl Inflater {
    /// Starts at the beginning of a file. With `point_bytes > 0`, it records members, and a seek
    /// point about every `point_bytes` plain bytes.
    pub fn new(container: Container, point_bytes: u64) -> Result<Self, Fault> {
        Ok(Self {
            container,
            join_streams: false,
            point_bytes,
            raw: Box::new(RawInflate::default()),
            state: State::Start,
            fault: None,
            reader: HeaderReader::new(container),
            member: Member::entered(container, 0),
            skip_bits: 0,
            compressed: 0,
            plain: 0,
            num_members: 0,
            num_empty: 0,
            empty: None,
            last_point: None,
            points: Vec::new(),
            members: Vec::new(),
            findings: Vec::new(),
        })
    }

    /// Continue with a zlib stream after the first one (and note it), instead of reporting a fault.
    pub fn join_streams(mut self) -> Self {
        self.join_streams = true;
        self
    }

    /// Starts at a seek point. Push the compressed bytes from `compressed_bit / 8` on. If the point
    /// is in the middle of a member, the checksum of this member cannot be verified.
    pub fn at_point(container: Container, point: &SeekPoint) -> Result<Self, Fault> {
        let mut this = Self::new(container, 0)?;
        this.compressed = point.compressed_bit / 8;
        this.plain = point.plain_start;
        this.member = Member::entered(container, this.compressed);
        this.skip_bits = (point.compressed_bit % 8) as u32;
        if point.window.is_empty() {
            if this.skip_bits != 0 {
                let message = "a seek point without a window must be at a member's start";
                return Err(Fault::new(FaultKind::Stale, this.compressed, message));
            }
            return Ok(this);
        }
        this.raw.start_inside(&point.window);
        this.state = State::Body;
        Ok(this)
    }

    /// Whether everything was read and nothing was wrong.
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// Compressed bytes used so far, counted from the start of the file.
    pub fn compressed_bytes(&self) -> u64 {
        self.compressed
    }

    /// Plain bytes returned so far, counted from the start of the file.
    pub fn plain_bytes(&self) -> u64 {
        self.plain
    }

    /// The number of members (or zlib streams) that were read completely.
    pub fn num_members(&self) -> u64 {
        self.num_members
    }

    /// The number of empty members that have another member after them.
    pub fn num_empty_members(&self) -> u64 {
        self.num_empty
    }

    /// The seek points found since the last call.
    pub fn take_points(&mut self) -> Vec<SeekPoint> {
        std::mem::take(&mut self.points)
    }

    /// Compressed and plain start of the members begun since the last call.
    pub fn take_members(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.members)
    }

    /// Findings that are not faults, since the last call; at most a thousand at a time.
    pub fn take_findings(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.findings)
    }

    /// Read from the front of `data`, and return up to `out_bytes` plain bytes. Push the rest of `data`
    /// again, with more data after it; `at_end` means that there is no more. Every push uses input, returns
    /// output, finishes or fails, unless it needs input and got none.
    pub fn push(&mut self, data: &[u8], at_end: bool, out_bytes: usize) -> Result<Piece, Fault> {
        self.push_after(&[], [data, &[]], at_end, out_bytes)
    }

    /// The same for two consecutive inputs. The plain bytes are returned after a copy of `prefix`.
    /// So callers need not concatenate the inputs, or the output with what they kept from the
    /// previous push.
    pub fn push_after(
        &mut self,
        prefix: &[u8],
        data: [&[u8]; 2],
        at_end: bool,
        out_bytes: usize,
    ) -> Result<Piece, Fault> {
        let floor = prefix.len();
        let [mut rest, mut more] = data;
        let in_bytes = rest.len().saturating_add(more.len());
        // Reserve at most what the input can expand to, so that a large `out_bytes` costs nothing.
        let most = in_bytes.saturating_add(HELD_BYTES).saturating_mul(MAX_RATIO);
        let room = floor.saturating_add(out_bytes.min(most));
        let mut plain = buffer_pool::take_used(room).ok_or_else(|| no_memory(room))?;
        let mut filled = floor;
        if let Some(front) = plain.get_mut(..floor) {
            front.copy_from_slice(prefix);
        }
        loop {
            if rest.is_empty() {
                (rest, more) = (more, &[]);
            }
            let at_end = at_end && more.is_empty();
            let step = match self.state {
                State::Finished => Ok(Step::Stop),
                State::Failed if filled == floor => return Err(self.failed()),
                State::Failed => Ok(Step::Stop),
                State::Start => self.start(rest.is_empty(), at_end),
                State::Header => self.header(&mut rest, at_end),
                State::Body => self.body(&mut rest, at_end, &mut plain, &mut filled),
                State::Trailer => self.trailer(&mut rest, at_end),
            };
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Stop) if rest.is_empty() && !more.is_empty() => {}
                Ok(Step::Stop) => break,
                Err(fault) => {
                    self.state = State::Failed;
                    self.fault = Some(fault);
                }
            }
        }
        plain.truncate(filled);
        if plain.len() < plain.capacity() / 2 {
            let all = buffer_pool::pooled(plain);
            plain = all.as_slice().to_vec();
        }
        let left = rest.len().saturating_add(more.len());
        Ok(Piece { plain, consumed: in_bytes.saturating_sub(left) })
    }

    #[cold]
    fn failed(&self) -> Fault {
        self.fault.clone().unwrap_or_else(|| self.compression("the stream has failed before"))
    }

    #[cold]
    fn compression(&self, message: &str) -> Fault {
        Fault::new(FaultKind::Compression, self.compressed, message)
    }

    fn start(&mut self, is_empty: bool, at_end: bool) -> Result<Step, Fault> {
        if is_empty {
            if at_end {
                self.state = State::Finished;
            }
            return Ok(Step::Stop);
        }
        self.member = Member::begun(self.container, self.compressed, self.plain);
        self.reader = HeaderReader::new(self.container);
        self.state = State::Header;
        Ok(Step::Again)
    }

    fn header(&mut self, rest: &mut &[u8], at_end: bool) -> Result<Step, Fault> {
        let used = self.reader.feed(rest).map_err(|fault| self.bad_header(fault))?;
        self.advance(rest, used);
        if self.reader.is_done() {
            self.begin_member()?;
            return Ok(Step::Again);
        }
        if at_end {
            return Err(self.cut_header());
        }
        Ok(Step::Stop)
    }

    fn advance(&mut self, rest: &mut &[u8], used: usize) {
        *rest = rest.get(used..).unwrap_or_default();
        self.compressed = self.compressed.wrapping_add(used as u64);
    }

    /// The fault of a bad header. Bytes that do not begin like a header are trailing bytes.
    #[cold]
    fn bad_header(&self, fault: Fault) -> Fault {
        if self.num_members > 0 && !self.reader.is_recognised() {
            return self.trailing();
        }
        fault.shifted(self.member.start)
    }

    #[cold]
    fn trailing(&self) -> Fault {
        let name = match self.container {
            Container::Gzip => "bytes after the last gzip member",
            Container::Zlib => "bytes after the zlib stream",
        };
        Fault::new(FaultKind::TrailingBytes, self.member.start, name)
    }

    #[cold]
    fn cut_header(&self) -> Fault {
        let found = self.reader.length().max(self.compressed.saturating_sub(self.member.start));
        if self.num_members > 0 && found < PLAIN_HEAD_BYTES as u64 {
            let mut fault = self.trailing();
            fault.found = Some(found);
            return fault;
        }
        let message = format!("{} header is truncated", self.container.name());
        Fault::new(FaultKind::Truncated, self.compressed, message)
    }

    fn begin_member(&mut self) -> Result<(), Fault> {
        if self.container == Container::Zlib && self.num_members > 0 {
            let fault =
                Fault::new(FaultKind::SecondStream, self.member.start, "second zlib stream");
            if !self.join_streams {
                return Err(fault);
            }
            self.find(fault);
        }
        if let Some(start) = self.empty.take() {
            self.num_empty = self.num_empty.saturating_add(1);
            let message = "empty gzip member before others";
            self.find(Fault::new(FaultKind::EmptyMember, start, message));
        }
        self.raw.reset();
        self.state = State::Body;
        if self.point_bytes > 0 {
            self.members.push((self.member.start, self.plain));
            // A seek point at a member's start needs no window, so it is taken well before a point is due.
            if self.last_point.is_none() || self.since_point() >= self.point_bytes.div_ceil(2) {
                self.point(self.member.start.wrapping_mul(8), Vec::new());
            }
        }
        Ok(())
    }

    fn find(&mut self, fault: Fault) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(fault);
        }
    }

    fn since_point(&self) -> u64 {
        self.plain.saturating_sub(self.last_point.unwrap_or(0))
    }

    fn point(&mut self, compressed_bit: u64, window: Vec<u8>) {
        self.last_point = Some(self.plain);
        self.points.push(SeekPoint { compressed_bit, plain_start: self.plain, window });
    }

    fn body(
        &mut self,
        rest: &mut &[u8],
        at_end: bool,
        plain: &mut [u8],
        filled: &mut usize,
    ) -> Result<Step, Fault> {
        let mut room = plain.get_mut(*filled..).unwrap_or_default();
        if room.is_empty() {
            return Ok(Step::Stop);
        }
        if self.skip_bits > 0 && !self.enter_byte(rest) {
            return if at_end { Err(self.cut_body()) } else { Ok(Step::Stop) };
        }
        let mut to_border = false;
        if self.point_bytes > 0 {
            let left = self.point_bytes.saturating_sub(self.since_point());
            to_border = left == 0;
            if !to_border {
                let most = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                room = room.get_mut(..most).unwrap_or_default();
            }
        }
        let done = self.raw.inflate(rest, room, to_border);
        self.advance(rest, done.consumed);
        self.member.sum.update(room.get(..done.produced).unwrap_or_default());
        self.plain = self.plain.wrapping_add(done.produced as u64);
        *filled = filled.wrapping_add(done.produced);
        match done.pause {
            Pause::Full => {}
            Pause::End => self.state = State::Trailer,
            Pause::Border => self.border(),
            Pause::Broken(message) => return Err(self.compression(message)),
            Pause::Hungry if at_end => return Err(self.cut_body()),
            Pause::Hungry => return Ok(Step::Stop),
        }
        Ok(Step::Again)
    }

    /// Use the bits of the first byte that belong to the first block after a seek point.
    fn enter_byte(&mut self, rest: &mut &[u8]) -> bool {
        let Some(&first) = rest.first() else {
            return false;
        };
        self.raw.prime(8u32.saturating_sub(self.skip_bits), first.wrapping_shr(self.skip_bits));
        self.skip_bits = 0;
        self.advance(rest, 1);
        true
    }

    fn border(&mut self) {
        let due = self.point_bytes > 0 && self.since_point() >= self.point_bytes;
        if due && !self.member.is_empty(self.plain) {
            let unused = u64::from(self.raw.unused_bits());
            let window = self.raw.window().to_vec();
            self.point(self.compressed.wrapping_mul(8).saturating_sub(unused), window);
        }
    }

    #[cold]
    fn cut_body(&self) -> Fault {
        let message = format!("{} data is truncated", self.container.name());
        Fault::new(FaultKind::Truncated, self.compressed, message)
    }

    fn trailer(&mut self, rest: &mut &[u8], at_end: bool) -> Result<Step, Fault> {
        let used = self.member.fill_trailer(rest);
        self.advance(rest, used);
        if !self.member.has_trailer() && !at_end {
            return Ok(Step::Stop);
        }
        self.member.check_trailer(self.compressed, self.plain)?;
        if self.member.is_empty(self.plain) {
            self.empty = Some(self.member.start);
        }
        self.num_members = self.num_members.saturating_add(1);
        self.state = State::Start;
        Ok(Step::Again)
    }
}

/// Check for any bytes that, however they are divided into pushes, there is no panic and no endless
/// loop, that the plain bytes and the result are always the same, and that inflating from every
/// seek point gives the same rest.
#[cfg(any(test, fuzzing))]
pub fn fuzz_inflate(data: &[u8]) {
    fuzz::run(data);
}

#[cfg(any(test, fuzzing))]
mod fuzz;
mod member;
#[cfg(test)]
mod tests;
