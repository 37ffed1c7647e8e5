use std::sync::Arc;

use super::*;

type Message = Arc<Node<Vec<u8>>>;

fn ints(node: &Message, values: &[i64]) {
    node.touch();
    if let Body::Ints(into) = &mut node.lock().body {
        into.extend_from_slice(values);
    }
}

fn sample() -> Message {
    let example = Node::new(Kind::Example);
    ints(&example.child(0).get_or_create("a").child(2), &[-1, 1]);
    example
}

const SAMPLE: [u8; 24] = [
    0x0a, 0x16, 0x0a, 0x14, 0x0a, 1, b'a', 0x12, 0x0f, 0x1a, 0x0d, 0x0a, 0x0b, 255, 255, 255, 255,
    255, 255, 255, 255, 255, 1, 1,
];

#[test]
fn a_change_far_below_sets_everything_above() {
    let example: Message = Node::new(Kind::Example);
    let features = example.child(0);
    assert!(!example.has(0));
    let feature = features.get_or_create("a");
    assert!(example.has(0));
    let list = feature.child(2);
    assert!(!feature.has(2));
    ints(&list, &[-1, 1]);
    assert!(feature.has(2));
    assert_eq!(serialize(&example, false), SAMPLE);
    assert_eq!(size(&example), SAMPLE.len());
}

#[test]
fn what_is_parsed_is_written_back() {
    let example: Message = Node::new(Kind::Example);
    parse(&example, &SAMPLE).unwrap();
    assert_eq!(serialize(&example, true), SAMPLE);
    parse(&example, &[0x18, 5]).unwrap();
    assert_eq!(serialize(&example, true), [&SAMPLE[..], &[0x18, 5]].concat());
}

#[test]
fn another_kind_takes_the_place_and_the_old_list_lives_on_alone() {
    let feature: Message = Node::new(Kind::Feature);
    let (old, waiting) = (feature.child(2), feature.child(1));
    ints(&old, &[1]);
    waiting.touch();
    assert!(feature.has(1) && !feature.has(2));
    ints(&old, &[2]);
    assert!(feature.has(1) && !feature.has(2));
    assert!(matches!(&old.lock().body, Body::Ints(values) if values[..] == [1, 2]));
}

#[test]
fn merging_appends_values_and_replaces_keys() {
    let (a, b) = (sample(), sample());
    ints(&b.child(0).get_or_create("b").child(2), &[7]);
    a.absorb(b.copy());
    assert_eq!(serialize(&a, false), serialize(&b, false));
    let list: Message = Node::new(Kind::Int64List);
    ints(&list, &[1]);
    list.absorb(list.copy());
    assert!(matches!(&list.lock().body, Body::Ints(values) if values[..] == [1, 1]));
}

#[test]
fn a_view_of_a_slot_sees_what_is_put_there() {
    let example: Message = Node::new(Kind::Example);
    let view = example.child(0);
    example.put(0, sample().child(0).copy());
    assert!(view.get("a").is_some());
    assert_eq!(serialize(&example, false), SAMPLE);
}

#[test]
fn an_entry_with_an_unknown_field_is_an_unknown_field() {
    let features: Message = Node::new(Kind::Features);
    let bytes = [0x0a, 9, 0x0a, 1, b'a', 0x18, 1, 0x12, 2, 0x1a, 0];
    parse(&features, &bytes).unwrap();
    assert!(features.get("a").is_none());
    let written = [0x0a, 9, 0x0a, 1, b'a', 0x12, 2, 0x1a, 0, 0x18, 1];
    assert_eq!(serialize(&features, false), written);
}

#[test]
fn every_cut_is_a_fault_or_a_shorter_message() {
    for end in 0..SAMPLE.len() {
        let example: Message = Node::new(Kind::Example);
        assert_eq!(parse(&example, &SAMPLE[..end]).is_ok(), end == 0);
    }
}

#[test]
fn longer_keys_come_first_in_the_order_of_protobuf() {
    let features: Message = Node::new(Kind::Features);
    for key in ["", "some", "some_list", "a"] {
        features.get_or_create(key);
    }
    let order = |as_protobuf| {
        let other: Vec<u8> = serialize(&features, as_protobuf);
        ["some_list", "some"].map(|key| other.windows(key.len()).position(|w| w == key.as_bytes()))
    };
    assert_eq!(order(true)[0], order(true)[1]);
    assert!(order(false)[0] > order(false)[1]);
}

#[test]
fn numbers_print_as_in_c() {
    let list: Message = Node::with(
        Kind::FloatList,
        Body::Floats(vec![
            1.1,
            100_000.0,
            1e6,
            1_234_567.0,
            -0.0,
            1.175_494_4e-38,
            f32::MAX,
            0.0001,
        ]),
    );
    let lines = "1.1 100000 1e+06 1234567 -0 1.17549435e-38 3.40282347e+38 0.0001";
    let wanted: String = lines.split(' ').map(|line| format!("value: {line}\n")).collect();
    assert_eq!(text(&list), wanted);
}

#[test]
fn a_shared_message_is_copied_by_its_first_viewer() {
    let mut list: Message = Node::with(Kind::Int64List, Body::Ints(vec![1]));
    let feature: Message = Node::new(Kind::Feature);
    feature.put(2, list.share());
    Node::settle(&mut list);
    ints(&list, &[2]);
    ints(&feature.child(2), &[3]);
    assert_eq!(text(&list), "value: 1\nvalue: 2\n");
    assert_eq!(text(&feature), "int64_list {\n  value: 1\n  value: 3\n}\n");
}

#[test]
fn a_message_with_views_is_copied_and_not_shared() {
    let features: Message = Node::new(Kind::Features);
    let seen = features.get_or_create("a").child(2);
    let example: Message = Node::new(Kind::Example);
    example.put(0, features.share());
    ints(&seen, &[1]);
    assert_eq!(serialize(&example, false), [0x0a, 7, 0x0a, 5, 0x0a, 1, b'a', 0x12, 0]);
}
