"""`penstock.to_hf`: a dataset as a `datasets.Dataset` of Hugging Face."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute

from penstock.columns.types import is_image, is_text, storage_of
from penstock.datasets.dataset import Dataset

if TYPE_CHECKING:
    import datasets

_PLAIN = {pa.binary_view(): pa.binary(), pa.string_view(): pa.string()}
_PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def to_hf(dataset: Dataset, cache_dir: str | os.PathLike[str] | None = None) -> datasets.Dataset:
    """Return a Hugging Face dataset. Its records are written once to an Arrow file in the cache, in bounded memory, and
    found there the next time. Images become `datasets.Image`, class labels `datasets.ClassLabel`; what a file of `datasets`
    says of its features stays.

    Args:
        dataset: the data.
        cache_dir: the folder of the Arrow file. None: the folder penstock/ in the cache of `datasets`.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ps.to_hf(ps.open("numbers.tfrecord"), cache_dir="cache")[1]
        {'id': 2}
    """
    import datasets
    from datasets import config

    folder = Path(cache_dir or Path(config.HF_DATASETS_CACHE) / "penstock")
    named = f"{dataset.fingerprint} {dataset.schema}"
    path = folder / f"{hashlib.blake2b(named.encode(), digest_size=16).hexdigest()}.arrow"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        try:
            _write(dataset, unfinished)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return datasets.Dataset.from_file(str(path))


def _class_names(dataset: Dataset, field: Any) -> list[str] | None:
    """Return the class names of a label column, in the order of their first appearance; None for other columns."""
    if not (pa.types.is_dictionary(field.type) and is_text(field.type.value_type)):
        return None
    names: dict[str, None] = {}
    for batch in dataset.scan(columns=[field.name]):
        names |= dict.fromkeys(batch.column(0).dictionary.to_pylist())
    return list(names)


def _write(dataset: Dataset, path: Path) -> None:
    """Write the records as an Arrow stream, whose schema has the features of `datasets` as metadata."""
    from datasets import ClassLabel, Features, Image

    names = {field.name: _class_names(dataset, field) for field in dataset.schema}
    types = [(field.name, _type_of(field.type)) for field in dataset.schema]
    # Files that `datasets` wrote describe their features in the metadata, which counts where the types are the same.
    features: Any = Features.from_arrow_schema(pa.schema(types, dataset.schema.metadata))
    for field in dataset.schema:
        found = names[field.name]
        if is_image(field.type):
            features[field.name] = Image()
        elif found is not None:
            features[field.name] = ClassLabel(names=found)
    schema: Any = features.arrow_schema
    with pa.ipc.new_stream(str(path), schema) as stream:
        for batch in dataset.scan():
            columns = [
                _plain(column, field.type, names[field.name])
                for column, field in zip(batch.columns, schema, strict=True)
            ]
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _type_of(type_: Any) -> pa.DataType:
    if is_image(type_):
        return _PICTURE
    if pa.types.is_dictionary(type_):
        return _type_of(type_.value_type)
    stored: Any = storage_of(type_)
    return _PLAIN.get(stored, stored)


def _plain(column: Any, type_: pa.DataType, names: list[str] | None) -> pa.Array:
    """Return a column in the type that `datasets` stores: labels as numbers, images as structs."""
    if names is not None:
        return compute.index_in(column.cast(pa.string()), pa.array(names)).cast(type_)
    is_picture = is_image(column.type)
    stored = column.storage if isinstance(column, pa.ExtensionArray) else column
    if not is_picture:
        return stored if stored.type == type_ else stored.cast(type_)
    paths = pa.nulls(len(stored), pa.string())
    return pa.StructArray.from_arrays([stored.cast(pa.binary()), paths], fields=list(_PICTURE))
