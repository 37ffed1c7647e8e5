//! A result in the making: bytes of its own and, between them, long values that stay where they lie.
//! Who writes the result takes them from there, so that they are not copied on the way.

use arrow_buffer::Buffer;

use super::buffer_pool;
use super::views::place_in;
use penstock_codecs::crc32c::extend;

/// So many buffers are looked through for one that has lent before.
const RECENT: usize = 8;

/// Some bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its number among the buffers.
    pub buffer: usize,
    /// Where they start in it.
    pub start: usize,
    /// Where they end.
    pub end: usize,
}

/// Pieces of a few buffers, which follow one another.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// What they lie in: first the bytes that were made here.
    pub buffers: Vec<Buffer>,
    /// At least one.
    pub pieces: Vec<Piece>,
}

impl Pieces {
    /// One buffer.
    pub fn whole(bytes: Vec<u8>) -> Self {
        let end = bytes.len();
        let pieces = vec![Piece { buffer: 0, start: 0, end }];
        Self { buffers: vec![buffer_pool::pooled(bytes)], pieces }
    }

    /// Each as a buffer.
    pub fn parts(&self) -> impl Iterator<Item = Buffer> {
        self.pieces.iter().map(|piece| match self.buffers.get(piece.buffer) {
            Some(whole) => {
                let length = piece.end.saturating_sub(piece.start);
                whole.slice_with_length(piece.start, length)
            }
            None => Buffer::default(),
        })
    }

    /// How many bytes they are.
    pub fn num_bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.end.saturating_sub(piece.start)).sum()
    }
}

/// Values that are lent, each at a place between the bytes that are made here.
#[derive(Debug, Default)]
pub struct Between {
    /// Each with the number of own bytes before it.
    lent: Vec<(usize, Piece)>,
    lenders: Vec<Buffer>,
    num_bytes: usize,
}

/// What has been lent so far.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    count: usize,
    num_bytes: usize,
}

impl Between {
    /// What stands at this place lies in that buffer; false if it does not.
    pub fn lend(&mut self, place: usize, value: &[u8], lender: &Buffer) -> bool {
        let Some(start) = place_in(value, lender) else { return false };
        let end = start.wrapping_add(value.len());
        let same =
            |known: &Buffer| known.as_ptr() == lender.as_ptr() && known.len() == lender.len();
        let recent = self.lenders.len().saturating_sub(RECENT);
        let found = self.lenders.iter().skip(recent).position(same);
        let number = found.map_or(self.lenders.len(), |at| recent.wrapping_add(at));
        if found.is_none() {
            self.lenders.push(lender.clone());
        }
        // The first buffer will be that of the own bytes.
        self.lent.push((place, Piece { buffer: number.wrapping_add(1), start, end }));
        self.num_bytes = self.num_bytes.saturating_add(value.len());
        true
    }

    /// What has been lent until now.
    #[inline(always)]
    pub fn mark(&self) -> Mark {
        Mark { count: self.lent.len(), num_bytes: self.num_bytes }
    }

    /// Bytes that were lent since.
    #[inline(always)]
    pub fn bytes_since(&self, mark: Mark) -> usize {
        self.num_bytes.wrapping_sub(mark.num_bytes)
    }

    /// The CRC32C of own bytes and of what was lent between them since.
    #[inline]
    pub fn crc32c(&self, own: &[u8], start: usize, end: usize, since: Mark) -> u32 {
        let (mut at, mut crc) = (start, 0);
        for (place, piece) in self.lent.get(since.count..).unwrap_or_default() {
            crc = extend(crc, own.get(at..*place).unwrap_or_default());
            let lender = self.lenders.get(piece.buffer.wrapping_sub(1));
            let value = lender.and_then(|all| all.get(piece.start..piece.end));
            crc = extend(crc, value.unwrap_or_default());
            at = *place;
        }
        extend(crc, own.get(at..end).unwrap_or_default())
    }

    /// All of it, in order.
    pub fn finish(self, own: Vec<u8>) -> Pieces {
        let mut pieces = Vec::with_capacity(self.lent.len().saturating_mul(2).saturating_add(1));
        let mut done = 0;
        for (place, piece) in self.lent {
            if place > done {
                pieces.push(Piece { buffer: 0, start: done, end: place });
            }
            done = place;
            pieces.push(piece);
        }
        if done < own.len() || pieces.is_empty() {
            pieces.push(Piece { buffer: 0, start: done, end: own.len() });
        }
        let mut buffers = vec![buffer_pool::pooled(own)];
        buffers.extend(self.lenders);
        Pieces { buffers, pieces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_codecs::crc32c::crc32c;

    #[test]
    fn own_and_lent_bytes_stand_in_the_order_they_came() {
        let buffer = Buffer::from_vec(b"first, lent, and lent".to_vec());
        let own = b", own, last".to_vec();
        let mut between = Between::default();
        let start = between.mark();
        assert!(between.lend(0, &buffer[..5], &buffer));
        let middle = between.mark();
        assert!(between.lend(5, &buffer[5..11], &buffer));
        assert!(between.lend(5, &buffer[11..], &buffer.slice(3)));
        assert!(!between.lend(7, b"a value that lies elsewhere", &buffer));
        let wanted = b"first, own, lent, and lent, last";
        assert_eq!(between.bytes_since(start), 21);
        assert_eq!(between.bytes_since(middle), 16);
        assert_eq!(between.crc32c(&own, 0, own.len(), start), crc32c(wanted));
        assert_eq!(between.crc32c(&own, 2, own.len() - 1, middle), crc32c(&wanted[7..31]));
        let found = between.finish(own);
        assert_eq!((found.buffers.len(), found.parts().count()), (3, 5));
        assert_eq!(found.num_bytes(), wanted.len());
        assert_eq!(found.parts().flat_map(|part| part.to_vec()).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn what_is_not_lent_is_one_part() {
        let own = Between::default().finish(b"whole".to_vec());
        for whole in [own, Pieces::whole(b"whole".to_vec())] {
            assert_eq!(whole.parts().collect::<Vec<_>>(), [Buffer::from_vec(b"whole".to_vec())]);
        }
        let nothing = Between::default().finish(Vec::new());
        assert_eq!(nothing.parts().collect::<Vec<_>>(), [Buffer::default()]);
    }
}
