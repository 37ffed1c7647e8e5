"""The options of all formats as keywords, for type checkers: a misspelt keyword of `open`, `write` or `convert` is found
before the program runs. A test compares these names with the options of the formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

Checksums = Literal["all", "headers", "none", "index"]
Damage = Literal["error", "stop", "skip"]
Dialect = Literal["protobuf", "tensorflow"]
MissingShards = Literal["error", "ignore"]


class OpenOptions(TypedDict, total=False):
    """The options for reading. The pages of the formats in docs/formats explain them."""

    arrays: Sequence[str] | None
    attributes: Sequence[str] | None
    compression: str | None
    custom_fields: Mapping[str, str]
    datasets: Sequence[str] | None
    decode: bool
    file_names: bool | None
    follow_links: bool
    group: str | None
    header: bool | None
    infer_records: int | str
    label: str | None
    layout: Literal["auto", "values", "array"]
    mask: str | None
    other_files: str
    record: Literal["row", "file"]
    table: str | None


class ConvertOptions(TypedDict, total=False):
    """The options for writing, without those that are keywords of `convert` itself."""

    batch_bytes: int
    batch_records: int
    chunk_records: int | None
    compress_probability: float
    describe: bool
    dictionary: bool
    idx: bool
    image_mode: str
    jpeg_quality: int
    key: str | None
    level: int | None
    max_side: int | None
    member_bytes: int
    page_bytes: int
    page_checksums: bool
    payload: str | None
    row_group_bytes: int
    row_group_records: int
    smart_threshold: int | None
    stream: bool
    table: str
    text_length: int | None


class WriteOptions(ConvertOptions, total=False):
    """The options for writing."""

    seed: int
    shuffle: bool | None
