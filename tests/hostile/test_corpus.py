"""Every TFRecord file that other projects publish opens with the facts that the corpus's manifest states."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock as ps
from reading import SHARED, run_python

CORPUS = SHARED / "corpus"
COUNT = re.compile(r"(\d+) records?, payload (\d+)\.\.(\d+) B")
FEATURE = re.compile(
    r"^(?P<key>.*) (?P<kind>int64|float|bytes)\[(?P<low>\d+)(?:\.\.(?P<high>\d+))?\]$"
)


@dataclass(frozen=True)
class Stated:
    """A row of the manifest about a regular file."""

    path: str
    compression: str
    num_records: int
    shortest: int
    longest: int
    is_example: bool
    features: tuple[tuple[str, str, int, int], ...]
    num_features: int | None


def stated(line: str) -> Stated | None:
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    count = COUNT.search(cells[-1])
    if count is None:
        return None
    parts = [part.strip() for part in cells[-1].split(" — ")[0].split(";")]
    compression = parts[0].removeprefix("compression ")
    is_example = any(part in ("Example", "SequenceExample") for part in parts)
    features: list[tuple[str, str, int, int]] = []
    number = None
    for part in parts:
        found = re.match(r"(\d+) features: (.*)", part)
        if found is None:
            continue
        number = int(found[1])
        for one in found[2].split(", "):
            match = FEATURE.match(one)
            if match is not None:
                low = int(match["low"])
                features.append((match["key"], match["kind"], low, int(match["high"] or low)))
    return Stated(
        cells[0],
        {"none": "", "GZIP": "gzip", "ZLIB": "zlib"}[compression],
        int(count[1]),
        int(count[2]),
        int(count[3]),
        is_example,
        tuple(features),
        number,
    )


def files() -> list[Stated]:
    manifest = CORPUS / "MANIFEST.md"
    if not manifest.exists():
        return []
    rows = [
        line for line in manifest.read_text().splitlines() if re.match(r"\| (tfrecord|tfds)/", line)
    ]
    return [row for line in rows if (row := stated(line)) is not None]


FILES = files()
each_file = pytest.mark.parametrize("row", FILES, ids=lambda row: row.path.split("/", 1)[1])


def test_the_manifest_names_all_files() -> None:
    assert len(FILES) >= 29, f"too few files are described in {CORPUS / 'MANIFEST.md'}"
    told = {row.path for row in FILES}
    there = {
        str(path.relative_to(CORPUS))
        for path in (CORPUS / "tfrecord").rglob("*")
        if path.is_file() and path.suffix not in (".json", ".md")
    }
    assert there <= told


OPEN = """
import json, resource, sys, time
import penstock as ps
import numpy, pyarrow
pyarrow.array([{"a": b""}]).to_pylist()
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = rss()
out = {}
for path in sys.argv[2:]:
    start = time.monotonic()
    raw = ps.open(path, raw=True, index=sys.argv[1])
    lengths = [len(r) for b in raw.scan() for r in b.column(0).to_pylist()]
    ds = ps.open(path, index=sys.argv[1])
    rows = sum(b.num_rows for b in ds.scan())
    out[path] = {"lengths": lengths, "rows": rows, "len": len(ds), "seconds": time.monotonic() - start}
out["grown"] = rss() - before
print(json.dumps(out))
"""


def test_all_files_open_with_their_counts_and_sizes(tmp_path: Path) -> None:
    """All files are read in one process with bounded memory, each within two seconds."""
    paths = [str(CORPUS / row.path) for row in FILES]
    said = json.loads(run_python(OPEN, str(tmp_path / "indexes"), *paths, megabytes=2048))
    for row, path in zip(FILES, paths, strict=True):
        got = said[path]
        assert len(got["lengths"]) == got["rows"] == got["len"] == row.num_records, row.path
        assert (min(got["lengths"]), max(got["lengths"])) == (row.shortest, row.longest), row.path
        assert got["seconds"] < 2, row.path
    assert said["grown"] < 300, f"{said['grown']:.0f} MiB over all files"


@each_file
def test_features_equal_the_manifest(row: Stated, index_folder: str) -> None:
    dataset = ps.open(str(CORPUS / row.path), index=index_folder, infer_records="all")
    assert dataset.shards[0].format == "tfrecord"
    if not row.is_example:
        # Payloads of other messages may look like Examples without features, or like nothing.
        return
    if row.num_features is not None and "Feature values" not in row.path:
        assert len(dataset.schema.names) >= len(row.features)
    table = {name: [] for name in dataset.schema.names}  # type: ignore[var-annotated]
    for batch in dataset.scan():
        for name in batch.schema.names:
            table[name] += batch.column(name).to_pylist()
    for key, kind, low, high in row.features:
        if key.startswith("list:"):
            continue
        column = key.removeprefix("ctx:")
        values = [v for v in table[column] if v is not None]
        sizes = [len(v) if isinstance(v, list) else 1 for v in values]
        assert (min(sizes), max(sizes)) == (low, high), column
        flat = [x for v in values for x in (v if isinstance(v, list) else [v])]
        python = {"int64": int, "float": float, "bytes": bytes}[kind]
        assert all(isinstance(x, python) for x in flat), column


def test_plain_and_gzip_twins_hold_the_same_records(index_folder: str) -> None:
    folder = CORPUS / "tfrecord" / "nucleus"
    for plain in sorted(folder.glob("test_*.tfrecord")):
        pair = [
            [
                r
                for b in ps.open(str(p), raw=True, index=index_folder).scan()
                for r in b[0].to_pylist()
            ]
            for p in (plain, Path(f"{plain}.gz"))
        ]
        assert pair[0] == pair[1]


def test_a_sequence_example_has_its_frames(index_folder: str) -> None:
    path = CORPUS / "tfrecord" / "tfds" / "starcraft_video-train_0.tfrecords"
    (record,) = ps.open(str(path), index=index_folder)[:].to_pylist()
    frames = [f[0] if isinstance(f, list) else f for f in record["rgb_screen"]]
    assert len(frames) == 20
    assert all(frame.startswith(b"\x89PNG") for frame in frames)
    assert len(record["screen_size"]) == 2


def test_numbered_shards_of_the_corpus_open_together(index_folder: str) -> None:
    folder = CORPUS / "tfrecord" / "yggdrasil-decision-forests"
    for name in ("toy.tfe-tfrecord", "toy.nocompress-tfe-tfrecord"):
        dataset = ps.open(str(folder / f"{name}@2"), index=index_folder, infer_records="all")
        assert len(dataset) == 4
        assert sum(batch.num_rows for batch in dataset.scan()) == 4
