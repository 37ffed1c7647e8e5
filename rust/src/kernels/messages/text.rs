//! Prints messages as protobuf does: one field per line, messages in braces, unknown fields left out.

use std::fmt::Write;
use std::sync::Arc;

use super::write::present;
use super::{Blob, Body, Node};

/// A message in protobuf's text format.
pub fn text<B: Blob>(node: &Node<B>) -> String {
    let mut out = String::new();
    print(node, 0, &mut out);
    out
}

/// A key in quotes: UTF-8 unchanged, other bytes escaped.
pub fn key_text(key: &str) -> String {
    let mut out = String::new();
    quote(key.as_bytes(), true, &mut out);
    out
}

fn print<B: Blob>(node: &Node<B>, depth: usize, out: &mut String) {
    let state = node.lock();
    let fields = node.kind().fields();
    let name = |index: usize| fields.get(index).map_or("", |field| field.name);
    match &state.body {
        Body::Parts(slots, set) => {
            for (index, child) in present(slots, *set) {
                braces(name(index), child, depth, out);
            }
        }
        Body::Map(entries) => {
            for (key, child) in entries {
                line(depth, name(0), " {", out);
                line(depth + 1, "key: ", &key_text(key), out);
                braces("value", child, depth + 1, out);
                line(depth, "}", "", out);
            }
        }
        Body::Many(items) => items.iter().for_each(|item| braces(name(0), item, depth, out)),
        Body::Bytes(values) => {
            for value in values {
                let mut quoted = String::new();
                quote(value.bytes(), false, &mut quoted);
                line(depth, "value: ", &quoted, out);
            }
        }
        Body::Floats(values) => {
            values.iter().for_each(|value| line(depth, "value: ", &float(*value), out));
        }
        Body::Ints(values) => {
            values.iter().for_each(|value| line(depth, "value: ", &value.to_string(), out));
        }
    }
}

fn line(depth: usize, first: &str, second: &str, out: &mut String) {
    (0..depth).for_each(|_| out.push_str("  "));
    out.push_str(first);
    out.push_str(second);
    out.push('\n');
}

fn braces<B: Blob>(name: &str, node: &Arc<Node<B>>, depth: usize, out: &mut String) {
    line(depth, name, " {", out);
    print(node, depth + 1, out);
    line(depth, "}", "", out);
}

fn quote(bytes: &[u8], is_text: bool, out: &mut String) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '"' | '\'' | '\\' => {
                    out.push('\\');
                    out.push(letter);
                }
                ' '..='~' => out.push(letter),
                _ if is_text && !letter.is_ascii() => out.push(letter),
                _ => octal(letter.encode_utf8(&mut [0; 4]).as_bytes(), out),
            }
        }
        octal(chunk.invalid(), out);
    }
    out.push('"');
}

fn octal(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        let _ = write!(out, "\\{byte:03o}");
    }
}

/// A number with 6 digits, or with 9 if 6 do not give it back exactly.
fn float(value: f32) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let short = general(value, 6);
    if short.parse() == Ok(value) { short } else { general(value, 9) }
}

/// C's `%.*g`.
fn general(value: f32, digits: i32) -> String {
    let exact = format!("{:.*e}", (digits - 1) as usize, value);
    let Some((mantissa, exponent)) = exact.split_once('e') else { return exact };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..digits).contains(&exponent) {
        let fixed = format!("{:.*}", (digits - 1 - exponent) as usize, value);
        return stripped(&fixed).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", stripped(mantissa), exponent.abs())
}

fn stripped(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}
