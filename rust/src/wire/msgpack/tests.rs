use super::*;

/// A whole value for each first byte but c1, with content as small as the byte allows.
fn smallest(byte: u8) -> Vec<u8> {
    let mut out = vec![byte];
    let zeros = match byte {
        0x80..=0x8f => 2 * usize::from(byte & 15),
        0x90..=0x9f => usize::from(byte & 15),
        0xa0..=0xbf => usize::from(byte & 31),
        0xc4 | 0xd9 | 0xcc | 0xd0 => 1,
        0xc5 | 0xda | 0xcd | 0xd1 | 0xdc | 0xde | 0xc7 | 0xd4 => 2,
        0xc8 | 0xd5 => 3,
        0xc6 | 0xdb | 0xca | 0xce | 0xd2 | 0xdd | 0xdf => 4,
        0xc9 | 0xd6 => 5,
        0xcb | 0xcf | 0xd3 => 8,
        0xd7 => 9,
        0xd8 => 17,
        _ => 0,
    };
    out.resize(1 + zeros, 0);
    out
}

#[test]
fn every_first_byte_has_its_extent_and_its_token() {
    for byte in 0..=255u8 {
        let bytes = smallest(byte);
        if byte == 0xc1 {
            assert_eq!(extent(&bytes), Extent::Reserved(0));
            assert_eq!(token(&mut Cursor::new(&bytes)).unwrap_err().kind, FaultKind::Message);
            continue;
        }
        assert_eq!(extent(&bytes), Extent::Whole(bytes.len()), "{byte:#x}");
        let mut cursor = Cursor::new(&bytes);
        assert_eq!(skip(&mut cursor, 1).unwrap(), bytes, "{byte:#x}");
        let mut longer = bytes.clone();
        longer.push(0xc1);
        assert_eq!(extent(&longer), Extent::Whole(bytes.len()), "{byte:#x}");
        for end in 0..bytes.len() {
            let Extent::Cut(need) = extent(&bytes[..end]) else { panic!("{byte:#x}") };
            assert!(need > end as u64 && need <= bytes.len() as u64, "{byte:#x} {end}");
            assert!(skip(&mut Cursor::new(&bytes[..end]), 1).is_err());
        }
    }
}

#[test]
fn lengths_that_nothing_stands_behind_are_only_claims() {
    assert_eq!(extent(&[0xdd, 255, 255, 255, 255]), Extent::Cut(5 + u64::from(u32::MAX)));
    assert_eq!(extent(&[0xdf, 255, 255, 255, 255]), Extent::Cut(5 + 2 * u64::from(u32::MAX)));
    assert_eq!(extent(&[0xdb, 255, 255, 255, 255]), Extent::Cut(5 + u64::from(u32::MAX)));
    assert_eq!(extent(&[0xc9, 255, 255, 255, 255, 7]), Extent::Cut(6 + u64::from(u32::MAX)));
    let claims: Vec<u8> = [0xdd, 255, 255, 255, 255].repeat(1000);
    assert!(matches!(extent(&claims), Extent::Cut(need) if need > 1000 * 0xffff_fffe));
}

#[test]
fn nesting_beyond_the_limit_is_a_fault_and_never_a_deep_stack() {
    let mut deep = vec![0x91; 1_000_000];
    deep.push(0xc0);
    assert_eq!(extent(&deep), Extent::Whole(deep.len()));
    let fault = skip(&mut Cursor::new(&deep), 100).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Limit);
    assert!(skip(&mut Cursor::new(&[0x91, 0x91, 0xc0]), 2).is_ok());
    assert!(skip(&mut Cursor::new(&[0x91, 0x91, 0xc0]), 1).is_err());
}

#[test]
fn integers_are_written_as_small_as_they_can_be() {
    let edges = [
        (0, 1),
        (127, 1),
        (128, 2),
        (255, 2),
        (256, 3),
        (65535, 3),
        (65536, 5),
        (u64::from(u32::MAX) as i64, 5),
        (1 << 32, 9),
        (i64::MAX, 9),
        (-1, 1),
        (-32, 1),
        (-33, 2),
        (-128, 2),
        (-129, 3),
        (-32768, 3),
        (-32769, 5),
        (-(1 << 31), 5),
        (-(1 << 31) - 1, 9),
        (i64::MIN, 9),
    ];
    for (value, size) in edges {
        let mut out = Vec::new();
        put_int(&mut out, value);
        assert_eq!(out.len(), size, "{value}");
        assert_eq!(token(&mut Cursor::new(&out)).unwrap(), Token::Int(value));
    }
    let mut out = Vec::new();
    put_uint(&mut out, u64::MAX);
    assert_eq!(token(&mut Cursor::new(&out)).unwrap(), Token::Large(u64::MAX));
}

#[test]
fn timestamps_come_in_three_sizes() {
    for (seconds, nanos, size) in [
        (0, 0, 6),
        (u64::from(u32::MAX) as i64, 0, 6),
        (1 << 32, 0, 10),
        (1, 1, 10),
        (-1, 999_999_999, 15),
    ] {
        let mut out = Vec::new();
        put_timestamp(&mut out, seconds, nanos);
        assert_eq!(out.len(), size);
        let Ok(Token::Ext(TIMESTAMP, data)) = token(&mut Cursor::new(&out)) else { panic!() };
        assert_eq!(nanoseconds(data), Some(seconds * 1_000_000_000 + i64::from(nanos)));
    }
    assert_eq!(nanoseconds(&[255; 8]), None);
    assert_eq!(nanoseconds(&[0, 0, 0, 0, 127, 0, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(nanoseconds(&[0; 5]), None);
}
