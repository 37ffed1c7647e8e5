//! Output that consists of own bytes, which are written here, and of long values that are borrowed
//! between them. The writer takes these values from their buffers without a copy.

use arrow_buffer::Buffer;

use super::buffer_pool;
use super::views::place_in;
use penstock_codecs::crc32c::extend;

/// How many of the latest owners are compared with the owner of a new value.
const RECENT: usize = 8;

/// Some bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the buffer.
    pub buffer: usize,
    /// Where they start in it.
    pub start: usize,
    /// Where they end.
    pub end: usize,
}

/// Consecutive pieces from a few buffers.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// The buffer of own bytes first, then the owners of borrowed values.
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

    /// Each piece as a buffer, without a copy.
    pub fn parts(&self) -> impl Iterator<Item = Buffer> {
        self.pieces.iter().map(|piece| match self.buffers.get(piece.buffer) {
            Some(whole) => {
                let length = piece.end.saturating_sub(piece.start);
                whole.slice_with_length(piece.start, length)
            }
            None => Buffer::default(),
        })
    }

    /// Total bytes.
    pub fn num_bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.end.saturating_sub(piece.start)).sum()
    }
}

/// Borrowed values, each at its position between the own bytes.
#[derive(Debug, Default)]
pub struct Between {
    /// Each value, with the number of own bytes before it.
    borrowed: Vec<(usize, Piece)>,
    owners: Vec<Buffer>,
    num_bytes: usize,
}

/// A mark: how much had been borrowed at some moment.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    count: usize,
    num_bytes: usize,
}

impl Between {
    /// Borrow a value from its owner at this position among the own bytes. False if the owner does not
    /// contain it.
    pub fn borrow(&mut self, place: usize, value: &[u8], owner: &Buffer) -> bool {
        let Some(start) = place_in(value, owner) else { return false };
        let end = start.wrapping_add(value.len());
        let same = |known: &Buffer| known.as_ptr() == owner.as_ptr() && known.len() == owner.len();
        let recent = self.owners.len().saturating_sub(RECENT);
        let found = self.owners.iter().skip(recent).position(same);
        let number = found.map_or(self.owners.len(), |at| recent.wrapping_add(at));
        if found.is_none() {
            self.owners.push(owner.clone());
        }
        // Buffer 0 holds the own bytes.
        self.borrowed.push((place, Piece { buffer: number.wrapping_add(1), start, end }));
        self.num_bytes = self.num_bytes.saturating_add(value.len());
        true
    }

    /// What has been borrowed so far.
    #[inline(always)]
    pub fn mark(&self) -> Mark {
        Mark { count: self.borrowed.len(), num_bytes: self.num_bytes }
    }

    /// Bytes borrowed since the mark.
    #[inline(always)]
    pub fn bytes_since(&self, mark: Mark) -> usize {
        self.num_bytes.wrapping_sub(mark.num_bytes)
    }

    /// The CRC-32C of own bytes and the values borrowed between them since the mark.
    #[inline]
    pub fn crc32c(&self, own: &[u8], start: usize, end: usize, since: Mark) -> u32 {
        let (mut at, mut crc) = (start, 0);
        for (place, piece) in self.borrowed.get(since.count..).unwrap_or_default() {
            crc = extend(crc, own.get(at..*place).unwrap_or_default());
            let owner = self.owners.get(piece.buffer.wrapping_sub(1));
            let value = owner.and_then(|all| all.get(piece.start..piece.end));
            crc = extend(crc, value.unwrap_or_default());
            at = *place;
        }
        extend(crc, own.get(at..end).unwrap_or_default())
    }

    /// Own and borrowed bytes, in order.
    pub fn finish(self, own: Vec<u8>) -> Pieces {
        let mut pieces =
            Vec::with_capacity(self.borrowed.len().saturating_mul(2).saturating_add(1));
        let mut done = 0;
        for (place, piece) in self.borrowed {
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
        buffers.extend(self.owners);
        Pieces { buffers, pieces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_codecs::crc32c::crc32c;

    #[test]
    fn own_and_borrowed_bytes_stand_in_the_order_they_came() {
        let buffer = Buffer::from_vec(b"first, lent, and lent".to_vec());
        let own = b", own, last".to_vec();
        let mut between = Between::default();
        let start = between.mark();
        assert!(between.borrow(0, &buffer[..5], &buffer));
        let middle = between.mark();
        assert!(between.borrow(5, &buffer[5..11], &buffer));
        assert!(between.borrow(5, &buffer[11..], &buffer.slice(3)));
        assert!(!between.borrow(7, b"a value of another buffer", &buffer));
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
    fn what_is_not_borrowed_is_one_part() {
        let own = Between::default().finish(b"whole".to_vec());
        for whole in [own, Pieces::whole(b"whole".to_vec())] {
            assert_eq!(whole.parts().collect::<Vec<_>>(), [Buffer::from_vec(b"whole".to_vec())]);
        }
        let nothing = Between::default().finish(Vec::new());
        assert_eq!(nothing.parts().collect::<Vec<_>>(), [Buffer::default()]);
    }
}
