"""`tf.compat.v1`: TensorFlow 1's names for functions of penstock.tf. Other names are those of `tf`."""

from __future__ import annotations

import importlib
import logging as python_logging
from types import ModuleType, SimpleNamespace
from typing import Any

# `from … import` would import the package, which imports this module.
import penstock.tf.dtypes as dtypes  # noqa: PLR0402
import penstock.tf.features as features  # noqa: PLR0402
import penstock.tf.gfile as gfile  # noqa: PLR0402
import penstock.tf.image as image  # noqa: PLR0402
import penstock.tf.image.legacy as legacy  # noqa: PLR0402
import penstock.tf.io as io  # noqa: PLR0402
import penstock.tf.parsing as parsing  # noqa: PLR0402
import penstock.tf.python_io as python_io  # noqa: PLR0402
import penstock.tf.random as random  # noqa: PLR0402
import penstock.tf.sparse as sparse  # noqa: PLR0402
from penstock.tf.decode_raw import decode_raw
from penstock.tf.errors import OpError
from penstock.tf.math import cast
from penstock.tf.missing import absent_from, missing


def _cast_to(dtype: Any) -> Any:
    return lambda x, name=None: cast(x, dtype)


def _nothing(*_: Any, **__: Any) -> None:
    """Has no effect."""


def _get_next(dataset: Any) -> Any:
    return iter(dataset)


class _Space(ModuleType):
    """Names of TensorFlow 1. All others are looked up in the module with TensorFlow 2's names."""

    def __init__(self, symbol: str, module: str, **names: Any) -> None:
        super().__init__(symbol)
        self._symbol, self._module = symbol, module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return getattr(importlib.import_module(self._module), name)
        except (AttributeError, OpError):
            raise missing(f"{self._symbol}.{name}") from None


_logger = python_logging.getLogger("tensorflow")
_logging = SimpleNamespace(
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
v1 = _Space(
    "tf.compat.v1",
    "penstock.tf",
    FixedLenFeature=features.FixedLenFeature,
    FixedLenSequenceFeature=features.FixedLenSequenceFeature,
    SparseFeature=features.SparseFeature,
    VarLenFeature=features.VarLenFeature,
    data=_Space(
        "tf.compat.v1.data",
        "penstock.tf.data",
        make_one_shot_iterator=_get_next,
    ),
    decode_raw=decode_raw,
    enable_eager_execution=_nothing,
    enable_v2_behavior=_nothing,
    gfile=_gfile,
    image=_Space(
        "tf.compat.v1.image",
        "penstock.tf.image",
        ResizeMethod=legacy.ResizeMethod,
        resize=legacy.resize,
        resize_bilinear=legacy.resize_bilinear,
        resize_image_with_crop_or_pad=image.resize_with_crop_or_pad,
        resize_images=legacy.resize,
        resize_nearest_neighbor=legacy.resize_nearest_neighbor,
    ),
    io=_Space(
        "tf.compat.v1.io",
        "penstock.tf.io",
        gfile=_gfile,
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
    sparse_tensor_to_dense=sparse.to_dense,
    to_double=_cast_to(dtypes.float64),
    to_float=_cast_to(dtypes.float32),
    to_int32=_cast_to(dtypes.int32),
    to_int64=_cast_to(dtypes.int64),
    write_file=io.write_file,
)

__getattr__ = absent_from("tf.compat")
