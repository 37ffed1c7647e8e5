//! Listings, page by page.

use std::borrow::Cow;

use object_store::ListResult;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;

use super::client::{Client, state};
use super::course::{Course, Verdict};
use super::watch::Met;
use super::{Kind, Problem, State};

/// Before a name that the crate would change or refuse, which follows in hexadecimal digits. The sign
/// is of Unicode's private area, so a name has it only by intent; such a name is written so, too.
const MARK: char = '\u{E5F5}';

/// Objects by name, and names of folders, which end with `/`.
pub type Listing = (Vec<(String, State)>, Vec<String>);

/// All keys that start with `prefix`, sorted; with `one_level`, those below a further `/` as folders.
pub async fn list(client: &Client, prefix: &str, one_level: bool) -> Result<Listing, Problem> {
    let Some(store) = &client.stores.lists else {
        let text = "a web server has no listing: name the files";
        return Err(Problem::at_once(Kind::Unsupported, text, prefix));
    };
    let (mut objects, mut folders) = (Vec::new(), Vec::new());
    let mut token: Option<String> = None;
    loop {
        let (found, next) = page(client, store.as_ref(), prefix, one_level, &token).await?;
        for meta in found.objects {
            let key = original(meta.location.as_ref());
            objects.push((key, state(meta)));
        }
        folders.extend(found.common_prefixes.iter().map(|path| folder(path.as_ref())));
        match next {
            Some(next) => token = Some(next),
            None => break,
        }
    }
    objects.sort_by(|(one, _), (other, _)| one.cmp(other));
    objects.dedup_by(|(one, _), (other, _)| one == other);
    folders.sort();
    folders.dedup();
    Ok((objects, folders))
}

async fn page(
    client: &Client,
    store: &dyn PaginatedListStore,
    prefix: &str,
    one_level: bool,
    token: &Option<String>,
) -> Result<(ListResult, Option<String>), Problem> {
    let mut course = Course::new(client, prefix, 0);
    let usual = client.config.stall.saturating_mul(3); // a store may look long for a page
    loop {
        let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        let work = || {
            let options = PaginatedListOptions {
                delimiter: one_level.then_some(Cow::Borrowed("/")),
                page_token: token.clone(),
                ..Default::default()
            };
            store.list_paginated(prefix, options)
        };
        let found = course.finish(usual, true, work).await?;
        if found.page_token.is_none() || found.page_token != *token {
            return Ok((found.result, found.page_token));
        }
        let text = "the listing goes round in a circle";
        course.after(Verdict::wrong(text), &Met::default()).await?;
    }
}

fn folder(name: &str) -> String {
    match original(name) {
        name if name.ends_with('/') => name,
        name => format!("{name}/"),
    }
}

/// What stands between two marks.
pub fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    rest.split_once(to).map(|(inside, _)| inside)
}

/// A page whose names the crate takes as they are. An error says how the page contradicts itself.
pub fn rewritten(page: &str) -> Result<String, &'static str> {
    let end = page.trim_end();
    if !["</ListBucketResult>", "</EnumerationResults>"].iter().any(|mark| end.ends_with(mark)) {
        return Err("a page of the listing has no end");
    }
    let is_cut =
        between(page, "<IsTruncated>", "</IsTruncated>").is_some_and(|text| text == "true");
    let token = between(page, "<NextContinuationToken>", "</NextContinuationToken>");
    if is_cut && token.is_none_or(str::is_empty) {
        return Err("a page of the listing says that more follows, but not where");
    }
    let page = replaced(page, "<Key>", "</Key>");
    let page = replaced(&page, "<Name>", "</Name>");
    Ok(replaced(&page, "<Prefix>", "</Prefix>"))
}

fn replaced(page: &str, open: &str, close: &str) -> String {
    let mut done = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(open)
        && let Some((name, behind)) = after.split_once(close)
    {
        done.push_str(before);
        done.push_str(open);
        let parent = before.trim_end();
        let is_folder = parent.ends_with("<CommonPrefixes>") || parent.ends_with("<BlobPrefix>");
        // The prefix that was asked for stands outside of such an element, and is no name.
        let is_prefix = open == "<Prefix>" && !is_folder;
        match is_prefix || is_taken(&unescaped(name), is_folder) {
            true => done.push_str(name),
            false => {
                done.push(MARK);
                name.bytes().for_each(|byte| done.push_str(&format!("{byte:02x}")));
            }
        }
        done.push_str(close);
        rest = behind;
    }
    done.push_str(rest);
    done
}

fn is_taken(name: &str, is_folder: bool) -> bool {
    let name = if is_folder { name.strip_suffix('/').unwrap_or(name) } else { name };
    !name.starts_with(MARK) && Path::parse(name).is_ok_and(|path| path.as_ref() == name)
}

/// The name that `rewritten` wrote differently, or the name itself.
fn original(name: &str) -> String {
    let decoded = name.strip_prefix(MARK).and_then(|digits| {
        let pairs = digits.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        String::from_utf8(bytes?).ok()
    });
    decoded.map_or_else(|| name.to_owned(), |text| unescaped(&text))
}

/// XML's references to characters, resolved.
fn unescaped(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        done.push_str(before);
        let found = after.split_once(';').and_then(|(name, behind)| {
            let sign = match name {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                _ => {
                    let digits = name.strip_prefix('#')?;
                    let code = match digits.strip_prefix(['x', 'X']) {
                        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                        None => digits.parse().ok()?,
                    };
                    char::from_u32(code)?
                }
            };
            Some((sign, behind))
        });
        rest = match found {
            Some((sign, behind)) => {
                done.push(sign);
                behind
            }
            None => {
                done.push('&');
                after
            }
        };
    }
    done.push_str(rest);
    done
}
