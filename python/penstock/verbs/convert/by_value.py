"""Files for each value of some columns, as Hive and Spark lay them out: `lang={lang}/{shard:05d}.parquet`.

The records are put in the order of their values, and each value is a piece of the conversion. So they are written as
all shards are: one file at a time, under temporary names until all are complete.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import opened
from penstock.engine.cluster import Machines
from penstock.errors import SchemaError
from penstock.storage import hive_names
from penstock.verbs.convert._reading import chosen_first
from penstock.verbs.convert.choice import Choice, chosen
from penstock.verbs.convert.parts import Piece
from penstock.verbs.write.names import filled, words_in

_MOST_VALUES = 10_000
"""The most values that get files. A column with more is an identifier, most likely."""
_NAME_BYTES = 255

Texts = tuple[str | None, ...]
"""The texts of a record's values, one for each column; None for null."""


class ByValue(NamedTuple):
    """What `write_chosen` takes to write files for each value."""

    source: Any
    dataset: Dataset
    choice: Choice
    pieces: list[Piece]
    columns: list[str] | None
    rename: dict[str, str]
    notes: list[str]
    """The types that differ when the columns are read from the names of folders."""

    def finished(self, made: Summary) -> Summary:
        """The summary with these notes. Raises ChangedError if a source has changed since its values were read."""
        for shard in range(len(self.dataset.paths)):
            self.dataset.files.check_unchanged(shard)
        return replace(made, notes=(*made.notes, *self.notes))


def by_value(
    source: Any,
    target: str,
    columns: Sequence[str] | None,
    rename: Mapping[str, str] | None,
    choice: Choice,
    threads: int | None,
    on: Machines | None,
    where: Mapping[str, Any],
) -> ByValue:
    """Divide the chosen records by the values of the columns that the target names. This reads these columns once.

    Args:
        columns, rename: as for `convert`. A column that is the value of a folder, `lang={lang}`, is not written.
        where: the keywords of the source's storage.
    """
    given = opened(source, **where)
    dataset, choice = chosen_first(given, choice)
    dataset = dataset.readable()
    renamed = dict(rename or {})
    keys = _keys(target, dataset, renamed)
    numbers = chosen(dataset, choice, threads, on)
    which, values = _values_of(dataset, list(keys.values()), threads)
    if numbers is not None:
        which = which[numbers]
    targets = [_target(target, dict(zip(keys, texts, strict=True))) for texts in values]
    counts = np.bincount(which, minlength=len(values))
    by_name = [n for n in sorted(range(len(values)), key=targets.__getitem__) if counts[n]]
    if not by_name:
        raise ValueError(f"{target}: there are no records, so there is no value to name a file by")
    places = np.empty(len(values), np.int64)
    places[by_name] = np.arange(len(by_name))
    order = np.argsort(places[which], kind="stable")
    pieces = [Piece(targets[n], int(counts[n])) for n in by_name]
    notes: list[str] = []
    in_folders = [keys[word] for word in keys if _is_key(target, word)]
    for place, name in enumerate(keys.values()):
        stored, read = dataset.schema.field(name).type, hive_names.type_of(v[place] for v in values)
        if name in in_folders and stored != read:
            notes.append(_note(name, read, stored))
    kept = None if columns is None else list(columns)
    if in_folders:
        kept = [name for name in kept or dataset.schema.names if name not in in_folders]
        if not kept:
            raise ValueError(f"{target}: there is no other column that the files could have")
    return ByValue(
        source if dataset is given else dataset,
        dataset,
        Choice(numbers=order if numbers is None else numbers[order]),
        pieces,
        kept,
        {old: new for old, new in renamed.items() if old not in in_folders},
        notes,
    )


def _note(name: str, read: pa.DataType, stored: Any) -> str:
    said = f"open reads {name!r} from the names of the folders as {read}, not as {stored}"
    try:
        pa.type_for_alias(str(stored))
    except ValueError:
        return said
    return f"{said}; read it with types={{{name!r}: {str(stored)!r}}}"


def _keys(target: str, dataset: Dataset, rename: Mapping[str, str]) -> dict[str, str]:
    """The words in the braces of a target, with their columns in the source."""
    if not os.path.basename(target):
        raise ValueError(
            f"{target} needs a name of the files, such as {target}{{shard:05d}}.parquet"
        )
    before = {new: old for old, new in rename.items()}
    found = {word: before.get(word, word) for word in words_in(target)}
    names = dataset.schema.names
    for word, name in found.items():
        if names.count(name) != 1 or word == "shard":
            raise ValueError(
                f"{target}: nothing replaces {{{word}}} there; {{shard}}, in the name of the file, is replaced by the"
                f" number of the file, and the name of a column by its values; there are: {', '.join(names)}"
            )
    return found


def _is_key(target: str, word: str) -> bool:
    """Whether a folder has the name of a column and its value, so that `open` gives the column back."""
    folders = target.replace(os.sep, "/").split("/")[:-1]
    return any(
        value == f"{{{word}}}" and unquote(key) == word
        for key, _, value in (folder.partition("=") for folder in folders)
    )


def _target(pattern: str, texts: Mapping[str, str | None]) -> str:
    """The name of the files of a value."""
    target = filled(pattern, {word: hive_names.encoded(text) for word, text in texts.items()})
    for before, part in zip(pattern.split("/"), target.split("/"), strict=True):
        if part != before and not 0 < len(os.fsencode(part)) <= _NAME_BYTES:
            said = ", ".join(f"{word} {text!r:.80}" for word, text in texts.items())
            wrong = "longer than file systems allow" if part else "empty"
            raise ValueError(f"{pattern}: with {said}, a name of a file or folder would be {wrong}")
    folder, name = os.path.split(target)
    return os.path.join(folder, name.replace("{shard}", "{shard:05d}"))


def _values_of(
    dataset: Dataset, columns: list[str], threads: int | None
) -> tuple[np.ndarray, list[Texts]]:
    """Return the number of each record's value, and the values in the order in which they were found.

    Raises:
        ValueError: there are too many values.
        SchemaError: a column cannot be the name of a file.
    """
    known: dict[Texts, int] = {}
    found: list[np.ndarray] = [np.zeros(0, np.int64)]
    num_records = 0
    for batch in dataset.scan(columns=columns, threads=threads):
        codes, values = _codes(batch, columns)
        numbers = [known.setdefault(value, len(known)) for value in values]
        num_records += batch.num_rows
        if len(known) > _MOST_VALUES:
            raise ValueError(
                f"the first {num_records:,} records have {len(known):,} values of {', '.join(columns)}, and at most "
                f"{_MOST_VALUES:,} get files of their own; take a column with fewer values"
            )
        found.append(np.array(numbers, np.int64)[codes])
    return np.concatenate(found), list(known)


def _codes(batch: pa.RecordBatch, columns: list[str]) -> tuple[np.ndarray, list[Texts]]:
    """The number of each record's value in this batch, and these values."""
    codes, values = np.zeros(batch.num_rows, np.int64), list[Texts]([()])
    for name in columns:
        array: Any = _texts(batch.column(name), name).dictionary_encode(null_encoding="encode")
        texts = array.dictionary.to_pylist()
        pairs = codes * len(texts) + np.asarray(array.indices, np.int64)
        chosen, codes = np.unique(pairs, return_inverse=True)
        values = [(*values[n // len(texts)], texts[n % len(texts)]) for n in chosen.tolist()]
    return codes, values


def _texts(array: Any, name: str) -> Any:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(array.type, pa.BaseExtensionType) or pa.types.is_nested(array.type):
        raise SchemaError(f"values of type {array.type} cannot be names of files", field=name)
    try:
        return array.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"values cannot be names of files: {error}", field=name) from None
