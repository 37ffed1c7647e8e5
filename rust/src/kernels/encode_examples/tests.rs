use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::{ArrayRef, BinaryViewArray, Float32Array, Int64Array, StringArray, StructArray};
use arrow_schema::{DataType, Field};

use super::lengths::run_len;
use super::*;
use crate::wire::frames::{TFRECORD_HEAD, TFRECORD_TAIL};

fn batch(columns: Vec<(&str, ArrayRef)>) -> StructArray {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    StructArray::new(fields.into(), arrays, None)
}

fn payloads(framed: &Framed) -> Vec<Vec<u8>> {
    let data: Vec<u8> = framed.bytes.parts().flat_map(|part| part.to_vec()).collect();
    let mut at = 0;
    framed
        .lengths
        .iter()
        .zip(&framed.checksums)
        .map(|(&length, &checksum)| {
            let frame = &data[at..at + length as usize];
            at += length as usize;
            let payload = frame[TFRECORD_HEAD..frame.len() - TFRECORD_TAIL].to_vec();
            let mut again = Vec::new();
            crate::wire::frames::write_tfrecord(&mut again, &payload);
            assert_eq!(frame, again);
            assert_eq!(frame[frame.len() - TFRECORD_TAIL..], checksum.to_le_bytes());
            payload
        })
        .collect()
}

fn ints(lists: &[Option<&[i64]>]) -> ArrayRef {
    let mut builder = ListBuilder::new(Int64Builder::new());
    for list in lists {
        match list {
            Some(values) => {
                values.iter().for_each(|v| builder.values().append_value(*v));
                builder.append(true);
            }
            None => builder.append(false),
        }
    }
    Arc::new(builder.finish())
}

#[test]
fn the_published_example_is_written() {
    let batch = batch(vec![("a", ints(&[Some(&[-1, 1]), Some(&[]), None]))]);
    let found = payloads(&encode_examples(&batch, Payload::Example).unwrap());
    let first = b"\x0a\x16\x0a\x14\x0a\x01a\x12\x0f\x1a\x0d\x0a\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01";
    assert_eq!(found[0], first);
    assert_eq!(found[1], b"\x0a\x09\x0a\x07\x0a\x01a\x12\x02\x1a\x00", "an empty list is a list");
    assert_eq!(found[2], b"\x0a\x00", "a null is an absent feature");
}

#[test]
fn keys_are_sorted_by_their_bytes() {
    let one = || -> ArrayRef { Arc::new(Float32Array::from(vec![1.0])) };
    let batch =
        batch(vec![("b", one()), ("a_list", one()), ("é", one()), ("a", one()), ("B", one())]);
    let payload = &payloads(&encode_examples(&batch, Payload::Example).unwrap())[0];
    let places: Vec<_> = ["B", "a", "a_list", "b", "é"]
        .map(|key| {
            let entry = [&[FIRST, key.len() as u8], key.as_bytes(), &[SECOND]].concat();
            payload.windows(entry.len()).position(|w| w == entry).unwrap()
        })
        .into();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn ready_made_heads_agree_with_built_ones() {
    for key_len in [0, 1, 31, 32, 33, 60, 200] {
        let key = "k".repeat(key_len);
        let head = Head::new(&key, 0x0a, Section::Context, true);
        for length in 2..=130u32 {
            let mut short = [0; 512];
            let mut pen = Pen { out: &mut short, at: 0, borrowed: None };
            if !head.write_short(&mut pen, length) {
                continue;
            }
            let at = pen.at;
            let mut built = [0; 512];
            let mut pen = Pen { out: &mut built, at: 0, borrowed: None };
            head.write(&mut pen, length.into()).unwrap();
            pen.open(0x0a, length.into()).unwrap();
            pen.open(FIRST, run_len(length.into()).unwrap()).unwrap();
            let end = pen.at;
            assert_eq!(short[..at], built[..end], "key of {key_len}, list of {length}");
        }
    }
}

#[test]
fn every_run_is_found_from_its_list() {
    for run in (1..70_000).chain([1 << 21, (1 << 21) - 1, 1 << 28, (1 << 31) - 8]) {
        assert_eq!(run_len(field_len(run)), Some(run));
    }
}

#[test]
fn text_of_every_length_is_written() {
    let text: Vec<String> = (0..300).map(|n| "t".repeat(n)).collect();
    let batch = batch(vec![("text", Arc::new(StringArray::from(text.clone())))]);
    let found = payloads(&encode_examples(&batch, Payload::Example).unwrap());
    for (payload, text) in found.iter().zip(&text) {
        let list = field_len(text.len() as u64);
        let entry = field_len(4) + field_len(field_len(list));
        assert_eq!(payload.len() as u64, field_len(field_len(entry)));
        assert!(payload.ends_with(text.as_bytes()));
    }
}

#[test]
fn a_sequence_has_context_and_feature_lists() {
    let inner = ints(&[Some(&[1, 2]), Some(&[]), Some(&[3])]);
    let field = Arc::new(Field::new("item", inner.data_type().clone(), true));
    let offsets = arrow_buffer::OffsetBuffer::from_lengths([3]);
    let lists = arrow_array::ListArray::new(field, offsets, inner, None);
    let batch = batch(vec![("f", Arc::new(lists)), ("c", Arc::new(Int64Array::from(vec![7])))]);
    let found = payloads(&encode_examples(&batch, Payload::Sequence).unwrap());
    let context = b"\x0a\x0c\x0a\x0a\x0a\x01c\x12\x05\x1a\x03\x0a\x01\x07";
    let frames = b"\x0a\x06\x1a\x04\x0a\x02\x01\x02\x0a\x02\x1a\x00\x0a\x05\x1a\x03\x0a\x01\x03";
    let lists = [b"\x12\x1a\x0a\x18\x0a\x01f\x12\x13".as_slice(), frames].concat();
    assert_eq!(found[0], [context.as_slice(), &lists].concat());
    assert!(encode_examples(&batch, Payload::Example).is_err());
}

#[test]
fn nulls_inside_lists_and_keys_given_twice_are_faults() {
    let values = Arc::new(Int64Array::from(vec![Some(1), Some(2), None]));
    let field = Arc::new(Field::new("item", DataType::Int64, true));
    let offsets = arrow_buffer::OffsetBuffer::from_lengths([2, 1]);
    let lists = arrow_array::ListArray::new(field, offsets, values, None);
    let fault =
        encode_examples(&batch(vec![("x", Arc::new(lists))]), Payload::Example).unwrap_err();
    assert_eq!((fault.record, fault.field.as_deref()), (Some(1), Some("x")));

    let one = || -> ArrayRef { Arc::new(Int64Array::from(vec![1])) };
    let twice = batch(vec![("context/a", one()), ("a", one())]);
    assert!(encode_examples(&twice, Payload::Sequence).is_err());
}

#[test]
fn raw_records_are_framed_as_they_are() {
    let long = "a record that does not fit into a view".as_bytes();
    let array = BinaryViewArray::from(vec![b"hello".as_slice(), b"", long]);
    let framed = frame_records(&array).unwrap();
    assert_eq!(payloads(&framed), [b"hello".as_slice(), b"", long]);
    let fault =
        frame_records(&BinaryViewArray::from(vec![Some(b"a".as_slice()), None])).unwrap_err();
    assert_eq!(fault.record, Some(1));
}

/// A fast path measures scalars and fixed lists, and entries of short lists are measured together.
/// The results must equal those of plain lists, also around every length at which a length field
/// needs one more byte.
#[test]
fn columns_of_equal_lengths_are_measured_like_lists() {
    use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, StringBuilder};
    let numbers: Vec<i64> = (0..63)
        .flat_map(|bit| [1 << bit, (1 << bit) - 1])
        .chain([-1, i64::MAX, i64::MIN])
        .collect();
    let lists: Vec<Option<&[i64]>> = numbers.chunks(1).map(Some).collect();
    let texts: Vec<String> = (0..150).chain([16383, 16384]).map(|n| "x".repeat(n)).collect();
    let mut text_lists = ListBuilder::new(StringBuilder::new());
    for text in &texts {
        text_lists.values().append_value(text);
        text_lists.append(true);
    }
    let mut pairs: Vec<(ArrayRef, ArrayRef)> = vec![
        (Arc::new(Int64Array::from(numbers.clone())), ints(&lists)),
        (Arc::new(StringArray::from(texts)), Arc::new(text_lists.finish())),
    ];
    for width in [1, 27, 30, 31, 32, 40] {
        let mut fixed = FixedSizeListBuilder::new(Float32Builder::new(), width);
        let mut plain = ListBuilder::new(Float32Builder::new());
        for _ in 0..3 {
            (0..width).for_each(|n| fixed.values().append_value(n as f32));
            fixed.append(true);
            (0..width).for_each(|n| plain.values().append_value(n as f32));
            plain.append(true);
        }
        pairs.push((Arc::new(fixed.finish()), Arc::new(plain.finish())));
    }
    for (usual, list) in pairs {
        for key in [0, 1, 20, 33, 60, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 127, 200] {
            let name = "k".repeat(key);
            let of = |array: &ArrayRef| {
                let framed =
                    encode_examples(&batch(vec![(&name, array.clone())]), Payload::Example);
                payloads(&framed.unwrap())
            };
            assert_eq!(of(&usual), of(&list), "{} of key {key}", usual.data_type());
        }
    }
}

#[test]
fn long_values_are_borrowed_and_the_message_is_the_same() {
    use arrow_array::builder::{BinaryBuilder, BinaryViewBuilder};

    let value = |n: usize| vec![n as u8; if n.is_multiple_of(2) { BORROWED_BYTES + n } else { n }];
    let lists = |frames: usize| {
        let mut builder = ListBuilder::new(ListBuilder::new(BinaryBuilder::new()));
        for n in 0..frames {
            builder.values().values().append_value(value(n));
            builder.values().values().append_value(value(n + 1));
            builder.values().append(true);
            builder.append(n != 2);
        }
        builder.finish()
    };
    let mut views = BinaryViewBuilder::new();
    (0..6).for_each(|n| views.append_option((n != 4).then(|| value(n))));
    let batch = batch(vec![("v", Arc::new(views.finish())), ("f", Arc::new(lists(6)))]);
    let framed = encode_examples(&batch, Payload::Sequence).unwrap();
    // Two of six views are long, and one of these is null; each list has one value.
    let long = |piece: &&crate::kernels::parts::Piece| piece.buffer > 0;
    assert_eq!(framed.bytes.pieces.iter().filter(long).count(), 2 + 5);
    let whole = encode_examples(&batch.slice(3, 1), Payload::Sequence).unwrap();
    assert_eq!(payloads(&whole)[0], payloads(&framed)[3]);
    let raw = BinaryViewArray::from_iter_values((0..5).map(value));
    let framed = frame_records(&raw).unwrap();
    assert_eq!(payloads(&framed), (0..5).map(value).collect::<Vec<_>>());
    assert_eq!(framed.bytes.pieces.iter().filter(long).count(), 3);
}
