use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, StructArray};
use arrow_buffer::Buffer;
use arrow_schema::Field;

use super::super::walk::walk;
use super::*;
use crate::wire::frames::write_tfrecord;

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    varint::write(&mut out, body.len() as u64);
    out.extend_from_slice(body);
    out
}

fn entry(key: &str, value: &[u8]) -> Vec<u8> {
    message(0x0a, &[message(0x0a, key.as_bytes()), message(0x12, value)].concat())
}

/// A features message of keys, each with its own name as its only byte string.
fn features(keys: &[&str]) -> Vec<u8> {
    let value = |key: &str| message(0x0a, &message(0x0a, key.as_bytes()));
    message(0x0a, &keys.iter().flat_map(|key| entry(key, &value(key))).collect::<Vec<_>>())
}

fn frames(payloads: &[Vec<u8>]) -> Frames {
    let mut bytes = Vec::new();
    payloads.iter().for_each(|payload| write_tfrecord(&mut bytes, payload));
    of_file(bytes)
}

fn of_file(bytes: Vec<u8>) -> Frames {
    let spans = walk(TfRecord, &bytes, 1 << 30, true).spans;
    Frames { buffer: Buffer::from_vec(bytes), spans, ..Frames::default() }
}

fn ints(name: &str, values: Vec<Option<i64>>) -> StructArray {
    let array: ArrayRef = Arc::new(Int64Array::from(values));
    StructArray::new(
        vec![Field::new(name, array.data_type().clone(), true)].into(),
        vec![array],
        None,
    )
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn file_of(spliced: &Spliced) -> Vec<u8> {
    spliced.framed.bytes.parts().flat_map(|part| part.to_vec()).collect()
}

/// The payloads of a result, each verified against its new checksum.
fn payloads(spliced: &Spliced) -> Vec<Vec<u8>> {
    let frames = of_file(file_of(spliced));
    assert!(frames.verify(Some(&spliced.framed.checksums)).is_empty());
    let lengths: Vec<u64> = frames.spans.iter().map(|span| span.1 as u64 + 16).collect();
    assert_eq!(lengths, spliced.framed.lengths);
    (0..frames.spans.len()).map(|record| frames.payload(record).unwrap().to_vec()).collect()
}

fn edited(payload: &[u8], kind: Payload, drop: &[&str], rename: &[(&str, &str)]) -> Vec<u8> {
    let rename: Vec<_> = rename.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
    let edit = Edit::new(kind, &texts(drop), &rename, None, false).unwrap();
    let spliced = splice(&frames(&[payload.to_vec()]), &edit, None, true).unwrap();
    payloads(&spliced).remove(0)
}

fn dropped(payload: &[u8], drop: &[&str]) -> Vec<u8> {
    edited(payload, Payload::Example, drop, &[])
}

fn add(frames: &Frames, batch: &StructArray, verify: bool) -> Result<Spliced, Fault> {
    let encoder = Encoder::new(batch, Payload::Example).unwrap();
    let edit = Edit::new(Payload::Example, &[], &[], Some(&encoder), false)?;
    splice(frames, &edit, Some(&encoder), verify)
}

#[test]
fn an_added_field_stands_behind_the_old_bytes() {
    let old = [features(&["a"]), Vec::new(), features(&[]), vec![b'\x50', 1]];
    let new = b"\x0a\x0c\x0a\x0a\x0a\x01n\x12\x05\x1a\x03\x0a\x01\x07";
    for verify in [false, true] {
        let batch = ints("n", vec![Some(7); 4]);
        let found = payloads(&add(&frames(&old), &batch, verify).unwrap());
        for (found, old) in found.iter().zip(&old) {
            assert_eq!(*found, [old.as_slice(), new].concat());
        }
    }
}

#[test]
fn a_null_adds_nothing() {
    let old = vec![features(&["a"]), Vec::new()];
    let batch = ints("n", vec![None, None]);
    assert_eq!(payloads(&add(&frames(&old), &batch, true).unwrap()), old);
}

#[test]
fn long_payloads_are_checked_in_pieces() {
    let value = message(0x0a, &message(0x0a, &vec![7; 5 * SPLICE_BYTES / 2]));
    let old = vec![message(0x0a, &entry("image", &value)); 2];
    let batch = ints("n", vec![Some(1), Some(2)]);
    let before = frames(&old);
    let whole = add(&before, &batch, true).unwrap();
    // Such payloads are borrowed: only the bytes between them are new.
    let is_old = |part: &Buffer| before.buffer.as_ptr_range().contains(&part.as_ptr());
    assert_eq!(whole.framed.bytes.parts().filter(is_old).count(), 2);
    assert!(whole.framed.bytes.parts().filter(|part| !is_old(part)).all(|part| part.len() < 100));
    let file = file_of(&whole);
    let after = of_file(file.clone());
    assert!(after.verify(Some(&whole.framed.checksums)).is_empty());
    assert_eq!(whole.framed.lengths.iter().sum::<u64>(), file.len() as u64);
    for (record, payload) in old.iter().enumerate() {
        assert!(after.payload(record).unwrap().starts_with(payload));
    }
    assert_eq!(file, file_of(&add(&before, &batch, false).unwrap()));
    let mut file = frames(&old).buffer.to_vec();
    let at = file.len() - 5;
    file[at] ^= 0x40;
    let fault = add(&of_file(file), &batch, true).unwrap_err();
    assert_eq!((fault.kind, fault.record), (FaultKind::DataChecksum, Some(1)));
}

#[test]
fn damage_is_found_or_passed_on_and_never_laundered() {
    let old = features(&["a", "b"]);
    let good = frames(std::slice::from_ref(&old));
    for bit in 12 * 8..(12 + old.len() + 4) * 8 {
        let mut file = good.buffer.to_vec();
        file[bit / 8] ^= 1 << (bit % 8);
        let bad = of_file(file);
        let batch = ints("n", vec![Some(7)]);
        let fault = add(&bad, &batch, true).unwrap_err();
        assert_eq!((fault.kind, fault.record), (FaultKind::DataChecksum, Some(0)), "bit {bit}");

        let carried = add(&bad, &batch, false).unwrap();
        assert!(file_of(&carried)[12..].starts_with(bad.payload(0).unwrap()));
        let after = of_file(file_of(&carried));
        assert_eq!(after.verify(None).len(), 1, "bit {bit}");

        let edit = Edit::new(Payload::Example, &texts(&["b"]), &[], None, false).unwrap();
        match splice(&bad, &edit, None, false) {
            Err(fault) => assert_eq!(fault.kind, FaultKind::DataChecksum, "bit {bit}"),
            Ok(carried) => {
                let after = of_file(file_of(&carried));
                assert_eq!(after.verify(None).len(), 1, "bit {bit}");
            }
        }
    }
}

#[test]
fn a_field_that_exists_is_refused_with_its_record() {
    let old = frames(&[features(&["a"]), features(&["n", "a"])]);
    let fault = add(&old, &ints("n", vec![Some(1), Some(2)]), true).unwrap_err();
    assert_eq!(
        (fault.kind, fault.record, fault.field.as_deref()),
        (FaultKind::Schema, Some(1), Some("n"))
    );
    let fault = add(&old, &ints("x", vec![Some(1)]), true).unwrap_err();
    assert_eq!(fault.message, "2 records, and fields for 1");
}

#[test]
fn a_replaced_field_is_cut_and_comes_again() {
    let old = frames(&[features(&["a", "n"]), features(&["n"]), features(&["a"])]);
    let batch = ints("n", vec![Some(7), Some(7), None]);
    let encoder = Encoder::new(&batch, Payload::Example).unwrap();
    let edit = Edit::new(Payload::Example, &[], &[], Some(&encoder), true).unwrap();
    let found = payloads(&splice(&old, &edit, Some(&encoder), false).unwrap());
    let new = b"\x0a\x0c\x0a\x0a\x0a\x01n\x12\x05\x1a\x03\x0a\x01\x07".to_vec();
    assert_eq!(found, [[features(&["a"]), new.clone()].concat(), new, features(&["a"])]);
}

#[test]
fn every_entry_of_a_key_is_cut_and_the_rest_keeps_its_order() {
    assert_eq!(dropped(&features(&["b", "x", "a", "x"]), &["x"]), features(&["b", "a"]));
    let two = [features(&["x", "a"]), vec![0x50, 1], features(&["b", "x"])].concat();
    assert_eq!(
        dropped(&two, &["x", "none"]),
        [features(&["a"]), vec![0x50, 1], features(&["b"])].concat()
    );
}

#[test]
fn the_length_of_a_message_shrinks_with_it() {
    let long: Vec<String> = (0..40).map(|n| format!("key {n}")).collect();
    let mut keys: Vec<&str> = long.iter().map(String::as_str).collect();
    keys.push("x");
    let left: Vec<&str> = keys[..2].to_vec();
    let cut: Vec<&str> = keys[2..].to_vec();
    assert_eq!(dropped(&features(&keys), &cut), features(&left));
}

#[test]
fn what_a_cut_leaves_empty_stays_only_where_it_stood_first_and_alone() {
    let (x, a, none) = (features(&["x"]), features(&["a"]), features(&[]));
    assert_eq!(dropped(&x, &["x"]), none);
    assert_eq!(dropped(&[x.clone(), x.clone()].concat(), &["x"]), none);
    assert_eq!(dropped(&[a.clone(), x.clone()].concat(), &["x"]), a);
    assert_eq!(dropped(&[x.clone(), a.clone()].concat(), &["x"]), a);
    assert_eq!(dropped(&[none.clone(), x.clone()].concat(), &["x"]), none);
    let lists = message(0x12, &entry("x", b""));
    let both = [lists.clone(), x].concat();
    assert_eq!(edited(&both, Payload::Sequence, &["context/x"], &[]), lists);
    assert_eq!(edited(&both, Payload::Sequence, &["x"], &[]), b"\x12\x00");
    assert_eq!(dropped(&both, &["x"]), lists, "feature lists are not part of an Example");
}

#[test]
fn a_renamed_entry_keeps_its_value_and_its_place() {
    let value = message(0x0a, &message(0x0a, b"b"));
    let old = features(&["a", "b", "c"]);
    let (a, c) = (features(&["a"]), features(&["c"]));
    let new = [&a[2..], &entry("a longer name", &value), &c[2..]].concat();
    let rename = |old: &[u8], pairs: &[(&str, &str)]| edited(old, Payload::Example, &[], pairs);
    assert_eq!(rename(&old, &[("b", "a longer name")]), message(0x0a, &new));
    let there = rename(&old, &[("a", "b"), ("b", "a")]);
    assert_eq!(rename(&there, &[("a", "b"), ("b", "a")]), old);
    // Two keys, of which the last counts, around the value; and no key, which is the empty one.
    let odd = [message(0x0a, b"q"), message(0x12, b""), message(0x0a, b"b")].concat();
    let odd = message(0x0a, &[message(0x0a, &odd), message(0x0a, &message(0x12, b""))].concat());
    let new = [entry("z", b""), entry("e", b"")].concat();
    assert_eq!(rename(&odd, &[("b", "z"), ("", "e")]), message(0x0a, &new));
}

#[test]
fn contradictions_are_refused() {
    let new = |kind, drop: &[&str], rename: &[(&str, &str)], batch: Option<&StructArray>| {
        let rename: Vec<_> = rename.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        let encoder = batch.map(|batch| Encoder::new(batch, kind).unwrap());
        Edit::new(kind, &texts(drop), &rename, encoder.as_ref(), true).map(drop_it)
    };
    fn drop_it(_: Edit) {}
    let batch = ints("n", vec![Some(1)]);
    assert!(new(Payload::Example, &["a", "a"], &[], None).is_err());
    assert!(new(Payload::Example, &["a"], &[("a", "b")], None).is_err());
    assert!(new(Payload::Example, &[], &[("a", "c"), ("b", "c")], None).is_err());
    assert!(new(Payload::Example, &[], &[("a", "n")], Some(&batch)).is_err());
    assert!(new(Payload::Example, &["a", "c"], &[("b", "c")], Some(&batch)).is_ok());
    let across = [("context/a", "feature_lists/b")];
    assert!(new(Payload::Sequence, &[], &across, None).is_err());
    let edit = Edit::new(Payload::Example, &[], &[("a".into(), "b".into())], None, false).unwrap();
    let fault = splice(&frames(&[features(&["a", "b"])]), &edit, None, true).unwrap_err();
    assert_eq!(fault.field.as_deref(), Some("b"), "the new name exists");
}

#[test]
fn names_are_counted_once_a_record() {
    let old = frames(&[features(&["x", "x", "y"]), features(&["y"]), features(&["a"])]);
    let edit = Edit::new(
        Payload::Example,
        &texts(&["x", "none"]),
        &[("y".into(), "z".into())],
        None,
        false,
    );
    assert_eq!(splice(&old, &edit.unwrap(), None, true).unwrap().found, [1, 0, 2]);
    let found = has_fields(&old, &texts(&["y", "x"]), Payload::Example).unwrap();
    assert_eq!(found, [[true, true, false], [true, false, false]]);
}

#[test]
fn what_is_no_message_is_a_fault_with_its_place() {
    let broken = [
        (b"\x0a\x05".to_vec(), 2),
        (b"\x0a\x02\x0a\x05".to_vec(), 4),
        (b"\x0a\x04\x0a\x02\x0a\x05".to_vec(), 6),
        (b"hello".to_vec(), 3),
        (b"\x50\x01\x00\x00".to_vec(), 3),
    ];
    for (payload, at) in broken {
        let old = frames(&[features(&["a"]), payload]);
        let start = old.spans[1].0 as u64;
        for verify in [false, true] {
            let fault = add(&old, &ints("n", vec![Some(1), Some(2)]), verify).unwrap_err();
            assert_eq!((fault.record, fault.byte), (Some(1), start + at), "{fault}");
        }
        let fault = has_fields(&old, &texts(&["a"]), Payload::Example).unwrap_err();
        assert_eq!((fault.record, fault.byte), (Some(1), start + at), "{fault}");
    }
}
