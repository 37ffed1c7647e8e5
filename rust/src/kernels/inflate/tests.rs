use libdeflater::{CompressionLvl, Compressor};

use super::fuzz::drain;
use super::*;
use crate::kernels::deflate::{ZlibDeflater, gzip_member};

/// Bytes that deflate to many blocks: runs of text, noise and zeros.
fn sample(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    let mut out = Vec::with_capacity(length + 64);
    while out.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match state >> 30 {
            0 => out.extend_from_slice(&[0; 50]),
            1 => out.extend_from_slice(format!("record {}, ", state >> 20).as_bytes()),
            _ => out.extend_from_slice(&state.to_le_bytes()),
        }
    }
    out.truncate(length);
    out
}

/// A member as others write it: no extra field.
fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::new(6).unwrap());
    let mut out = vec![0; compressor.gzip_compress_bound(plain.len())];
    let length = compressor.gzip_compress(plain, &mut out).unwrap();
    out.truncate(length);
    out
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    let mut deflater = ZlibDeflater::new(6, false).unwrap();
    let mut out = deflater.push(plain).unwrap();
    out.extend(deflater.finish().unwrap());
    out
}

fn inflate(container: Container, data: &[u8]) -> (Vec<u8>, Option<Fault>, Vec<Fault>) {
    let mut inflater = Inflater::new(container, 0).unwrap();
    let (plain, fault, _) = drain(&mut inflater, data, 1 << 16, 1 << 20);
    (plain, fault, inflater.take_findings())
}

fn kind(fault: &Option<Fault>) -> Option<FaultKind> {
    fault.as_ref().map(|fault| fault.kind)
}

#[test]
fn pieces_of_every_size_give_the_same_bytes() {
    let plain = sample(3000);
    let file = [gzip(&plain[..1000]), gzip(&plain[1000..1001]), gzip(&plain[1001..])].concat();
    for in_bytes in 1..60 {
        for out_bytes in [1, 7, 100, 5000] {
            let mut inflater = Inflater::new(Container::Gzip, 0).unwrap();
            let (found, fault, _) = drain(&mut inflater, &file, in_bytes, out_bytes);
            assert!(fault.is_none() && found == plain, "{in_bytes} in, {out_bytes} out");
            assert_eq!(inflater.compressed_bytes(), file.len() as u64);
            assert_eq!(inflater.num_members(), 3);
        }
    }
}

#[test]
fn from_every_seek_point_the_rest_is_the_same() {
    let plain = sample(700_000);
    let members =
        [gzip(&plain[..300_000]), gzip(&plain[300_000..310_000]), gzip(&plain[310_000..])];
    for (container, file) in [(Container::Gzip, members.concat()), (Container::Zlib, zlib(&plain))]
    {
        for point_bytes in [1, 1000, 20_000] {
            let mut inflater = Inflater::new(container, point_bytes).unwrap();
            let (found, fault, points) = drain(&mut inflater, &file, 4096, 10_000);
            assert!(fault.is_none() && found == plain);
            assert!(points.len() >= 3, "{} points", points.len());
            assert!(points.iter().any(|point| point.compressed_bit % 8 != 0), "in a byte");
            for point in &points {
                let from = (point.compressed_bit / 8) as usize;
                let mut inside = Inflater::at_point(container, point).unwrap();
                let (rest, fault, _) = drain(&mut inside, &file[from..], 70_000, 100_000);
                assert!(fault.is_none() && rest == plain[point.plain_start as usize..]);
                assert_eq!(inside.plain_bytes(), plain.len() as u64);
                assert_eq!(inside.compressed_bytes(), file.len() as u64);
            }
        }
    }
}

#[test]
fn empty_members_are_read_over_and_named() {
    let (a, b, empty) = (gzip(b"one "), gzip(b"two"), gzip(b""));
    let (plain, fault, findings) = inflate(Container::Gzip, &[&a[..], &empty, &b].concat());
    assert_eq!((plain.as_slice(), fault), (&b"one two"[..], None));
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].kind, findings[0].byte), (FaultKind::EmptyMember, a.len() as u64));
    let (plain, fault, findings) = inflate(Container::Gzip, &[&a[..], &b, &empty].concat());
    assert_eq!((plain.as_slice(), fault), (&b"one two"[..], None));
    assert!(findings.is_empty(), "the last one is harmless");
    assert_eq!(inflate(Container::Gzip, b""), (vec![], None, vec![]));
}

#[test]
fn every_cut_is_a_fault_after_what_was_good() {
    let plain = sample(500);
    for (container, file) in [(Container::Gzip, gzip(&plain)), (Container::Zlib, zlib(&plain))] {
        let data_end = file.len() - container.trailer_bytes();
        for cut in 1..file.len() {
            let (found, fault, _) = inflate(container, &file[..cut]);
            assert!(plain.starts_with(&found));
            let want = if cut < data_end { FaultKind::Truncated } else { FaultKind::CutTrailer };
            assert_eq!(kind(&fault), Some(want), "cut at {cut} of {}", file.len());
            assert_eq!(fault.unwrap().byte, cut as u64);
            assert!(cut < data_end || found == plain);
        }
    }
}

#[test]
fn wrong_trailers_have_different_faults() {
    let mut file = gzip(b"some bytes");
    let end = file.len();
    file[end - 1] ^= 1;
    let (plain, fault, _) = inflate(Container::Gzip, &file);
    let fault = fault.unwrap();
    assert_eq!(plain, b"some bytes");
    assert_eq!((fault.kind, fault.byte), (FaultKind::CompressionChecksum, end as u64 - 4));
    assert_eq!((fault.expected, fault.found), (Some((1 << 24) + 10), Some(10)));
    file[end - 8] ^= 1;
    let fault = inflate(Container::Gzip, &file).1.unwrap();
    assert_eq!((fault.kind, fault.byte), (FaultKind::CompressionChecksum, end as u64 - 8));
    let mut file = zlib(b"some bytes");
    let end = file.len();
    file[end - 4] ^= 1;
    let fault = inflate(Container::Zlib, &file).1.unwrap();
    assert_eq!((fault.kind, fault.byte), (FaultKind::CompressionChecksum, end as u64 - 4));
}

#[test]
fn bytes_after_the_end_are_a_fault() {
    for (container, good) in [(Container::Gzip, gzip(b"good")), (Container::Zlib, zlib(b"good"))] {
        for tail in [&b"x"[..], b"\0", &[0; 16], b"garbage", b"\x1f", b"\x1f\x8b\x08", b"x\x9c"] {
            if container == Container::Zlib && tail == b"x\x9c" {
                continue;
            }
            let (plain, fault, _) = inflate(container, &[&good[..], tail].concat());
            let fault = fault.unwrap();
            assert_eq!(plain, b"good");
            assert_eq!((fault.kind, fault.byte), (FaultKind::TrailingBytes, good.len() as u64));
        }
    }
}

#[test]
fn a_second_zlib_stream_is_a_fault_or_is_read_and_named() {
    let first = zlib(b"one ");
    let file = [first.clone(), zlib(b"two")].concat();
    let (plain, fault, _) = inflate(Container::Zlib, &file);
    assert_eq!(plain, b"one ");
    let want = (FaultKind::SecondStream, first.len() as u64);
    assert_eq!(fault.map(|fault| (fault.kind, fault.byte)), Some(want));
    let mut joined = Inflater::new(Container::Zlib, 0).unwrap().join_streams();
    let (plain, fault, _) = drain(&mut joined, &file, 5, 5);
    assert_eq!((plain.as_slice(), fault), (&b"one two"[..], None));
    assert_eq!(joined.take_findings().first().map(|fault| (fault.kind, fault.byte)), Some(want));
}

#[test]
fn the_wrong_container_is_no_header() {
    assert_eq!(kind(&inflate(Container::Gzip, &zlib(b"x")).1), Some(FaultKind::Compression));
    assert_eq!(kind(&inflate(Container::Zlib, &gzip(b"x")).1), Some(FaultKind::Compression));
}

#[test]
fn a_fault_is_returned_again_and_again() {
    let mut inflater = Inflater::new(Container::Gzip, 0).unwrap();
    let first = inflater.push(b"no gzip", true, 10).unwrap_err();
    assert_eq!(inflater.push(&gzip(b"x"), true, 10).unwrap_err(), first);
    assert!(!inflater.is_finished());
}

#[test]
fn a_bomb_stays_within_the_output_asked() {
    let bomb = gzip(&vec![0; 3 << 20]);
    let mut inflater = Inflater::new(Container::Gzip, 0).unwrap();
    let piece = inflater.push(&bomb, true, 1000).unwrap();
    assert_eq!((piece.plain.len(), inflater.plain_bytes()), (1000, 1000));
    let (rest, fault, _) = drain(&mut inflater, &bomb[piece.consumed..], 10, 100_000);
    assert!(fault.is_none() && rest.len() == (3 << 20) - 1000);
}

#[test]
fn the_fuzz_body_holds_over_cut_and_flipped_files() {
    let plain = sample(400);
    let file = [gzip(&plain), gzip(b""), gzip_member(&plain[..100], 1, 6).unwrap()].concat();
    for (choice, file) in [(2, file), (3, zlib(&plain))] {
        for at in 0..file.len() {
            let mut input = vec![choice, (at * 7) as u8];
            input.extend_from_slice(&file[..at]);
            fuzz_inflate(&input);
            input.extend_from_slice(&file[at..]);
            input[2 + at] ^= 1 << (at % 8);
            fuzz_inflate(&input);
        }
    }
}

#[test]
fn the_fuzz_body_holds_over_noise() {
    let noise = sample(1 << 16);
    for start in 0..3000 {
        let mut input = noise[start * 20..start * 20 + 100].to_vec();
        if start % 2 == 0 {
            // Past the header, or nothing would be tried but headers.
            input[0] &= 0xfe;
            input[2..12].copy_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
        }
        fuzz_inflate(&input);
    }
}
