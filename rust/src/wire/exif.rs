//! Reads the EXIF orientation of an image: how a program that shows it turns its stored pixels.
//!
//! | codec | its EXIF is in |
//! |---|---|
//! | JPEG | the segment APP1 that begins with `Exif\0\0` |
//! | PNG | the chunk eXIf |
//! | WebP | the chunk EXIF |
//! | TIFF | the file itself |

const TAG: u16 = 0x0112;
const LONG: u16 = 4;
const MARK: &[u8] = b"Exif\0\0";
/// The markers of a JPEG after which no EXIF follows: the end of the image, and the start of its
/// pixels.
const ENDS: [u8; 2] = [0xd9, 0xda];

/// The orientation of an encoded image, 1 to 8. It is 1 if the image has no valid EXIF.
pub fn orientation(image: &[u8]) -> u8 {
    exif_of(image).and_then(tag_of).unwrap_or(1)
}

fn exif_of(image: &[u8]) -> Option<&[u8]> {
    match image {
        [0xff, 0xd8, rest @ ..] => of_jpeg(rest),
        [0x89, b'P', b'N', b'G', _, _, _, _, rest @ ..] => of_chunks(rest, true, b"eXIf"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', rest @ ..] => {
            of_chunks(rest, false, b"EXIF")
        }
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Some(image),
        _ => None,
    }
}

fn of_jpeg(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let &[first, kind, high, low] = rest.first_chunk::<4>()?;
        if first != 0xff || ENDS.contains(&kind) {
            return None;
        }
        if kind == 0xff {
            rest = rest.get(1..)?; // a filling byte
            continue;
        }
        let end = 2 + usize::from(u16::from_be_bytes([high, low]));
        let segment = rest.get(4..end.min(rest.len())).unwrap_or_default();
        if kind == 0xe1
            && let Some(exif) = segment.strip_prefix(MARK)
        {
            return Some(exif);
        }
        rest = rest.get(end..)?;
    }
}

/// The contents of a chunk of a PNG or WebP.
fn of_chunks<'a>(mut rest: &'a [u8], is_png: bool, wanted: &[u8; 4]) -> Option<&'a [u8]> {
    loop {
        let (head, behind) = rest.split_first_chunk::<8>()?;
        let &[a, b, c, d, e, f, g, h] = head;
        let (name, length) = if is_png {
            ([e, f, g, h], u32::from_be_bytes([a, b, c, d]))
        } else {
            ([a, b, c, d], u32::from_le_bytes([e, f, g, h]))
        };
        let length = length as usize;
        if name == *wanted {
            let exif = behind.get(..length.min(behind.len()))?;
            return Some(exif.strip_prefix(MARK).unwrap_or(exif));
        }
        // A PNG has a checksum behind each chunk, a WebP an even number of bytes.
        rest = behind.get(length.saturating_add(if is_png { 4 } else { length % 2 })..)?;
    }
}

fn tag_of(exif: &[u8]) -> Option<u8> {
    let is_little = match exif.first_chunk::<2>()? {
        b"II" => true,
        b"MM" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = *exif.get(at..)?.first_chunk()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let long = |at: usize| {
        let bytes = *exif.get(at..)?.first_chunk()?;
        Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let start = long(4)? as usize;
    let count = usize::from(short(start)?);
    for place in (0..count).map(|number| start.saturating_add(2 + 12 * number)) {
        let (tag, kind) = (short(place)?, short(place.saturating_add(2))?);
        if tag == TAG {
            let at = place.saturating_add(8);
            let value = if kind == LONG { long(at)? } else { short(at)?.into() };
            return u8::try_from(value).ok().filter(|value| (1..=8).contains(value));
        }
    }
    None
}
