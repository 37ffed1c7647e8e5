//! Orders: permutations and keys.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, Int64Array, UInt32Array, UInt64Array};
use arrow_schema::DataType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::{run, run_on};
use crate::kernels::buffer;
use crate::kernels::mixture::Mixture;
use crate::kernels::permute::{self, MOST_RECORDS, Permutation};

fn check_span(num_records: u64, start: u64, stop: u64) -> PyResult<()> {
    if num_records > MOST_RECORDS {
        return Err(PyValueError::new_err(format!("at most {MOST_RECORDS} records have an order")));
    }
    if start > stop || stop > num_records {
        let place = format!("positions {start} to {stop} of {num_records} records");
        return Err(PyValueError::new_err(place));
    }
    Ok(())
}

/// The numbers at positions start to stop of the permutation of 0 to num_records - 1 that two keys
/// select, as int64.
#[pyfunction]
pub fn permuted(
    py: Python<'_>,
    num_records: u64,
    key0: u64,
    key1: u64,
    start: u64,
    stop: u64,
) -> PyResult<ArrowArray> {
    check_span(num_records, start, stop)?;
    let count = (stop - start) as usize;
    let numbers = run_on(py, count.saturating_mul(EACH_BYTES), || {
        let mut numbers = vec![0; count];
        Permutation::new(num_records, key0, key1).fill(start, &mut numbers);
        Ok(numbers)
    })?;
    Ok(ArrowArray::new(Int64Array::from(numbers)))
}

/// The work for a number, in bytes, as other kernels count it.
const EACH_BYTES: usize = 64;

/// For each row, the number at a position of the permutation that `key0` and the row's key select,
/// as int64. num_records, keys and positions are uint64.
#[pyfunction]
pub fn permuted_each(
    py: Python<'_>,
    num_records: &Bound<'_, PyAny>,
    key0: u64,
    keys: &Bound<'_, PyAny>,
    positions: &Bound<'_, PyAny>,
) -> PyResult<ArrowArray> {
    let columns = [import(num_records)?, import(keys)?, import(positions)?];
    let [num_records, keys, positions] = [&columns[0], &columns[1], &columns[2]]
        .map(|column| column.as_primitive_opt::<UInt64Type>().map(|column| &column.values()[..]));
    let (Some(lengths), Some(keys), Some(positions)) = (num_records, keys, positions) else {
        return Err(PyTypeError::new_err("expected arrays of uint64"));
    };
    let fits = |(&length, &position): (&u64, &u64)| position < length && length <= MOST_RECORDS;
    let same = lengths.len() == keys.len() && lengths.len() == positions.len();
    if !same || !lengths.iter().zip(positions).all(fits) {
        return Err(PyValueError::new_err("each row has a length and a position below it"));
    }
    let numbers = run(py, || {
        let rows = lengths.iter().zip(keys).zip(positions);
        Ok(rows
            .map(|((&length, &key), &position)| Permutation::new(length, key0, key).at(position))
            .collect::<Vec<_>>())
    })?;
    Ok(ArrowArray::new(Int64Array::from(numbers)))
}

/// The records that leave a shuffle buffer of `size` records at steps start to stop, as their
/// positions (int64) in a stream of num_records.
#[pyfunction]
pub fn buffered(
    py: Python<'_>,
    num_records: u64,
    size: u64,
    key: u64,
    start: u64,
    stop: u64,
) -> PyResult<ArrowArray> {
    check_span(num_records, start, stop)?;
    if size == 0 {
        return Err(PyValueError::new_err("a buffer has room for a record at least"));
    }
    let found = run(py, || Ok(buffer::buffered(num_records, size, key, start, stop)))?;
    Ok(ArrowArray::new(Int64Array::from(found)))
}

/// The number of the dataset (uint32) at positions start to stop of an epoch of a mixture, and how many
/// records of each dataset came before. Earlier epochs had `origin` positions. Weights are integers, at
/// least one is above 0, and their sum is less than 2^40.
#[pyfunction]
pub fn mixed(
    py: Python<'_>,
    weights: Vec<u64>,
    key: u64,
    origin: u64,
    length: u64,
    start: u64,
    stop: u64,
) -> PyResult<(ArrowArray, Vec<u64>)> {
    check_span(length, start, stop)?;
    check_span(MOST_RECORDS, origin, origin.saturating_add(length))?;
    let total = weights.iter().try_fold(0_u64, |sum, &weight| sum.checked_add(weight));
    let mixture = match total {
        Some(total) if total < 1 << 40 => Mixture::new(&weights, key),
        _ => None,
    };
    let Some(mixture) = mixture else {
        return Err(PyValueError::new_err("weights are 1 to 2^40 - 1 together"));
    };
    let mixed = run(py, || Ok(mixture.take(origin, length, start, stop)))?;
    Ok((ArrowArray::new(UInt32Array::from(mixed.sets)), mixed.before))
}

/// A 64-bit key computed from 64-bit numbers and their order.
#[pyfunction]
pub fn key_of(numbers: Vec<u64>) -> u64 {
    permute::key_of(&numbers)
}

/// The key of (seed, epoch, record) for each record, as uint64. Records are int64 or uint64.
#[pyfunction]
pub fn record_keys(
    py: Python<'_>,
    seed: u64,
    epoch: u64,
    records: &Bound<'_, PyAny>,
) -> PyResult<ArrowArray> {
    let records = import(records)?;
    let keys = run_on(py, records.len().saturating_mul(EACH_BYTES), || {
        Ok(match records.data_type() {
            DataType::Int64 => {
                let records = records.as_primitive::<Int64Type>().values();
                Some(permute::record_keys(seed, epoch, records.iter().map(|&record| record as u64)))
            }
            DataType::UInt64 => {
                let records = records.as_primitive::<UInt64Type>().values();
                Some(permute::record_keys(seed, epoch, records.iter().copied()))
            }
            _ => None,
        })
    })?;
    match keys {
        Some(keys) => Ok(ArrowArray::new(UInt64Array::from(keys))),
        None => Err(PyTypeError::new_err("records are an array of int64 or uint64")),
    }
}
