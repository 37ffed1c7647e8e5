//! Inflates the same raw deflate data with zlib-rs, for the tests.

use zlib_rs::{Inflate, InflateFlush, Status};

use super::{Pause, RawInflate};

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// After its last block, with the number of input bytes used.
    Ended(usize),
    Cut,
    Broken,
    /// More plain bytes than requested.
    TooLong,
}

fn by_zlib(data: &[u8], most: usize) -> (Vec<u8>, Verdict) {
    let mut inflate = Inflate::new(false, 15);
    let mut plain = vec![0; most];
    let status = inflate.decompress(data, &mut plain, InflateFlush::NoFlush);
    plain.truncate(inflate.total_out() as usize);
    let verdict = match status {
        Ok(Status::StreamEnd) => Verdict::Ended(inflate.total_in() as usize),
        Ok(_) if plain.len() == most => Verdict::TooLong,
        Ok(_) => Verdict::Cut,
        Err(_) => Verdict::Broken,
    };
    (plain, verdict)
}

fn by_us(data: &[u8], most: usize, in_bytes: usize, out_bytes: usize) -> (Vec<u8>, Verdict) {
    let mut raw = RawInflate::default();
    let (mut plain, mut at) = (Vec::new(), 0usize);
    loop {
        let end = at.saturating_add(in_bytes).min(data.len());
        let mut room = vec![0; out_bytes.min(most.saturating_sub(plain.len()))];
        let done = raw.inflate(data.get(at..end).unwrap_or_default(), &mut room, false);
        plain.extend_from_slice(room.get(..done.produced).unwrap_or_default());
        at = at.saturating_add(done.consumed);
        match done.pause {
            Pause::End => return (plain, Verdict::Ended(at)),
            Pause::Broken(_) => return (plain, Verdict::Broken),
            Pause::Hungry if at == data.len() => return (plain, Verdict::Cut),
            Pause::Full if plain.len() == most => return (plain, Verdict::TooLong),
            Pause::Hungry | Pause::Full => {}
            Pause::Border => unreachable!("not asked for"),
        }
    }
}

/// Check that both inflaters give the same bytes and the same verdict, however the data is divided.
pub fn agree(data: &[u8], most: usize, in_bytes: usize, out_bytes: usize) -> Verdict {
    let (want, verdict) = by_zlib(data, most);
    for (in_bytes, out_bytes) in [(usize::MAX, usize::MAX), (in_bytes.max(1), out_bytes.max(1))] {
        let (found, our_verdict) = by_us(data, most, in_bytes, out_bytes);
        if verdict != Verdict::TooLong || our_verdict != Verdict::Broken {
            assert_eq!(our_verdict, verdict, "{in_bytes} in, {out_bytes} out");
        }
        assert!(found == want, "{} bytes, where zlib has {}", found.len(), want.len());
    }
    verdict
}
