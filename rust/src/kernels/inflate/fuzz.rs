//! The body of the fuzz target. The tests also run it over truncated and altered files.

use super::*;
use crate::kernels::members::inflate_members;
use crate::wire::gzip::member_head;

/// Large enough to cross block boundaries, and small enough to be fast.
const MAX_PLAIN: u64 = 4 << 20;

/// Inflate everything in pieces of given sizes. Returns the plain bytes, the fault that ended it, and the
/// seek points.
pub fn drain(
    inflater: &mut Inflater,
    data: &[u8],
    in_bytes: usize,
    out_bytes: usize,
) -> (Vec<u8>, Option<Fault>, Vec<SeekPoint>) {
    let (mut plain, mut at, mut points) = (Vec::new(), 0usize, Vec::new());
    let begun = inflater.plain_bytes();
    loop {
        let end = at.saturating_add(in_bytes).min(data.len());
        let at_end = end == data.len();
        let part = data.get(at..end).unwrap_or_default();
        let (head, tail) = part.split_at(part.len() / 3);
        let piece = match inflater.push_after(&[], [head, tail], at_end, out_bytes) {
            Ok(piece) => piece,
            Err(fault) => {
                points.append(&mut inflater.take_points());
                return (plain, Some(fault), points);
            }
        };
        assert!(piece.plain.len() <= out_bytes, "more than asked");
        assert!(piece.consumed <= end.saturating_sub(at), "took more than there is");
        let moved = piece.consumed > 0 || !piece.plain.is_empty();
        at = at.saturating_add(piece.consumed);
        plain.extend_from_slice(&piece.plain);
        points.append(&mut inflater.take_points());
        assert_eq!(inflater.plain_bytes(), begun.wrapping_add(plain.len() as u64));
        if inflater.is_finished() || plain.len() as u64 > MAX_PLAIN {
            return (plain, None, points);
        }
        assert!(moved, "stands still");
    }
}

pub fn run(data: &[u8]) {
    let Some((&[choice, sizes], body)) = data.split_first_chunk::<2>() else {
        return;
    };
    let container = if choice & 1 == 0 { Container::Gzip } else { Container::Zlib };
    let point_bytes = u64::from(choice >> 1).saturating_mul(37);
    let make = || Inflater::new(container, point_bytes);
    let (Ok(mut whole), Ok(mut cut)) = (make(), make()) else {
        return;
    };
    let (in_bytes, out_bytes) =
        (usize::from(sizes & 15).saturating_add(1), usize::from(sizes >> 4).saturating_mul(61) + 1);
    let (plain, fault, points) = drain(&mut whole, body, usize::MAX, 1 << 16);
    if plain.len() as u64 <= MAX_PLAIN {
        let again = drain(&mut cut, body, in_bytes, out_bytes);
        assert_eq!(again.0, plain);
        assert_eq!(again.1.map(|fault| fault.kind), fault.as_ref().map(|fault| fault.kind));
        assert_eq!(again.2, points);
    }
    for point in points.iter().take(8) {
        let Ok(mut inside) = Inflater::at_point(container, point) else {
            continue;
        };
        let from = usize::try_from(point.compressed_bit / 8).unwrap_or(usize::MAX);
        let (rest, _, _) = drain(&mut inside, body.get(from..).unwrap_or_default(), 4096, 1 << 16);
        let want = plain.get(point.plain_start as usize..).unwrap_or_default();
        let shared = want.len().min(rest.len());
        assert_eq!(rest.get(..shared), want.get(..shared));
    }
    let one = inflate_members(body, &[(0, body.len())], 1 << 20);
    if let Ok(one) = one {
        assert_eq!(one, plain, "at once and in pieces");
    }
    if let Some((bytes, _)) = member_head(body) {
        assert!(bytes > 0);
    }
}
