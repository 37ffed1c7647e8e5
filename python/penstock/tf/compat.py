"""`tf.compat.v1`: TensorFlow 1's names for functions of penstock.tf. All other names are looked up in `tf` itself."""

from __future__ import annotations

import importlib
import logging as python_logging
import sys
from types import ModuleType
from typing import Any

import numpy as np

import penstock.tf.arithmetic as math
import penstock.tf.arrays as arrays  # noqa: PLR0402

# The other form would import the package, which imports this module.
import penstock.tf.dtypes as dtypes  # noqa: PLR0402
import penstock.tf.features as features  # noqa: PLR0402
import penstock.tf.gfile as gfile  # noqa: PLR0402
import penstock.tf.image as image  # noqa: PLR0402
import penstock.tf.image.legacy as legacy  # noqa: PLR0402
import penstock.tf.io as io  # noqa: PLR0402
import penstock.tf.linalg as linalg  # noqa: PLR0402
import penstock.tf.more_math as more_math  # noqa: PLR0402
import penstock.tf.nn as nn  # noqa: PLR0402
import penstock.tf.parsing as parsing  # noqa: PLR0402
import penstock.tf.probing as probing  # noqa: PLR0402
import penstock.tf.python_io as python_io  # noqa: PLR0402
import penstock.tf.random as random  # noqa: PLR0402
import penstock.tf.shapes as shapes  # noqa: PLR0402
import penstock.tf.signal as signal  # noqa: PLR0402
import penstock.tf.sparse as sparse  # noqa: PLR0402
import penstock.tf.strings as strings  # noqa: PLR0402
from penstock.tf.arithmetic import cast
from penstock.tf.data.spec_parts import classes_of, shapes_of, types_of
from penstock.tf.data.windows import DatasetSpec
from penstock.tf.decode_raw import decode_raw
from penstock.tf.errors import OpError
from penstock.tf.from_keras import NAMES as _OF_KERAS
from penstock.tf.missing import Space, absent_from, missing
from penstock.tf.selecting import (
    compat_where,
    linspace,
    roll,
    scatter_nd,
    tensor_scatter_nd_add,
    tensor_scatter_nd_sub,
    tensor_scatter_nd_update,
)
from penstock.tf.tensor import Tensor, convert_to_tensor
from penstock.tf.text_values import text_of


def _cast_to(dtype: Any) -> Any:
    return lambda x, name=None: cast(x, dtype)


def _nothing(*_: Any, **__: Any) -> None:
    """No effect."""


def _iterator(dataset: Any, shared_name: Any = None) -> Any:
    return iter(dataset)


def _types(dataset: Any) -> Any:
    return types_of(dataset.element_spec)


def _shapes(dataset: Any) -> Any:
    return shapes_of(dataset.element_spec)


def _classes(dataset: Any) -> Any:
    return classes_of(dataset.element_spec)


def _string_split(
    source: Any, sep: Any = None, skip_empty: bool = True, delimiter: Any = " ", **_: Any
) -> Any:
    """TensorFlow 1's split: a sparse tensor of the parts of each string."""
    texts = convert_to_tensor(source).tolist()
    by = text_of(delimiter if sep is None else sep).encode()
    rows = [list(_cut(text, by)) for text in texts]
    if skip_empty:
        rows = [[part for part in row if part] for row in rows]
    flat = np.empty(sum(map(len, rows)), object)
    flat[:] = [part for row in rows for part in row]
    places = [(n, k) for n, row in enumerate(rows) for k in range(len(row))]
    shape = [len(rows), max(map(len, rows), default=0)]
    indices = np.array(places, np.int64).reshape(-1, 2)
    if probing.is_on():
        return sparse.SparseTensor(*_placeholder(len(rows)))
    return sparse.SparseTensor(indices, flat.view(Tensor), shape)


def _placeholder(rows: int) -> tuple[Any, Any, Any]:
    count = probing.size()
    return (
        np.zeros((count, 2), np.int64),
        probing.array([count], "string").view(Tensor),
        [rows, count],
    )


def _cut(text: bytes, by: bytes) -> Any:
    """Split a string at each byte that is in `by`, or into single bytes if `by` is empty."""
    if not by:
        return (text[n : n + 1] for n in range(len(text)))
    for byte in by[1:]:
        text = text.replace(bytes([byte]), by[:1])
    return text.split(by[:1])


def _sparse_to_dense(
    sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any = 0, **_: Any
) -> Any:
    """A dense tensor of a shape with values at indices."""
    values = convert_to_tensor(sparse_values)
    fill = convert_to_tensor(default_value, values.dtype)
    made = np.full(tuple(int(n) for n in np.asarray(output_shape)), fill.item(), values.dtype.dtype)
    places = np.asarray(sparse_indices)
    made[tuple(places.T) if places.ndim == 2 else places] = values
    return made.view(Tensor)


_OTHERS_IN_1 = _OF_KERAS.keys() - {"keras"}
"""Names that TensorFlow 2 takes from Keras, and that were TensorFlow's own before."""


class _Space(ModuleType):
    """Names of TensorFlow 1. All other names are looked up in modules with TensorFlow 2's names."""

    def __init__(self, symbol: str, *modules: str, **names: Any) -> None:
        super().__init__(symbol)
        self._symbol, self._modules = symbol, modules
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _OTHERS_IN_1 and self._symbol == "tf.compat.v1":
            raise missing(f"{self._symbol}.{name}")
        for module in self._modules:
            place = importlib.import_module(module)
            try:
                found = getattr(place, name)
            except (AttributeError, OpError):
                continue
            # Modules of this package that are not TensorFlow's are not names of TensorFlow.
            ours = getattr(found, "__name__", "").startswith("penstock.")
            if not (isinstance(found, ModuleType) and ours) or name in getattr(
                place, "__all__", (name,)
            ):
                return found
        raise missing(f"{self._symbol}.{name}")


def _kept(function: Any) -> Any:
    """Make a reduction that also accepts TensorFlow 1's names of arguments."""

    def reduction(
        input_tensor: Any, axis: Any = None, keepdims: Any = None, name: Any = None,
        reduction_indices: Any = None, keep_dims: Any = None,
    ) -> Any:  # fmt: skip
        over = reduction_indices if axis is None else axis
        return function(input_tensor, over, bool(keepdims or keep_dims))

    return reduction


_logger = python_logging.getLogger("tensorflow")
_logging = Space(
    "tf.compat.v1.logging",
    DEBUG=python_logging.DEBUG,
    ERROR=python_logging.ERROR,
    FATAL=python_logging.FATAL,
    INFO=python_logging.INFO,
    WARN=python_logging.WARNING,
    debug=_logger.debug,
    error=_logger.error,
    fatal=_logger.fatal,
    info=_logger.info,
    set_verbosity=_logger.setLevel,
    warn=_logger.warning,
    warning=_logger.warning,
)
_gfile = _Space(
    "tf.compat.v1.gfile",
    "penstock.tf.gfile",
    Copy=gfile.copy,
    DeleteRecursively=gfile.rmtree,
    Exists=gfile.exists,
    FastGFile=gfile.GFile,
    Glob=gfile.glob,
    IsDirectory=gfile.isdir,
    ListDirectory=gfile.listdir,
    MakeDirs=gfile.makedirs,
    MkDir=gfile.mkdir,
    Open=gfile.GFile,
    Remove=gfile.remove,
    Rename=gfile.rename,
    Stat=gfile.stat,
    Walk=gfile.walk,
)
v2 = _Space("tf.compat.v2", "penstock.tf")
_nn = _Space("tf.compat.v1.nn", "penstock.tf.nn", avg_pool=nn.avg_pool2d)
v1 = _Space(
    "tf.compat.v1",
    "penstock.tf",
    "penstock.tf.math",
    "penstock.tf.more_math",
    "penstock.tf.debugging",
    "penstock.tf.io",
    FixedLenFeature=features.FixedLenFeature,
    FixedLenSequenceFeature=features.FixedLenSequenceFeature,
    SparseFeature=features.SparseFeature,
    VarLenFeature=features.VarLenFeature,
    data=_Space(
        "tf.compat.v1.data",
        "penstock.tf.data",
        experimental=_Space(
            "tf.compat.v1.data.experimental",
            "penstock.tf.data.experimental",
            DatasetStructure=DatasetSpec,
            Structure=shapes.TypeSpec,
        ),
        get_output_classes=_classes,
        get_output_shapes=_shapes,
        get_output_types=_types,
        make_initializable_iterator=_iterator,
        make_one_shot_iterator=_iterator,
    ),
    debugging=_Space(
        "tf.compat.v1.debugging",
        "penstock.tf.debugging",
        is_finite=math.is_finite,
        is_inf=math.is_inf,
        is_nan=math.is_nan,
    ),
    decode_raw=decode_raw,
    div_no_nan=more_math.divide_no_nan,
    dtypes=_Space("tf.compat.v1.dtypes", "penstock.tf.dtypes", as_string=strings.as_string),
    fft=signal.fft,
    ifft=signal.ifft,
    lin_space=linspace,
    linalg=_Space("tf.compat.v1.linalg", "penstock.tf.linalg", transpose=linalg.matrix_transpose),
    manip=_Space(
        "tf.compat.v1.manip",
        gather_nd=arrays.gather_nd,
        reshape=arrays.reshape,
        reverse=arrays.reverse,
        roll=roll,
        scatter_nd=scatter_nd,
        tile=arrays.tile,
    ),
    matrix_band_part=linalg.band_part,
    matrix_determinant=linalg.det,
    matrix_diag=linalg.diag,
    matrix_diag_part=linalg.diag_part,
    matrix_inverse=linalg.inv,
    matrix_set_diag=linalg.set_diag,
    matrix_solve=linalg.solve,
    matrix_transpose=linalg.matrix_transpose,
    nn=_nn,
    OpError=OpError,
    random=_Space("tf.compat.v1.random", "penstock.tf.random", set_random_seed=random.set_seed),
    random_crop=image.random_crop,
    reverse_v2=arrays.reverse,
    sparse_reorder=sparse.reorder,
    spectral=_Space(
        "tf.compat.v1.spectral",
        fft=signal.fft,
        ifft=signal.ifft,
        irfft=signal.irfft,
        rfft=signal.rfft,
    ),
    string_to_hash_bucket=strings.to_hash_bucket,
    string_to_hash_bucket_strong=strings.to_hash_bucket_strong,
    svd=linalg.svd,
    tensor_scatter_add=tensor_scatter_nd_add,
    tensor_scatter_sub=tensor_scatter_nd_sub,
    tensor_scatter_update=tensor_scatter_nd_update,
    trace=linalg.trace,
    truncated_normal=random.truncated_normal,
    where_v2=math.where,
    as_string=strings.as_string,
    enable_eager_execution=_nothing,
    enable_v2_behavior=_nothing,
    gfile=_gfile,
    image=_Space(
        "tf.compat.v1.image",
        "penstock.tf.image",
        ResizeMethod=legacy.ResizeMethod,
        resize=legacy.resize,
        resize_area=legacy.resize_area,
        resize_bicubic=legacy.resize_bicubic,
        resize_bilinear=legacy.resize_bilinear,
        resize_image_with_crop_or_pad=image.resize_with_crop_or_pad,
        resize_images=legacy.resize,
        resize_nearest_neighbor=legacy.resize_nearest_neighbor,
        transpose_image=image.transpose,
    ),
    io=_Space(
        "tf.compat.v1.io",
        "penstock.tf.io",
        gfile=_gfile,
        TFRecordCompressionType=python_io.TFRecordCompressionType,
        tf_record_iterator=python_io.tf_record_iterator,
    ),
    logging=_logging,
    matching_files=io.matching_files,
    parse_example=parsing.parse_example,
    parse_single_example=parsing.parse_single_example,
    parse_single_sequence_example=parsing.parse_single_sequence_example,
    python_io=python_io,
    random_normal=random.normal,
    random_shuffle=random.shuffle,
    random_uniform=random.uniform,
    read_file=io.read_file,
    set_random_seed=random.set_seed,
    reduce_all=_kept(math.reduce_all),
    reduce_any=_kept(math.reduce_any),
    reduce_join=strings.reduce_join,
    reduce_max=_kept(math.reduce_max),
    reduce_mean=_kept(math.reduce_mean),
    reduce_min=_kept(math.reduce_min),
    reduce_sum=_kept(math.reduce_sum),
    regex_replace=strings.regex_replace,
    sparse_tensor_to_dense=sparse.to_dense,
    sparse_to_dense=_sparse_to_dense,
    string_join=strings.join,
    string_split=_string_split,
    string_strip=strings.strip,
    string_to_hash_bucket_fast=strings.to_hash_bucket_fast,
    string_to_number=strings.to_number,
    substr=strings.substr,
    to_bfloat16=_cast_to("bfloat16"),
    to_double=_cast_to(dtypes.float64),
    to_float=_cast_to(dtypes.float32),
    to_int32=_cast_to(dtypes.int32),
    to_int64=_cast_to(dtypes.int64),
    where=compat_where,
    write_file=io.write_file,
)


def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Text as bytes, and bytes unchanged.

    Raises:
        TypeError: neither text nor bytes, such as a tensor.

    Example:
        >>> import penstock.tf as tf
        >>> tf.compat.as_bytes("name")
        b'name'
    """
    if isinstance(bytes_or_text, bytearray):
        return bytes(bytes_or_text)
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    return _known(bytes_or_text)


def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Bytes as text, and text unchanged.

    Raises:
        TypeError: neither text nor bytes, such as a tensor.
        UnicodeDecodeError: the bytes are not text in this encoding.

    Example:
        >>> import penstock.tf as tf
        >>> tf.compat.as_text(b"name")
        'name'
    """
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    return _known(bytes_or_text).decode(encoding)


def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """Bytes as text, and any other value as `str` shows it."""
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)


def _known(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"Expected binary or unicode string, got {value!r}")
    return value


as_str = as_text

# For `import penstock.tf.compat.v1 as tf`.
sys.modules |= {f"{__name__}.v1": v1, f"{__name__}.v2": v2}

__getattr__ = absent_from("tf.compat")
