//! Makes batches of images for training, and the memory for them.

use std::sync::{Arc, Mutex, Weak};

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, StructArray, UInt32Array};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow::{ArrowArray, import};
use super::{PyFault, run};
use crate::kernels::decode_images::values;
use crate::kernels::headed;
use crate::kernels::images::crop::{Crop, Draw, Law, View};
use crate::kernels::images::jitter::Jitter;
use crate::kernels::images::masks::Samples;
use crate::kernels::images::pillow::Filter;
use crate::kernels::images::resize::Resampling;
use crate::kernels::images::training_view::Recipe;
use crate::kernels::images::values::{DeepValues, Values};
use crate::kernels::images::{Shape, zeroed};
use crate::kernels::train_images::{
    Damage, Picture, Product, Rules, make, mask_samples, sizes, views,
};
use crate::wire::{Fault, FaultKind};

/// How images are cropped, resized, mirrored and written.
#[pyclass(name = "ImageRecipe", frozen, module = "penstock._core")]
pub struct PyRecipe(Recipe);

#[pymethods]
impl PyRecipe {
    #[new]
    #[pyo3(signature = (
        *, size, crop, flip, exact, scale, ratio, center_fraction, table = None, deep = None,
        planes = false, upside_down = false, fill = None, mask_fill = 0, exif = false, pad = None,
        jitter = None, jitter_probability = 1.0, grayscale = 0.0, interpolation = "bilinear",
        grey = false
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords on the other side")]
    fn new(
        size: Option<(u32, u32)>,
        crop: &str,
        flip: bool,
        exact: bool,
        scale: (f64, f64),
        ratio: (f64, f64),
        center_fraction: f64,
        table: Option<&[u8]>,
        deep: Option<&[u8]>,
        planes: bool,
        upside_down: bool,
        fill: Option<&[u8]>,
        mask_fill: u16,
        exif: bool,
        pad: Option<u32>,
        jitter: Option<[Option<(f64, f64)>; 4]>,
        jitter_probability: f64,
        grayscale: f64,
        interpolation: &str,
        grey: bool,
    ) -> PyResult<Self> {
        let positive = |(low, high): (f64, f64)| low > 0.0 && low <= high && high.is_finite();
        let fits = positive(scale)
            && scale.1 <= 1.0
            && positive(ratio)
            && center_fraction > 0.0
            && center_fraction <= 1.0
            && size.is_none_or(|(height, width)| height > 0 && width > 0)
            && pad.is_none_or(|pad| size.is_some_and(|(height, width)| pad < height.min(width)));
        let crop = Crop::named(crop).filter(|_| fits);
        let values = table.map_or(Some(Values::Bytes), Values::table);
        let deep = deep.map(|table| DeepValues::table(table).ok_or(())).transpose();
        let filter = Filter::named(interpolation);
        let (Some(crop), Some(values), Ok(deep), Some(filter)) = (crop, values, deep, filter)
        else {
            return Err(PyValueError::new_err("no recipe of an image"));
        };
        if deep.as_ref().is_some_and(|deep| deep.width() != values.width()) {
            return Err(PyValueError::new_err("tables of values of different widths"));
        }
        let pixel = values.width() * if grey { 1 } else { 3 };
        let fill = fill.map_or_else(|| vec![0; pixel], <[u8]>::to_vec);
        if fill.len() != pixel {
            return Err(PyValueError::new_err("a fill of other values"));
        }
        let law = Law { size, crop, flip, upside_down, scale, ratio, center_fraction, exif, pad };
        let ranges = jitter.unwrap_or_default();
        let is_range = |&(low, high): &(f64, f64)| low <= high && high - low < f64::INFINITY;
        let is_probability = |value: f64| (0.0..=1.0).contains(&value);
        if !(ranges.iter().flatten().all(is_range)
            && is_probability(jitter_probability)
            && is_probability(grayscale))
        {
            return Err(PyValueError::new_err("no such jitter"));
        }
        let jitter = Jitter { ranges, probability: jitter_probability, grayscale };
        let is_changed = ranges != [None; 4] || grayscale > 0.0;
        let jitter = is_changed.then_some(jitter);
        let resampling = Resampling { filter, exact };
        Ok(Self(Recipe { law, resampling, grey, values, deep, planes, fill, mask_fill, jitter }))
    }

    /// The changes of colours for a key, in their order: their names and factors. That of the hue is a
    /// number of turns.
    fn jitter(&self, key: u64) -> Vec<(&'static str, f64)> {
        let steps = self.0.jitter.as_ref().map_or_else(Vec::new, |jitter| jitter.drawn(key));
        steps.into_iter().map(|(kind, factor)| (kind.name(), factor)).collect()
    }

    /// Left, top, width and height of the crop, and whether it is mirrored.
    fn view(&self, width: u32, height: u32, key: u64) -> (f64, f64, f64, f64, bool) {
        let view = self.0.law.view(width, height, key);
        (view.across.start, view.down.start, view.across.length, view.down.length, view.flip)
    }

    /// The same for each image of these sizes (a struct array of width and height): a struct array
    /// of left, top, width, height, the new width and height without the margin, the margin on the
    /// left and at the top (float64), flip and upside_down. A row is null if its size is null.
    fn views(
        &self,
        py: Python<'_>,
        sizes: &Bound<'_, PyAny>,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<ArrowArray> {
        let (sizes, keys) = (import(sizes)?, import(keys)?);
        let views = run(py, || Ok(views(&self.0.law, &known_sizes(&sizes)?, key_values(&keys)?)))?;
        let number = |of: fn(&View) -> f64| -> ArrayRef {
            let each = views.iter().map(|view| view.as_ref().map(of));
            Arc::new(each.collect::<Float64Array>())
        };
        let flips = |of: fn(&View) -> bool| -> ArrayRef {
            let each = views.iter().map(|view| view.as_ref().map(of));
            Arc::new(each.collect::<BooleanArray>())
        };
        let columns = [
            ("left", number(|view| view.across.start)),
            ("top", number(|view| view.down.start)),
            ("width", number(|view| view.across.length)),
            ("height", number(|view| view.down.length)),
            ("new_width", number(|view| view.width.into())),
            ("new_height", number(|view| view.height.into())),
            ("margin_left", number(|view| view.margin.left.into())),
            ("margin_top", number(|view| view.margin.top.into())),
            ("flip", flips(|view| view.flip)),
            ("upside_down", flips(|view| view.upside_down)),
        ];
        let field = |(name, column): (&str, ArrayRef)| {
            (Arc::new(Field::new(name, column.data_type().clone(), true)), column)
        };
        Ok(ArrowArray::new(StructArray::from(columns.map(field).to_vec())))
    }
}

fn key_values(keys: &ArrayRef) -> Result<&[u64], Fault> {
    let keys = keys.as_primitive_opt::<UInt64Type>().filter(|keys| keys.null_count() == 0);
    let wrong = || Fault::new(FaultKind::Schema, 0, "expected keys of uint64");
    Ok(keys.ok_or_else(wrong)?.values())
}

/// Width and height of each image of a struct array; None if either is null.
fn known_sizes(array: &ArrayRef) -> Result<Vec<Option<(u32, u32)>>, Fault> {
    let wrong = || Fault::new(FaultKind::Schema, 0, "expected width and height of uint32");
    let columns = array.as_struct_opt().ok_or_else(wrong)?.columns();
    let [widths, heights, ..] = columns else { return Err(wrong()) };
    let [widths, heights] =
        [widths, heights].map(|sides| sides.as_primitive_opt::<UInt32Type>().ok_or_else(wrong));
    let pairs = widths?.iter().zip(heights?.iter());
    Ok(pairs.map(|(width, height)| width.zip(height).filter(|&(w, h)| w > 0 && h > 0)).collect())
}

/// The images of an array. They are files, some of which may have separate heads, or pixels of a
/// shape (height, width, channels), which have two bytes per value if `deep` is set.
fn images(
    array: &ArrayRef,
    shape: Option<(u32, u32, u8)>,
    deep: bool,
) -> PyResult<Vec<Option<Picture<'_>>>> {
    let Some((height, width, channels)) = shape else {
        return files(array).map_err(super::raise);
    };
    let shape = Shape { width, height, channels };
    let wrong = || PyTypeError::new_err("expected lists of uint8, each of the shape that was said");
    let length = shape.bytes().map_err(super::raise)?.saturating_mul(if deep { 2 } else { 1 });
    let lists = array.as_fixed_size_list_opt().ok_or_else(wrong)?;
    let pixels = lists.values().as_primitive_opt::<UInt8Type>().ok_or_else(wrong)?;
    if usize::try_from(lists.value_length()) != Ok(length) || length == 0 {
        return Err(wrong());
    }
    // If the array is a slice, these are only the values of the slice.
    let each = pixels.values().chunks_exact(length).enumerate();
    let picture = |(place, one)| lists.is_valid(place).then_some(Picture::Pixels(shape, one));
    Ok(each.take(lists.len()).map(picture).collect())
}

fn files(array: &ArrayRef) -> Result<Vec<Option<Picture<'_>>>, Fault> {
    let Some(separate) = array.as_struct_opt() else {
        return Ok(values(array)?.into_iter().map(|file| file.map(Picture::File)).collect());
    };
    let (heads, bodies) = headed::parts(separate)?;
    let pairs = heads.iter().flatten().zip(bodies.iter().flatten());
    let pictures = pairs.map(|(head, body)| match head.is_empty() {
        true => Picture::File(body),
        false => Picture::Headed(head, body),
    });
    Ok(pictures.map(Some).collect())
}

/// Width and height (uint32) of each image, null if its head is not valid. With `exif`, they are
/// those of the upright image.
#[pyfunction]
#[pyo3(signature = (images, image_pixels, exif = false))]
pub fn image_view_sizes(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    image_pixels: u64,
    exif: bool,
) -> PyResult<ArrowArray> {
    let array = import(images)?;
    let sizes = run(py, || Ok(sizes(&files(&array)?, image_pixels, exif)))?;
    let side = |of: fn((u32, u32)) -> u32| -> ArrayRef {
        Arc::new(sizes.iter().map(|size| size.map(of)).collect::<UInt32Array>())
    };
    let field = |name: &str| Arc::new(Field::new(name, DataType::UInt32, true));
    Ok(ArrowArray::new(StructArray::from(vec![
        (field("width"), side(|size| size.0)),
        (field("height"), side(|size| size.1)),
    ])))
}

/// The channels of the first mask with a valid head, and whether any mask has 16 bits.
#[pyfunction]
pub fn mask_kind(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    image_pixels: u64,
) -> PyResult<(u8, bool)> {
    let array = import(images)?;
    let samples = run(py, || Ok(mask_samples(&files(&array)?, image_pixels)))?;
    Ok((samples.channels, samples.wide))
}

/// The address and the length of the memory of a writable NumPy array.
fn memory(array: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    let interface = array.getattr("__array_interface__")?;
    let interface = interface.cast::<PyDict>()?;
    let wrong = || PyValueError::new_err("out must be writable, and contiguous in memory");
    let item = |name: &str| interface.get_item(name)?.ok_or_else(wrong);
    let (address, read_only): (usize, bool) = item("data")?.extract()?;
    let kind: String = item("typestr")?.extract()?;
    let width: usize = kind.get(2..).and_then(|width| width.parse().ok()).ok_or_else(wrong)?;
    let shape: Vec<usize> = item("shape")?.extract()?;
    let length = shape.iter().try_fold(width, |length, side| length.checked_mul(*side));
    let strided = interface.get_item("strides")?.is_some_and(|strides| !strides.is_none());
    match length {
        Some(length) if !read_only && !strided => Ok((address, length)),
        _ => Err(wrong()),
    }
}

fn overlaps(data: &ArrayData, start: usize, end: usize) -> bool {
    let one = |at: usize, length: usize| at < end && start < at.saturating_add(length);
    data.buffers().iter().any(|buffer| one(buffer.as_ptr() as usize, buffer.len()))
        || data.child_data().iter().any(|child| overlaps(child, start, end))
}

/// Make images into `out`. Returns the damaged ones as (index, fault, whether a part of it was decoded).
#[pyfunction]
#[pyo3(signature = (
    images, keys, recipe, out, *, main = None, mask = None, shape = None, deep = false,
    image_pixels, damage = "error", threads = 1
))]
#[expect(clippy::too_many_arguments, reason = "keywords on the other side")]
pub fn make_images(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    keys: &Bound<'_, PyAny>,
    recipe: &PyRecipe,
    out: &Bound<'_, PyAny>,
    main: Option<&Bound<'_, PyAny>>,
    mask: Option<(u8, bool)>,
    shape: Option<(u32, u32, u8)>,
    deep: bool,
    image_pixels: u64,
    damage: &str,
    threads: usize,
) -> PyResult<Vec<(usize, PyFault, bool)>> {
    let array = import(images)?;
    let draws = draws(keys, main)?;
    let damage = Damage::named(damage).ok_or_else(|| {
        PyValueError::new_err(format!("unknown damage={damage:?}; known: error, skip, salvage"))
    })?;
    let (address, length) = memory(out)?;
    if overlaps(&array.to_data(), address, address.saturating_add(length)) {
        return Err(PyValueError::new_err("out is in the memory of the images"));
    }
    let images = self::images(&array, shape, deep)?;
    let rules = Rules { most_pixels: image_pixels, damage, threads };
    let fill = recipe.0.mask_fill;
    let mask = mask.map(|(channels, wide)| Samples { channels, wide, fill });
    let product = Product { recipe: &recipe.0, mask };
    let room: &mut [u8] = if length == 0 {
        &mut []
    } else {
        // SAFETY: the array has this many writable bytes. `out` is kept alive until this function returns,
        // and does not overlap the input. As for any array shared between threads, the caller must not
        // write to it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length) }
    };
    let damaged = run(py, move || make(&images, &draws, product, &rules, room))?;
    Ok(damaged.into_iter().map(|one| (one.place, one.fault.into(), one.salvaged)).collect())
}

/// The inputs that determine the view of each image; None if the size of the main image is not
/// known.
fn draws(keys: &Bound<'_, PyAny>, main: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Option<Draw>>> {
    let keys = import(keys)?;
    let keys = key_values(&keys).map_err(|fault| PyTypeError::new_err(fault.message))?;
    let Some(main) = main else {
        return Ok(keys.iter().map(|&key| Some(Draw { key, main: None })).collect());
    };
    let main = import(main)?;
    let sizes = known_sizes(&main).map_err(super::raise)?;
    if sizes.len() != keys.len() {
        return Err(PyValueError::new_err(format!("{} keys, {} sizes", keys.len(), sizes.len())));
    }
    let draw =
        |(&key, size): (&u64, Option<(u32, u32)>)| size.map(|size| Draw { key, main: Some(size) });
    Ok(keys.iter().zip(sizes).map(draw).collect())
}

/// Freed memory.
struct Pool {
    most_bytes: usize,
    bytes: usize,
    free: Vec<Vec<u8>>,
}

/// Batches of the same size are made and freed all the time. Their memory is reused, because fresh memory
/// costs a page fault and the clearing of a page for every 4 KiB.
#[pyclass(name = "BufferPool", frozen, module = "penstock._core")]
pub struct PyBufferPool(Arc<Mutex<Pool>>);

/// Memory from a pool, which NumPy reads and writes by its array interface. It returns to the pool when the
/// last array that uses it is freed.
#[pyclass(name = "PooledBuffer", frozen, module = "penstock._core")]
pub struct PyPooledBuffer {
    bytes: Mutex<Vec<u8>>,
    address: usize,
    length: usize,
    pool: Weak<Mutex<Pool>>,
}

/// Run with the pool if it is not locked. It never waits: after a fork, its lock may belong to a thread
/// that the child does not have.
fn with<T>(pool: &Mutex<Pool>, act: impl FnOnce(&mut Pool) -> T) -> Option<T> {
    const TRIES: usize = 1000;
    for _ in 0..TRIES {
        if let Ok(mut pool) = pool.try_lock() {
            return Some(act(&mut pool));
        }
        std::hint::spin_loop();
    }
    None
}

#[pymethods]
impl PyBufferPool {
    /// A pool that keeps at most this many unused bytes.
    #[new]
    fn new(most_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(Pool { most_bytes, bytes: 0, free: Vec::new() })))
    }

    /// Memory of this many bytes, with any contents.
    fn take(&self, num_bytes: usize) -> PyResult<PyPooledBuffer> {
        let found = with(&self.0, |pool| {
            let fits = |held: &Vec<u8>| held.len() >= num_bytes && held.len() / 2 <= num_bytes;
            let place = pool.free.iter().rposition(fits)?;
            let held = pool.free.swap_remove(place);
            pool.bytes -= held.len();
            Some(held)
        });
        let mut bytes = match found.flatten() {
            Some(held) => held,
            None => zeroed(num_bytes)
                .map_err(|_| PyMemoryError::new_err(format!("no memory for {num_bytes} bytes")))?,
        };
        let address = bytes.as_mut_ptr() as usize;
        let pool = Arc::downgrade(&self.0);
        Ok(PyPooledBuffer { bytes: Mutex::new(bytes), address, length: num_bytes, pool })
    }

    /// An empty pool with the same limit, for unpickling in another process.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (usize,))> {
        let most_bytes = with(&slf.get().0, |pool| pool.most_bytes).unwrap_or_default();
        Ok((slf.get_type().into_any(), (most_bytes,)))
    }

    /// Unused bytes in the pool.
    #[getter]
    fn free_bytes(&self) -> usize {
        with(&self.0, |pool| pool.bytes).unwrap_or_default()
    }
}

#[pymethods]
impl PyPooledBuffer {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("shape", (self.length,))?;
        // Rust does not access the memory before this object is dropped, and the array keeps this
        // object alive.
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.length
    }
}

impl Drop for PyPooledBuffer {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let Ok(bytes) = self.bytes.get_mut() else { return };
        let bytes = std::mem::take(bytes);
        with(&pool, |pool| {
            if pool.bytes.saturating_add(bytes.len()) <= pool.most_bytes {
                pool.bytes += bytes.len();
                pool.free.push(bytes);
            }
        });
    }
}
