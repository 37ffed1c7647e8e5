"""Verbs of fields that write files lose neither a field that only late records have nor what `datasets` says of columns."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest
from PIL import Image

import datasets
import penstock as ps

EARLY, LATE = 1005, 3  # fields are inferred from the first 1000 records


def tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for n in range(EARLY + LATE):
            for name in ["txt", *(["png"] if n >= EARLY else [])]:
                archive.addfile(tarfile.TarInfo(f"{n:06d}.{name}"), io.BytesIO())


def messages(path: Path) -> None:
    late = [{"txt": "a", "png": b"x"}] * LATE
    path.write_bytes(b"".join(map(msgpack.packb, [{"txt": "a"}] * EARLY + late)))


def bake(path: str, target: Path | None) -> None:
    ps.add_fields(path, {"n": 1}, index=False)
    ps.bake_fields(path, into=target, in_place=target is None)


VERBS: dict[str, Callable[[str, Path | None], object]] = {
    "add": lambda path, to: ps.add_fields(path, {"n": 1}, into=to, in_place=not to),
    "replace": lambda path, to: ps.replace_fields(path, {"txt": "b"}, into=to, in_place=not to),
    "where": lambda path, to: ps.replace_fields(
        path, {"txt": "b"}, where='txt == "c"', into=to, in_place=not to
    ),
    "drop": lambda path, to: ps.drop_fields(path, ["txt"], into=to, in_place=not to),
    "rename": lambda path, to: ps.rename_fields(path, {"txt": "t"}, into=to, in_place=not to),
    "bake": bake,
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("suffix", "make"), [("tar", tar), ("msgpack", messages)])
def test_a_field_of_late_records(
    tmp_path: Path, suffix: str, make: Callable[[Path], None], verb: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    make(path)
    before = path.read_bytes()
    for target in (None, tmp_path / f"b.{suffix}"):
        with pytest.raises(ps.SchemaError) as caught:
            VERBS[verb](str(path), target)
        assert (caught.value.field, caught.value.record) == ("png", EARLY)
        assert 'infer_records="all"' in caught.value.hint
        assert path.read_bytes() == before
        assert target is None or not target.exists()
        for one in ps.overlays(path):
            ps.remove_overlay(path, one.name)


def test_all_records_are_read_for_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    tar(path)
    ps.replace_fields(ps.open(path, infer_records="all"), {"txt": "b"}, in_place=True)
    with tarfile.open(path) as archive:
        names = archive.getnames()
    assert sum(name.endswith(".png") for name in names) == LATE
    assert sum(name.endswith(".txt") for name in names) == EARLY + LATE


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """Parquet that `datasets` wrote."""
    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "PNG")
    features = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "text": datasets.Value("string"),
    }
    rows = {"image": [{"bytes": picture.getvalue(), "path": "a.png"}] * 3, "label": [0, 1, 1]}
    made = datasets.Dataset.from_dict(
        {**rows, "text": list("abc")}, features=datasets.Features(features)
    )
    made.to_parquet(str(tmp_path / "a.parquet"))
    return tmp_path / "a.parquet"


CHANGES: dict[str, Callable[[str], object]] = {
    "add": lambda path: ps.add_fields(path, {"text": "x"}, in_place=True, replace=True),
    "replace": lambda path: ps.replace_fields(
        path, {"label": 0}, where="label == 1", in_place=True
    ),
    "drop": lambda path: ps.drop_fields(path, ["text"], in_place=True),
    "rename": lambda path: ps.rename_fields(path, {"image": "img", "label": "y"}, in_place=True),
    "bake": lambda path: bake(path, None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_features_of_hugging_face_stay(described: Path, change: str) -> None:
    CHANGES[change](str(described))
    found = datasets.Dataset.from_parquet(str(described), cache_dir=str(described.parent / "cache"))
    image, label = ("img", "y") if change == "rename" else ("image", "label")
    assert found.features[image] == datasets.Image()
    assert found.features[label] == datasets.ClassLabel(names=["cat", "dog"])
    assert found[2][image].size == (2, 2)


def test_a_dataset_of_hugging_face_has_these_features(described: Path) -> None:
    found = ps.to_hf(ps.open(described), cache_dir=described.parent / "cache")
    assert found.features["image"] == datasets.Image()
    assert found.features["label"] == datasets.ClassLabel(names=["cat", "dog"])


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"info": {"features": 1}}', b"[" * 100_000])
def test_another_description_stays_as_it_is(tmp_path: Path, text: bytes) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([("a", pa.int64())], metadata={b"huggingface": text})
    parquet.write_table(pa.table({"a": [1]}, schema=schema), tmp_path / "a.parquet")
    ps.rename_fields(tmp_path / "a.parquet", {"a": "b"}, in_place=True)
    assert parquet.read_schema(tmp_path / "a.parquet").metadata[b"huggingface"] == text
