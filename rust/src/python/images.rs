//! Inspects, decodes, encodes and re-encodes images.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, PrimitiveArray, RecordBatch, StringArray, StructArray, UInt8Array, UInt32Array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{Field, Fields};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow::{ArrowArray, import};
use super::run;
use crate::kernels::decode_images::{self as decoding, heads, values};
use crate::kernels::encode_images::{self as encoding, Change};
use crate::kernels::images::crop::Region;
use crate::kernels::images::jpeg::Decompressor;
use crate::kernels::images::jpeg_parts::Parts;
use crate::kernels::images::{Mode, Rules, Shape, Target, zeroed};
use crate::wire::exif;
use crate::wire::image_head::{Codec, probe};

/// Decoded pixels, which NumPy reads and writes by its array interface.
#[pyclass(name = "Pixels", module = "penstock._core")]
pub struct PyPixels(Vec<u8>);

#[pymethods]
impl PyPixels {
    #[getter]
    fn __array_interface__<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("shape", (self.0.len(),))?;
        // Nothing else uses the vector, and it lives as long as the array that points to it.
        interface.set_item("data", (self.0.as_mut_ptr() as usize, false))?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

fn codec(name: &str) -> PyResult<Codec> {
    Codec::named(name).ok_or_else(|| {
        PyValueError::new_err(format!("unknown codec {name:?}; known: jpeg, png, ppm, webp"))
    })
}

fn mode(name: &str) -> PyResult<Mode> {
    Mode::named(name).ok_or_else(|| {
        PyValueError::new_err(format!("unknown mode {name:?}; known: grey, rgb, stored"))
    })
}

/// Three columns of sizes, null for a null record.
fn sizes(shapes: &[Option<Shape>]) -> Vec<(&'static str, ArrayRef)> {
    let of = |side: fn(&Shape) -> u32| -> ArrayRef {
        Arc::new(shapes.iter().map(|shape| shape.as_ref().map(side)).collect::<UInt32Array>())
    };
    let channels = shapes.iter().map(|shape| shape.as_ref().map(|shape| shape.channels));
    vec![
        ("width", of(|shape| shape.width)),
        ("height", of(|shape| shape.height)),
        ("channels", Arc::new(channels.collect::<UInt8Array>())),
    ]
}

fn table(columns: Vec<(&'static str, ArrayRef)>, nulls: NullBuffer) -> ArrowArray {
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let fields: Fields = columns.iter().map(field).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    ArrowArray::new(StructArray::new(fields, arrays, Some(nulls)))
}

/// Read the headers of images: a struct array of codec, width, height and channels.
#[pyfunction]
pub fn probe_images(py: Python<'_>, images: &Bound<'_, PyAny>) -> PyResult<ArrowArray> {
    let array = import(images)?;
    let found = run(py, || heads(&values(&array)?))?;
    let shapes: Vec<_> =
        found.iter().map(|head| head.as_ref().map(|head| Shape::of(head, Mode::Stored))).collect();
    let codecs: StringArray =
        found.iter().map(|head| head.as_ref().map(|head| head.codec.name())).collect();
    let mut columns: Vec<(&str, ArrayRef)> = vec![("codec", Arc::new(codecs))];
    columns.extend(sizes(&shapes));
    Ok(table(columns, found.iter().map(Option::is_some).collect()))
}

/// The EXIF orientation of each image, 1 to 8: uint8.
#[pyfunction]
pub fn image_orientations(py: Python<'_>, images: &Bound<'_, PyAny>) -> PyResult<ArrowArray> {
    let array = import(images)?;
    let of = |image: &Option<&[u8]>| image.map_or(1, exif::orientation);
    let found = run(py, || Ok(values(&array)?.iter().map(of).collect::<UInt8Array>()))?;
    Ok(ArrowArray::new(found))
}

/// Decode images: their pixels, one image after another, and a struct array of width, height and channels.
#[pyfunction]
#[pyo3(signature = (
    images, *, mode = "rgb", image_pixels, batch_bytes, allow_damaged = false, threads = 1
))]
pub fn decode_images(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    mode: &str,
    image_pixels: u64,
    batch_bytes: u64,
    allow_damaged: bool,
    threads: usize,
) -> PyResult<(PyPixels, ArrowArray)> {
    let array = import(images)?;
    let rules = Rules { mode: self::mode(mode)?, most_pixels: image_pixels, allow_damaged };
    let decoded = run(py, || decoding::decode(&values(&array)?, &rules, batch_bytes, threads))?;
    let nulls = decoded.shapes.iter().map(Option::is_some).collect();
    Ok((PyPixels(decoded.pixels), table(sizes(&decoded.shapes), nulls)))
}

fn shapes(batch: &RecordBatch) -> Option<Vec<Shape>> {
    fn column<'a, T: arrow_array::types::ArrowPrimitiveType>(
        batch: &'a RecordBatch,
        name: &str,
    ) -> Option<&'a PrimitiveArray<T>> {
        let array = batch.column_by_name(name)?.as_primitive_opt::<T>()?;
        (array.null_count() == 0).then_some(array)
    }
    let widths = column::<UInt32Type>(batch, "width")?;
    let heights = column::<UInt32Type>(batch, "height")?;
    let channels = column::<UInt8Type>(batch, "channels")?;
    let sides = widths.values().iter().zip(heights.values());
    let shape =
        |((&width, &height), &channels): ((&u32, &u32), &u8)| Shape { width, height, channels };
    Some(sides.zip(channels.values()).map(shape).collect())
}

/// Encode images: a binary array. `pixels` are arrays of uint8 with one image or several, one after
/// another. `sizes` is a record batch of width and height (uint32) and channels (uint8).
#[pyfunction]
#[pyo3(signature = (pixels, sizes, codec, *, quality = 90, lossless = false, threads = 1))]
pub fn encode_images(
    py: Python<'_>,
    pixels: Vec<Bound<'_, PyAny>>,
    sizes: &Bound<'_, PyAny>,
    codec: &str,
    quality: u8,
    lossless: bool,
    threads: usize,
) -> PyResult<ArrowArray> {
    let to = Target { codec: self::codec(codec)?, quality, lossless };
    let pixels = pixels.iter().map(import).collect::<PyResult<Vec<_>>>()?;
    let pieces: Option<Vec<&[u8]>> = pixels
        .iter()
        .map(|piece| piece.as_primitive_opt::<UInt8Type>().map(|piece| piece.values().as_ref()))
        .collect();
    let sizes = import(sizes)?;
    let (Some(pieces), Some(sizes)) = (pieces, sizes.as_struct_opt()) else {
        return Err(PyTypeError::new_err("expected arrays of uint8 and a record batch"));
    };
    let Some(shapes) = shapes(&RecordBatch::from(sizes)) else {
        return Err(PyTypeError::new_err("expected width, height (uint32) and channels (uint8)"));
    };
    let made = run(py, || encoding::encode(&pieces, &shapes, &to, threads))?;
    Ok(ArrowArray::new(made))
}

/// Encode images again, smaller or with another codec or quality. An image that needs no change keeps its
/// bytes.
#[pyfunction]
#[pyo3(signature = (
    images, *, codec = None, quality = None, lossless = false, max_side = None, mode = "stored",
    image_pixels, allow_damaged = false, threads = 1
))]
#[expect(clippy::too_many_arguments, reason = "keywords on the other side")]
pub fn reencode_images(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    codec: Option<&str>,
    quality: Option<u8>,
    lossless: bool,
    max_side: Option<u32>,
    mode: &str,
    image_pixels: u64,
    allow_damaged: bool,
    threads: usize,
) -> PyResult<ArrowArray> {
    let array = import(images)?;
    let codec = codec.map(self::codec).transpose()?;
    let how = Change { codec, quality, lossless, max_side };
    let rules = Rules { mode: self::mode(mode)?, most_pixels: image_pixels, allow_damaged };
    let made = run(py, || encoding::reencode(&values(&array)?, &how, &rules, threads))?;
    Ok(ArrowArray::new(made))
}

/// Decode a JPEG at 1/`part` of its size, or a region (left, top, width, height) of that. For
/// tests, which compare two decoders: with `by_parts`, our Huffman decoder and the parts of libjpeg
/// are used (None if they cannot decode the file), otherwise TurboJPEG.
#[pyfunction]
#[pyo3(signature = (data, *, by_parts, channels = 3, part = 1, region = None, allow_damaged = false))]
pub fn jpeg_pixels_by(
    py: Python<'_>,
    data: &[u8],
    by_parts: bool,
    channels: u8,
    part: u8,
    region: Option<(u32, u32, u32, u32)>,
    allow_damaged: bool,
) -> PyResult<Option<PyPixels>> {
    let decoded = run(py, || {
        let head = probe(data)?;
        let whole = |side: u32| side.div_ceil(u32::from(part.max(1)));
        let region = region.map(|(left, top, width, height)| Region { left, top, width, height });
        let (width, height) = region.map_or((whole(head.width), whole(head.height)), |region| {
            (region.width, region.height)
        });
        let shape = Shape { width, height, channels };
        let mut pixels = zeroed(shape.bytes()?)?;
        if by_parts {
            let mut parts = Parts::new();
            let begun =
                parts.as_mut().and_then(|parts| parts.begin(data, (head.width, head.height)));
            let done =
                begun.and_then(|begun| begun.decode(shape, part, region, false, &mut pixels));
            return Ok(done.map(|()| pixels));
        }
        let mut decompressor = Decompressor::without_parts();
        let begun = decompressor.begin(data, &head, allow_damaged)?;
        begun.decode(shape, part, region, &mut pixels).map(|()| Some(pixels))
    })?;
    Ok(decoded.map(PyPixels))
}
