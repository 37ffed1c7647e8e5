use super::*;
use crate::wire::frames::{Framing, Step};

fn header(name: &[u8], kind: u8, size: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..name.len()].copy_from_slice(name);
    block[124..124 + size.len()].copy_from_slice(size);
    block[156] = kind;
    block[257..263].copy_from_slice(b"ustar\0");
    seal(&mut block);
    block
}

fn seal(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn file(name: &[u8], kind: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = header(name, kind, format!("{:011o}", contents.len()).as_bytes());
    out.extend_from_slice(contents);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

fn found(window: &[u8]) -> Step {
    Tar.next(window, true)
}

fn frame(total: usize) -> Step {
    Step::Frame { payload: 0, length: total, total }
}

fn fault(step: Step) -> FaultKind {
    match step {
        Step::Broken(fault) => fault.kind,
        other => panic!("{other:?}"),
    }
}

fn name_of(bytes: &[u8]) -> Vec<u8> {
    match head(bytes) {
        Head::Member(member) => member.name.to_vec(),
        other => panic!("{other:?}"),
    }
}

type Parts<'a> = Option<(&'a [u8], &'a [u8])>;

#[test]
fn names_split_as_webdataset_splits_them() {
    let cases: [(&[u8], Parts<'_>); 22] = [
        (b"a.jpg", Some((b"a", b"jpg"))),
        (b"a.seg.png", Some((b"a", b"seg.png"))),
        (b"d.ir/a.b.c", Some((b"d.ir/a", b"b.c"))),
        (b"./a.jpg", Some((b"./a", b"jpg"))),
        (b"a.", Some((b"a", b""))),
        (b"a..b", Some((b"a", b".b"))),
        (b"d/.hid", Some((b"d/", b"hid"))),
        (b"e.e/d/.hid", Some((b"e.e/d/", b"hid"))),
        (b"/.hid", Some((b"/", b"hid"))),
        (b"d.ir/.hid", None),
        (b"./.hid", None),
        (b"nokey", None),
        (b".hid", None),
        (b".hid.txt", None),
        (b"a.b/c", None),
        (b"", None),
        (b"__meta__", None),
        (b"__meta__/x.json", None),
        (b"____/x.json", None),
        (b"___/x.json", Some((b"___/x", b"json"))),
        (b"__x__.json", Some((b"__x__", b"json"))),
        (b"d/__meta__/x.json", Some((b"d/__meta__/x", b"json"))),
    ];
    for (name, wanted) in cases {
        let parts = split(name).map(|name| (name.key, name.field));
        assert_eq!(parts, wanted, "{}", String::from_utf8_lossy(name));
    }
}

#[test]
fn a_record_is_a_run_of_members_of_one_key() {
    let first = [file(b"a.x", b'0', b"1"), file(b"a.y", 0, &[7; 600])].concat();
    let bytes = [first.clone(), file(b"b.x", b'7', b"")].concat();
    assert_eq!(Tar.next(&bytes, false), frame(first.len()));
    assert_eq!(found(&bytes[first.len()..]), frame(BLOCK));
    let members: Vec<_> = members(&first).map(|(m, data)| (m.name.to_vec(), data.len())).collect();
    assert_eq!(members, [(b"a.x".to_vec(), 1), (b"a.y".to_vec(), 600)]);
}

#[test]
fn what_is_no_record_goes_with_one() {
    let folder = file(b"d/", b'5', b"");
    let link = header(b"a.link", b'2', b"00000000777");
    let member = file(b"a.x", b'0', b"1");
    let bytes =
        [&folder[..], &member, &link, &member, &[0; 1024], &file(b"b.x", b'0', b"")].concat();
    assert_eq!(found(&bytes), frame(bytes.len() - BLOCK));
    assert_eq!(found(&[&folder[..], &[0; 1024]].concat()), Step::Blank(1536));
    assert_eq!(found(&[0; 1024]), Step::Blank(1024));
}

#[test]
fn an_archive_behind_another_begins_a_record() {
    let member = file(b"a.x", b'0', b"1");
    let bytes = [&member[..], &[0; 1024], &member].concat();
    assert_eq!(found(&bytes), frame(2048));
    let junk = [&member[..], &[0; 1024], &[1; 512]].concat();
    assert_eq!(found(&junk), frame(2048));
    assert_eq!(fault(found(&junk[2048..])), FaultKind::Framing);
}

#[test]
fn a_cut_archive_asks_or_says_so() {
    let bytes = [file(b"a.x", b'0', &[1; 700]), file(b"b.x", b'0', b"")].concat();
    for end in 0..bytes.len() {
        let open = Tar.next(&bytes[..end], false);
        let closed = found(&bytes[..end]);
        match end {
            0 => assert_eq!(closed, Step::Blank(0)),
            1536 => assert_eq!(closed, frame(1536)),
            _ => assert_eq!(fault(closed), FaultKind::Truncated, "{end}"),
        }
        assert!(matches!(open, Step::Need(need) if need > end as u64), "{end}: {open:?}");
    }
}

#[test]
fn numbers_are_octal_or_base_256() {
    for (text, wanted) in [
        (&b"00000000012\0"[..], Some(10)),
        (b"      12 \0  ", Some(10)),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0", Some(0)),
        (b"\x80\0\0\0\0\0\0\0\0\0\x01\x02", Some(258)),
        (b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        (b"0000000008\0\0", None),
        (b"-0000000001\0", None),
    ] {
        assert_eq!(number(text), wanted, "{text:?}");
    }
}

#[test]
fn both_kinds_of_checksum_are_taken_and_no_flipped_bit_is() {
    let mut block = header("é.x".as_bytes(), b'0', b"00000000000");
    assert_eq!(name_of(&block), "é.x".as_bytes());
    let signed: i64 = block.iter().enumerate().fold(0, |sum, (at, &byte)| {
        sum + if (148..156).contains(&at) { 32 } else { i64::from(byte as i8) }
    });
    block[148..156].copy_from_slice(format!("{signed:06o}\0 ").as_bytes());
    assert_eq!(name_of(&block), "é.x".as_bytes());
    let sound = header(b"a.x", b'0', b"00000000000");
    for bit in 0..BLOCK * 8 {
        let mut bad = sound.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let blank = matches!(bit / 8, 148..156) && matches!(head(&bad), Head::Member(_));
        assert!(blank || matches!(head(&bad), Head::Broken(_)), "bit {bit}");
    }
}

#[test]
fn longer_names_and_sizes_are_heard() {
    let mut ustar = header(b"name.x", b'0', b"00000000000");
    ustar[345..351].copy_from_slice(b"folder");
    seal(&mut ustar);
    assert_eq!(name_of(&ustar), b"folder/name.x");
    let long = [file(b"././@LongLink", b'L', b"long/name.x\0"), ustar.clone()].concat();
    assert_eq!(name_of(&long), b"long/name.x");
    let pax = [file(b"x", b'x', b"17 path=p/name.y\n12 size=600\n"), ustar].concat();
    match head(&pax) {
        Head::Member(member) => {
            assert_eq!((&*member.name, member.length), (&b"p/name.y"[..], 600));
            assert_eq!((member.contents, member.total), (1536, 2560));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(pax_line(b"7 a=b=c\nrest"), None);
    assert_eq!(pax_line(b"8 a=b=c\nrest"), Some((&b"a"[..], &b"b=c"[..], &b"rest"[..])));
}

#[test]
fn hostile_headers_are_faults() {
    let member = file(b"a.x", b'0', b"");
    let pax = |lines: &[u8]| [file(b"x", b'x', lines), member.clone()].concat();
    for lines in [
        &b"3 a=b\n"[..],
        b"0 a=b\n",
        b"99999999999999999999 a=b\n",
        b"99 a=b\n",
        b"5 =b\n",
        b"4 a\n",
        b"nothing",
        b"10 size=-1\n",
        b"35 size=99999999999999999999999999\n",
    ] {
        assert_eq!(fault(found(&pax(lines))), FaultKind::Framing, "{lines:?}");
    }
    for lines in [&b"22 GNU.sparse.major=1\n"[..], b"22 GNU.sparse.map=0,1\n"] {
        assert_eq!(fault(found(&pax(lines))), FaultKind::Unsupported);
    }
    let global = [file(b"g", b'g', b"10 path=a\n"), member.clone()].concat();
    assert_eq!(fault(found(&global)), FaultKind::Unsupported);
    assert_eq!(fault(found(&header(b"a.x", b'S', b"0\0"))), FaultKind::Unsupported);
    assert_eq!(fault(found(&header(b"a", b'L', b"77777777777"))), FaultKind::Limit);
    assert_eq!(fault(found(&file(b"p", b'x', b"").repeat(40))), FaultKind::Framing);
    assert_eq!(fault(found(&pax(b"9 a=bcd\n\n")[..1024])), FaultKind::Truncated);
    let endless = header(b"a.x", b'0', b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    assert_eq!(Tar.next(&endless, false), Step::Need(u64::MAX));
    assert_eq!(fault(found(&endless)), FaultKind::Truncated);
}

#[test]
fn after_damage_the_next_record_is_found_and_no_rest_of_one() {
    let record = |key: &[u8]| {
        let name = |field: &[u8]| [key, field].concat();
        [file(&name(b".x"), b'0', b"1"), file(&name(b".y"), b'0', &[7; 600])].concat()
    };
    let mut bytes =
        [record(b"a"), record(b"b"), record(b"c"), record(b"d"), vec![0; 1024]].concat();
    let size = record(b"a").len();
    bytes[size + 3] ^= 1;
    assert_eq!(found(&bytes).clone(), Tar.next(&bytes, false));
    let places: Vec<_> = (0..3).map(|at| Tar.find(&bytes, at * size + 1).unwrap().at).collect();
    assert_eq!(places, [2 * size, 2 * size, 3 * size]);
    assert_eq!(Tar.find(&bytes, 3 * size + 1), None);
    assert_eq!(Tar.find(&[0; 5000], 0), None);
}

#[test]
fn zeros_inside_a_member_end_no_archive() {
    let zeros = file(b"a.npy", b'0', &[0; 2048]);
    assert_eq!(end_of_members(&zeros), zeros.len());
    let ended = [zeros.clone(), vec![0; 1024]].concat();
    assert_eq!(end_of_members(&ended), zeros.len());
    assert_eq!(end_of_members(&[0; 1024]), 0);
}
