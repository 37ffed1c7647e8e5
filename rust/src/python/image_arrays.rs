//! Decodes, encodes, resizes and recolours single images as arrays. One call handles one image, so there
//! are few arguments, and arrays are passed by NumPy's array interface.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::run;
use super::values::{PyValues, Store};
use crate::kernels::colours::{self, Change};
use crate::kernels::images::libjpeg::{self, Choices, Manner, Picture, Window};
use crate::kernels::images::{bmp, gif, samples};
use crate::kernels::interpolate::{self, Filter, Method};
use crate::wire::Fault;

/// The memory of a NumPy array.
struct Memory<'py> {
    _owner: &'py Bound<'py, PyAny>,
    address: usize,
    kind: String,
    shape: Vec<usize>,
}

impl<'py> Memory<'py> {
    fn of(array: &'py Bound<'py, PyAny>) -> PyResult<Self> {
        let interface = array.getattr("__array_interface__")?;
        let interface = interface.cast::<PyDict>()?;
        let wrong = || PyTypeError::new_err("expected an array, contiguous in memory");
        let item = |name: &str| interface.get_item(name)?.ok_or_else(wrong);
        if interface.get_item("strides")?.is_some_and(|strides| !strides.is_none()) {
            return Err(wrong());
        }
        let (address, _): (usize, bool) = item("data")?.extract()?;
        let (kind, shape) = (item("typestr")?.extract()?, item("shape")?.extract()?);
        Ok(Self { _owner: array, address, kind, shape })
    }

    fn length(&self) -> PyResult<usize> {
        let length = self.shape.iter().try_fold(1usize, |length, &side| length.checked_mul(side));
        length.ok_or_else(|| PyValueError::new_err("an array too large"))
    }

    /// The values, if `kind` is the kind of this type.
    fn values<T>(&self) -> PyResult<&[T]> {
        let length = self.length()?;
        if length == 0 || !self.address.is_multiple_of(align_of::<T>()) {
            return if length == 0 { Ok(&[]) } else { Err(PyTypeError::new_err("not aligned")) };
        }
        // SAFETY: NumPy reports this many consecutive values, and the array is kept alive while the slice
        // is in use. Any bits are a valid number.
        Ok(unsafe { std::slice::from_raw_parts(self.address as *const T, length) })
    }

    fn bytes(&self) -> PyResult<&[u8]> {
        let width: usize = self.kind.get(2..).and_then(|width| width.parse().ok()).unwrap_or(1);
        let length = self.length()?.checked_mul(width);
        let length = length.ok_or_else(|| PyValueError::new_err("an array too large"))?;
        if length == 0 {
            return Ok(&[]);
        }
        // SAFETY: as above, and any number consists of bytes.
        Ok(unsafe { std::slice::from_raw_parts(self.address as *const u8, length) })
    }

    /// (images, rows, columns, channels) of three or four dimensions.
    fn sides(&self) -> PyResult<(usize, usize, usize, usize)> {
        match *self.shape.as_slice() {
            [height, width, channels] => Ok((1, height, width, channels)),
            [count, height, width, channels] => Ok((count, height, width, channels)),
            _ => Err(PyValueError::new_err("expected an image or a batch of them")),
        }
    }

    /// The shape with other rows and columns.
    fn resized(&self, (height, width): (usize, usize)) -> Vec<usize> {
        let mut shape = self.shape.clone();
        let at = shape.len().saturating_sub(3);
        if let Some([rows, columns]) = shape.get_mut(at..at + 2) {
            (*rows, *columns) = (height, width);
        }
        shape
    }
}

fn array(picture: Picture) -> PyValues {
    let shape = vec![picture.height, picture.width, picture.channels];
    PyValues::new(Store::Bytes(picture.pixels), shape)
}

/// Decode a JPEG to pixels (height, width, channels), with TensorFlow's options. `window` is top, left,
/// height and width.
#[pyfunction]
#[pyo3(signature = (
    contents, *, channels, ratio, fancy, fast, recover, fraction, image_pixels, window = None
))]
#[expect(clippy::too_many_arguments, reason = "keywords on the other side")]
pub fn jpeg_pixels(
    py: Python<'_>,
    contents: &[u8],
    channels: u8,
    ratio: u8,
    fancy: bool,
    fast: bool,
    recover: bool,
    fraction: f32,
    image_pixels: u64,
    window: Option<(i32, i32, i32, i32)>,
) -> PyResult<PyValues> {
    let window = window.map(|(top, left, height, width)| Window { top, left, height, width });
    let most_pixels = image_pixels;
    let choices = Choices { channels, ratio, fancy, fast, recover, fraction, window, most_pixels };
    run(py, || libjpeg::decode(contents, &choices)).map(array)
}

/// Height, width and channels from the header of a JPEG.
#[pyfunction]
pub fn jpeg_shape(py: Python<'_>, contents: &[u8]) -> PyResult<(u16, u16, u8)> {
    run(py, || libjpeg::size(contents))
}

/// Decode a PNG to pixels of 8 or 16 bits.
#[pyfunction]
#[pyo3(signature = (contents, *, channels, wide, image_pixels))]
pub fn png_pixels(
    py: Python<'_>,
    contents: &[u8],
    channels: usize,
    wide: bool,
    image_pixels: u64,
) -> PyResult<PyValues> {
    if !wide {
        return run(py, || samples::decode_u8(contents, channels, image_pixels)).map(array);
    }
    let picture = run(py, || samples::decode_u16(contents, channels, image_pixels))?;
    let kind = if cfg!(target_endian = "little") { "<u2" } else { ">u2" };
    Ok(array(picture).of_kind(kind))
}

/// Decode a BMP.
#[pyfunction]
#[pyo3(signature = (contents, *, channels, image_pixels))]
pub fn bmp_pixels(
    py: Python<'_>,
    contents: &[u8],
    channels: usize,
    image_pixels: u64,
) -> PyResult<PyValues> {
    run(py, || bmp::decode(contents, channels, image_pixels)).map(array)
}

/// Decode the frames of a GIF (frames, height, width, 3).
#[pyfunction]
#[pyo3(signature = (contents, *, first_only, image_pixels))]
pub fn gif_pixels(
    py: Python<'_>,
    contents: &[u8],
    first_only: bool,
    image_pixels: u64,
) -> PyResult<PyValues> {
    let frames = run(py, || gif::decode(contents, first_only, image_pixels))?;
    let shape = vec![frames.count, frames.height, frames.width, 3];
    Ok(PyValues::new(Store::Bytes(frames.pixels), shape))
}

/// Encode an image of one or three channels as a JPEG.
#[pyfunction]
#[pyo3(signature = (
    image, *, quality, progressive, optimize, chroma_downsampling, density_unit, x_density,
    y_density, xmp
))]
#[expect(clippy::too_many_arguments, reason = "keywords on the other side")]
pub fn jpeg_bytes<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyAny>,
    quality: u8,
    progressive: bool,
    optimize: bool,
    chroma_downsampling: bool,
    density_unit: u8,
    x_density: u16,
    y_density: u16,
    xmp: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let memory = Memory::of(image)?;
    let (_, height, width, channels) = memory.sides()?;
    let pixels = memory.bytes()?;
    let manner = Manner {
        quality,
        progressive,
        optimize,
        chroma_downsampling,
        density_unit,
        x_density,
        y_density,
        xmp,
    };
    let made = run(py, || libjpeg::encode(pixels, (height, width, channels), &manner))?;
    Ok(PyBytes::new(py, &made))
}

/// Encode a uint8 or uint16 image as a PNG; `level` is zlib's.
#[pyfunction]
#[pyo3(signature = (image, *, level = None))]
pub fn png_bytes<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyAny>,
    level: Option<u8>,
) -> PyResult<Bound<'py, PyBytes>> {
    let memory = Memory::of(image)?;
    let (_, height, width, channels) = memory.sides()?;
    let (pixels, wide) = (memory.bytes()?, memory.kind.ends_with("u2"));
    let made = run(py, || samples::encode(pixels, (height, width, channels), wide, level))?;
    Ok(PyBytes::new(py, &made))
}

fn method(name: &str) -> Option<Method> {
    Some(match name {
        "bilinear" => Method::Bilinear,
        "bicubic" => Method::Bicubic,
        "area" => Method::Area,
        "triangle" => Method::Filter(Filter::Triangle),
        "keyscubic" => Method::Filter(Filter::Keys),
        "lanczos3" => Method::Filter(Filter::Lanczos3),
        "lanczos5" => Method::Filter(Filter::Lanczos5),
        "gaussian" => Method::Filter(Filter::Gaussian),
        "mitchellcubic" => Method::Filter(Filter::Mitchell),
        _ => return None,
    })
}

/// Resize images (height, width, channels), or a batch of them, to float32, or with `nearest` to the same
/// dtype.
#[pyfunction]
#[pyo3(signature = (images, height, width, method, antialias = false))]
pub fn resize_images(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    height: usize,
    width: usize,
    method: &str,
    antialias: bool,
) -> PyResult<PyValues> {
    let memory = Memory::of(images)?;
    let (_, rows, columns, channels) = memory.sides()?;
    let (size, new) = ((rows, columns, channels), (height, width));
    if memory.length()? == 0 || height == 0 || width == 0 {
        return Err(PyValueError::new_err("an image has at least one pixel"));
    }
    if method == "nearest" {
        let bytes = memory.bytes()?;
        let pixel = channels * (bytes.len() / memory.length()?);
        let made = run(py, || Ok(interpolate::resize_nearest(bytes, (rows, columns, pixel), new)))?;
        let kind = ["|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"];
        let kind = kind.into_iter().find(|kind| *kind == memory.kind);
        let kind = kind.ok_or_else(|| PyTypeError::new_err("not an image of numbers"))?;
        return Ok(PyValues::new(Store::Bytes(made), memory.resized(new)).of_kind(kind));
    }
    let Some(method) = self::method(method) else {
        return Err(PyValueError::new_err(format!("unknown method {method:?}")));
    };
    fn of<T: interpolate::Value + Sync>(
        py: Python<'_>,
        memory: &Memory<'_>,
        how: impl Fn(&[T]) -> Result<Vec<f32>, Fault> + Send + Sync,
    ) -> PyResult<Vec<f32>> {
        let values = memory.values::<T>()?;
        run(py, || how(values))
    }
    macro_rules! by_kind {
        ($($kind:literal $type:ty),*) => {
            match memory.kind.as_str() {
                $($kind => of::<$type>(py, &memory, |values| {
                    interpolate::resize(values, size, new, method, antialias)
                })?,)*
                other => return Err(PyTypeError::new_err(format!("images of {other}"))),
            }
        };
    }
    let made = by_kind!(
        "|u1" u8, "|i1" i8, "<u2" u16, "<i2" i16, "<u4" u32, "<i4" i32, "<u8" u64, "<i8" i64,
        "<f4" f32, "<f8" f64
    );
    Ok(PyValues::new(Store::Floats(made), memory.resized(new)))
}

/// Change pixels (..., 3) of float32 or float64: `to_hsv`, `from_hsv`, `hue`, `saturation`.
#[pyfunction]
#[pyo3(signature = (images, change, amount = 0.0))]
pub fn change_colours(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    change: &str,
    amount: f64,
) -> PyResult<PyValues> {
    let memory = Memory::of(images)?;
    let change = match change {
        "to_hsv" => Change::ToHsv,
        "from_hsv" => Change::FromHsv,
        "hue" if amount.abs() <= 1.0 => Change::Hue,
        "saturation" => Change::Saturation,
        _ => return Err(PyValueError::new_err(format!("unknown change {change:?}"))),
    };
    let shape = memory.shape.clone();
    if shape.last() != Some(&3) {
        return Err(PyValueError::new_err("expected three values a pixel"));
    }
    match memory.kind.as_str() {
        "<f4" => {
            let values = memory.values::<f32>()?;
            let made = run(py, || Ok(colours::change(values, change, amount as f32)))?;
            Ok(PyValues::new(Store::Floats(made), shape))
        }
        "<f8" => {
            let values = memory.values::<f64>()?;
            let made = run(py, || Ok(colours::change(values, change, amount)))?;
            Ok(PyValues::new(Store::Doubles(made), shape))
        }
        other => Err(PyTypeError::new_err(format!("colours of {other}"))),
    }
}
