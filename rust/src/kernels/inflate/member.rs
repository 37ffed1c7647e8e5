//! The state of the member (or zlib stream) being inflated, and the check at its end.

use libdeflater::{Adler32, Crc};

use crate::wire::gzip::{Container, TRAILER_BYTES, trailer};
use crate::wire::{Fault, FaultKind};

/// The running checksum of a member.
pub enum Sum {
    /// Of gzip.
    Crc(Crc),
    /// Of zlib.
    Adler(Adler32),
    /// The member was entered in the middle, so nothing can be verified.
    Unknown,
}

impl Sum {
    /// Add plain bytes.
    pub fn update(&mut self, plain: &[u8]) {
        match self {
            Self::Crc(sum) => sum.update(plain),
            Self::Adler(sum) => sum.update(plain),
            Self::Unknown => {}
        }
    }
}

/// One member, from its first byte to its trailer.
pub struct Member {
    container: Container,
    /// Its first compressed byte.
    pub start: u64,
    plain_start: u64,
    /// The checksum of its plain bytes so far.
    pub sum: Sum,
    /// The bytes of its trailer so far.
    tail: [u8; TRAILER_BYTES],
    tail_have: usize,
}

impl Member {
    /// A member that starts here.
    pub fn begun(container: Container, start: u64, plain_start: u64) -> Self {
        let sum = match container {
            Container::Gzip => Sum::Crc(Crc::new()),
            Container::Zlib => Sum::Adler(Adler32::new()),
        };
        Self { container, start, plain_start, sum, tail: [0; TRAILER_BYTES], tail_have: 0 }
    }

    /// A member that is entered here, in its middle.
    pub fn entered(container: Container, at: u64) -> Self {
        let sum = Sum::Unknown;
        Self { container, start: at, plain_start: 0, sum, tail: [0; TRAILER_BYTES], tail_have: 0 }
    }

    /// Whether it has given no plain byte yet, if the whole file has given `plain` bytes.
    pub fn is_empty(&self, plain: u64) -> bool {
        !matches!(self.sum, Sum::Unknown) && plain == self.plain_start
    }

    /// Take trailer bytes from the front of `data`, and return how many.
    pub fn fill_trailer(&mut self, data: &[u8]) -> usize {
        let mut used = 0usize;
        let wanted = self.container.trailer_bytes();
        let free = self.tail.iter_mut().take(wanted).skip(self.tail_have);
        for (to, from) in free.zip(data) {
            *to = *from;
            used = used.wrapping_add(1);
        }
        self.tail_have = self.tail_have.wrapping_add(used);
        used
    }

    /// Whether the trailer is complete.
    pub fn has_trailer(&self) -> bool {
        self.tail_have == self.container.trailer_bytes()
    }

    /// Verify the part of the trailer that is there, then that it is complete. `compressed` and `plain` are
    /// positions in the whole file.
    pub fn check_trailer(&self, compressed: u64, plain: u64) -> Result<(), Fault> {
        let at = compressed.saturating_sub(self.tail_have as u64);
        self.check_sums(at, plain)?;
        if self.has_trailer() {
            return Ok(());
        }
        let message = match self.container {
            Container::Gzip => "gzip trailer is truncated",
            Container::Zlib => "zlib checksum is truncated",
        };
        let wanted = self.container.trailer_bytes() as u64;
        let fault = Fault::new(FaultKind::CutTrailer, compressed, message);
        Err(fault.values(wanted, self.tail_have as u64))
    }

    fn check_sums(&self, at: u64, plain: u64) -> Result<(), Fault> {
        let (checksum, length) = trailer(self.tail);
        let (stored, found, message) = match &self.sum {
            Sum::Unknown => return Ok(()),
            Sum::Crc(sum) => (checksum, sum.sum(), "gzip checksum does not match"),
            Sum::Adler(sum) => (checksum.swap_bytes(), sum.sum(), "zlib checksum does not match"),
        };
        if self.tail_have >= 4 && stored != found {
            return Err(mismatch(at, stored, found, message));
        }
        let plain_bytes = plain.wrapping_sub(self.plain_start) as u32;
        if self.tail_have == TRAILER_BYTES && length != plain_bytes {
            let at = at.saturating_add(4);
            return Err(mismatch(at, length, plain_bytes, "gzip length does not match"));
        }
        Ok(())
    }
}

#[cold]
fn mismatch(byte: u64, stored: u32, found: u32, message: &str) -> Fault {
    Fault::new(FaultKind::CompressionChecksum, byte, message)
        .values(u64::from(stored), u64::from(found))
}
