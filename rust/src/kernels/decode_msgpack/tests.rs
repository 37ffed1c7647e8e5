use std::collections::HashMap;

use arrow_array::{Array, Int64Array, StructArray};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Fields};

use super::*;
use crate::kernels::encode_msgpack::encode_msgpack;
use crate::kernels::infer_msgpack::{Facts, looks_like_maps};

const COSTS: Costs = Costs { nesting: 100, blanks: 1 << 20, complete: false };

fn frames(records: &[&[u8]]) -> Frames {
    let buffer = Buffer::from_vec(records.concat());
    let mut spans = Vec::new();
    for record in records {
        let start = spans.last().map_or(0, |&(start, length)| start + length);
        spans.push((start, record.len()));
    }
    Frames { buffer, spans, ..Frames::default() }
}

fn decoded(records: &[&[u8]], fields: Vec<Field>) -> Result<StructArray, Fault> {
    let fields: Fields = fields.into();
    let arrays = decode(&frames(records), &Plan::new(&fields, COSTS)?, |_| Ok(()))?;
    Ok(StructArray::try_new_with_length(fields, arrays, None, records.len()).unwrap())
}

fn inferred(records: &[&[u8]]) -> Option<Fields> {
    let mut facts = Facts::default();
    facts.see(&frames(records), 100).unwrap();
    facts.fields()
}

#[test]
fn a_key_that_comes_again_counts_as_it_came_last() {
    let list = DataType::List(Field::new("item", DataType::Utf8, true).into());
    let fields = vec![Field::new("a", DataType::Int64, true), Field::new("b", list, true)];
    let twice = b"\x84\xa1a\x01\xa1b\x92\xa1x\xa1y\xa1b\x91\xa1z\xa1a\x02";
    let batch = decoded(&[b"\x81\xa1a\x07", twice, b"\x80"], fields).unwrap();
    let numbers = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
    assert_eq!(numbers.iter().collect::<Vec<_>>(), [Some(7), Some(2), None]);
    assert_eq!(format!("{:?}", batch.column(1).slice(1, 1)).matches("\"z\"").count(), 1);
    assert!(!format!("{:?}", batch.column(1)).contains("\"x\""));
}

#[test]
fn a_value_of_another_kind_is_reported_with_its_record_and_field() {
    let fields = vec![Field::new("a", DataType::Int64, true)];
    let fault = decoded(&[b"\x81\xa1a\x07", b"\x81\xa1a\xa1x"], fields).unwrap_err();
    assert_eq!((fault.record, fault.field.as_deref()), (Some(1), Some("a")));
}

#[test]
fn nulls_that_cost_nothing_in_the_file_have_a_limit() {
    let item = Field::new("item", DataType::UInt8, true);
    let mark = HashMap::from([(MARK.to_owned(), "tensor 1024,1024".to_owned())]);
    let kind = DataType::FixedSizeList(item.into(), 1 << 20);
    let fields = vec![Field::new("a", kind, true).with_metadata(mark)];
    assert_eq!(decoded(&[&b"\x80"[..]; 2], fields).unwrap_err().kind, FaultKind::Limit);
}

#[test]
fn what_is_inferred_fits_the_records() {
    let records: [&[u8]; 4] = [
        b"\x83\xa1a\x01\xa1b\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\xa1c\x81\xa1x\x91\xc0",
        b"\x84\xa1a\xff\xa1b\x02\xa1c\x81\xa1y\xc3\xa1d\xd6\xff\x00\x00\x00\x01",
        b"\x80",
        b"\x81\xa1e\xd4\x05\x09",
    ];
    let fields = inferred(&records).unwrap();
    let kinds: Vec<_> = fields.iter().map(|field| field.data_type().clone()).collect();
    assert_eq!(kinds[0], DataType::Int64);
    assert_eq!(kinds[1], DataType::Float64);
    assert!(matches!(&kinds[2], DataType::Struct(inner) if inner.len() == 2));
    assert!(matches!(kinds[3], DataType::Timestamp(..)));
    let batch = decoded(&records, fields.iter().map(|f| f.as_ref().clone()).collect()).unwrap();
    let mut again = encode_msgpack(&batch).unwrap();
    let mut spans = Vec::new();
    for length in &again.lengths {
        let start = spans.last().map_or(0, |&(start, length)| start + length);
        spans.push((start, *length as usize));
    }
    let written = Frames { buffer: again.bytes.buffers.remove(0), spans, ..Frames::default() };
    let plan = Plan::new(&fields, COSTS).unwrap();
    let second = decode(&written, &plan, |_| Ok(())).unwrap();
    for (first, second) in batch.columns().iter().zip(&second) {
        assert_eq!(first.to_data(), second.to_data());
    }
}

#[test]
fn mixed_values_are_kept_as_their_bytes() {
    let records: [&[u8]; 3] = [b"\x81\xa1a\x01", b"\x81\xa1a\xa1x", b"\x81\xa1a\x81\x01\x02"];
    let fields = inferred(&records).unwrap();
    assert_eq!(fields[0].metadata()[MARK], "raw");
    let batch = decoded(&records, vec![fields[0].as_ref().clone()]).unwrap();
    assert_eq!(encode_msgpack(&batch).unwrap().bytes.buffers[0].as_slice(), records.concat());
}

#[test]
fn records_that_are_no_maps_of_fields_have_no_columns() {
    for record in [&b"\x91\x01"[..], b"\x81\x01\x02", b"\x80", b"\x81\xa1\xff\x02", b"\xc0"] {
        assert_eq!(inferred(&[record]), None, "{record:?}");
    }
    assert!(looks_like_maps(&frames(&[b"\x81\xa1a\x01", b"\x81\xa1a\x02"])));
    assert!(!looks_like_maps(&frames(&[b"\x81\xa1a\x01", b"\x81\xa1b\x02"])));
    assert!(!looks_like_maps(&frames(&[b"\x81\xa1a\x01"])));
}

#[test]
fn no_cut_or_flip_of_a_record_is_a_panic() {
    let whole = b"\x85\xa1a\x01\xa1b\x92\xa1x\xa1y\xa1c\x81\xa1z\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\xa1d\xd6\xff\x00\x00\x00\x01\xa1e\xc4\x01\x00";
    let fields = inferred(&[whole]).unwrap();
    let plan = Plan::new(&fields, COSTS).unwrap();
    for end in 0..whole.len() {
        assert!(decode(&frames(&[&whole[..end]]), &plan, |_| Ok(())).is_err());
    }
    for bit in 0..whole.len() * 8 {
        let mut bad = whole.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        let _ = decode(&frames(&[&bad]), &plan, |_| Ok(()));
        let _ = Facts::default().see(&frames(&[&bad]), 100);
    }
}
