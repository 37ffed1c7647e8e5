//! A reader over a slice that checks every step and knows its offset.

use super::{Fault, FaultKind};

/// Reads from the front of a slice. Every fault has the position where it was found.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the start of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0 }
    }

    /// The same bytes, from another offset on.
    #[inline(always)]
    pub fn at(&self, at: usize) -> Self {
        Self { data: self.data, at }
    }

    /// Bytes read so far.
    #[inline(always)]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The bytes read since an offset.
    #[inline(always)]
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.data.get(start..self.at).unwrap_or_default()
    }

    /// The bytes not read yet.
    #[inline(always)]
    pub fn rest(&self) -> &'a [u8] {
        self.data.get(self.at..).unwrap_or_default()
    }

    /// Whether everything has been read.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.at >= self.data.len()
    }

    /// The next `length` bytes.
    #[inline(always)]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        match self.rest().get(..length) {
            Some(bytes) => {
                self.at = self.at.wrapping_add(length);
                Ok(bytes)
            }
            None => Err(self.truncated(length)),
        }
    }

    #[cold]
    fn truncated(&self, length: usize) -> Fault {
        Fault::new(
            FaultKind::Truncated,
            self.at as u64,
            format!("{length} bytes announced, {} left", self.rest().len()),
        )
        .values(length as u64, self.rest().len() as u64)
    }

    /// One byte.
    #[inline(always)]
    pub fn u8(&mut self) -> Result<u8, Fault> {
        match self.data.get(self.at) {
            Some(byte) => {
                self.at = self.at.wrapping_add(1);
                Ok(*byte)
            }
            None => Err(self.truncated(1)),
        }
    }

    /// Two bytes, little endian.
    #[inline(always)]
    pub fn u16_le(&mut self) -> Result<u16, Fault> {
        let mut word = [0; 2];
        word.copy_from_slice(self.take(2)?);
        Ok(u16::from_le_bytes(word))
    }

    /// Four bytes, little endian.
    #[inline(always)]
    pub fn u32_le(&mut self) -> Result<u32, Fault> {
        let mut word = [0; 4];
        word.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(word))
    }

    /// Eight bytes, little endian.
    #[inline(always)]
    pub fn u64_le(&mut self) -> Result<u64, Fault> {
        let mut word = [0; 8];
        word.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(word))
    }

    /// A base-128 varint of at most ten bytes, as protobuf reads it: bits beyond 64 are dropped.
    #[inline(always)]
    pub fn varint(&mut self) -> Result<u64, Fault> {
        match self.data.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at = self.at.wrapping_add(1);
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    /// A varint of at most five bytes, as protobuf reads tags and lengths.
    #[inline(always)]
    pub fn short_varint(&mut self) -> Result<u64, Fault> {
        let start = self.at;
        let value = self.varint()?;
        if self.at.wrapping_sub(start) > 5 {
            return Err(Fault::new(
                FaultKind::Message,
                start as u64,
                "tag or length of over 5 bytes",
            ));
        }
        Ok(value)
    }

    fn long_varint(&mut self) -> Result<u64, Fault> {
        match super::varint::read(self.rest()) {
            Some((value, length)) => {
                self.at = self.at.wrapping_add(length);
                Ok(value)
            }
            None => Err(super::varint::endless(self.at as u64)),
        }
    }

    /// A varint length, then that many bytes.
    #[inline(always)]
    pub fn length_prefixed(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.short_varint()?;
        match usize::try_from(length) {
            Ok(length) => self.take(length),
            Err(_) => Err(self.truncated(usize::MAX)),
        }
    }
}
