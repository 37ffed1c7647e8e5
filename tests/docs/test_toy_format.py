"""The formats that docs/architecture.md shows are those in this folder, and do what the page says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from fixed_size import FixedSizeFormat
from framed_lines import LineDecoder, LinesFormat

import frames
import penstock as ps
from penstock import formats
from penstock.contract.format import FormatInfo
from penstock.testing import FormatLaws
from penstock.verbs.fields.overlays import write_overlay
from reading import index_of

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "architecture.md"
VALUES = [bytes([n % 256, n // 256]) for n in range(10_000)]


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(formats, "FORMATS", list(formats.FORMATS))  # put back afterwards
    formats.register(FixedSizeFormat())
    path = tmp_path / "numbers.fixd"
    column = pa.array(VALUES, pa.binary(2))
    ps.write(pa.table({"record": column}), path, index=False)
    return path


LINES = [f"line {n}, größer" for n in range(100_000)]


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(formats, "FORMATS", list(formats.FORMATS))  # put back afterwards
    formats.register(LinesFormat())
    path = tmp_path / "text.tfl"
    ps.write({"line": LINES}, path, index=False)
    return path


@pytest.mark.parametrize("name", ["fixed_size.py", "framed_lines.py"])
def test_the_page_shows_the_formats_as_they_are(name: str) -> None:
    assert (HERE / name).read_text("utf-8") in PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", ["numbers", "lines"])
def test_options_that_they_lack_are_refused(name: str, request: pytest.FixtureRequest) -> None:
    path = str(request.getfixturevalue(name))
    with pytest.raises(TypeError, match="has no option 'colour'; its options: none"):
        ps.open(path, index="never", colour="red")
    if name == "numbers":  # lines are framed, so they have raw records
        with pytest.raises(ps.UnsupportedError, match="raw=True"):
            ps.open(path, index="never", raw=True)
    with pytest.raises(ps.UnsupportedError, match="can only be a"):
        ps.open(path, index="never", schema={"a": pa.int8()})
    own = ps.open(path, index="never").schema
    assert ps.open(path, index="never", schema=own).schema == own
    with pytest.raises(ps.UnsupportedError, match="takes no schema="):
        ps.open(path, index="never", schema=pa.schema([(own.names[0], pa.large_binary())]))


class OtherName(LinesFormat):
    info = FormatInfo("other", (".new", ".tfl"))


class SameName(LinesFormat):
    info = FormatInfo("lines", (".new",))


class EndingOfPenstock(LinesFormat):
    info = FormatInfo("other", (".parquet",))


def test_a_registered_format_replaces_only_one_of_its_own_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = list(formats.FORMATS)
    monkeypatch.setattr(formats, "FORMATS", list(before))
    again = LinesFormat()
    formats.register(LinesFormat())
    formats.register(again)
    assert formats.FORMATS == [*before, again]
    assert formats.by_name("lines") is again
    assert formats.by_path("a/b.tfl") is again
    for other, message in [
        (SameName(), r"SameName and framed_lines\.LinesFormat both have a format 'lines'"),
        (OtherName(), r"'other' of .*OtherName and 'lines' of framed_lines.* extension '\.tfl'"),
        (EndingOfPenstock(), r"EndingOfPenstock and 'parquet' of penstock .* '\.parquet'"),
        (type(before[0])(), "TFRecordFormat and penstock both have a format 'tfrecord'"),
    ]:
        with pytest.raises(ValueError, match=message):
            formats.register(other)
        assert formats.FORMATS == [*before, again]


def test_the_name_decides_between_formats_over_one_framing(lines: Path) -> None:
    other = lines.with_suffix(".tfrecord")
    other.write_bytes(lines.read_bytes())
    assert ps.open(lines).schema.names == ["line"]
    assert ps.open(other).schema.names == ["record"]
    assert ps.open(other, format="lines").schema.names == ["line"]
    wrongly_named = lines.with_name("table.tfl")
    ps.write({"x": [1]}, wrongly_named, format="parquet")
    assert ps.open(wrongly_named).schema.names == ["x"]


def test_a_framed_format_scans_takes_and_keeps_an_index(lines: Path, index_beside: None) -> None:
    ds = ps.open(lines)
    assert ds.shards[0].format == "lines"
    assert pa.table(ds).column("line").to_pylist() == LINES
    asked = [99_999, 0, 7, 7]
    assert ds.take(asked).column("line").to_pylist() == [LINES[n] for n in asked]
    assert index_of(lines).exists()
    assert pa.table(ps.open(lines)).column("line").to_pylist() == LINES
    assert sum(batch.num_rows for batch in ds.scan(columns=[])) == len(LINES)


def test_a_framed_format_reads_on_after_damage(lines: Path) -> None:
    starts = frames.starts_of([line.encode() for line in LINES[:1001]])
    data = bytearray(lines.read_bytes())
    data[starts[1000] + 9] ^= 1  # damage the head; the payload can still be verified
    data[starts[10] + 14] ^= 1  # damage the payload
    lines.write_bytes(data)
    with pytest.raises(ps.ChecksumError) as caught:
        list(ps.open(lines, index="never").scan())
    assert caught.value.record == 10
    ds = ps.open(lines, damage="skip", index="never")
    assert pa.table(ds).column("line").to_pylist() == LINES[:10] + LINES[11:]
    assert [(r.start_byte, r.num_records) for r in ds.damage] == [
        (starts[10], 1),
        (starts[1000], 0),
    ]


class LinesLaws(FormatLaws):
    format = "lines"
    similar = ("tfrecord",)

    def table(self, num_records: int) -> pa.Table:
        return pa.table({"line": LINES[:num_records]})


LAWS = [name for name in dir(LinesLaws) if name.startswith("test_")]


@pytest.mark.parametrize("law", LAWS)
def test_a_framed_format_keeps_the_laws(law: str, lines: Path) -> None:
    check = getattr(LinesLaws(), law)
    check(lines.parent) if "tmp_path" in check.__annotations__ else check()


def test_a_line_that_is_not_text_is_a_schema_error(lines: Path) -> None:
    lines.write_bytes(frames.file_of([b"text", b"\xff"]))
    with pytest.raises(ps.SchemaError, match=r"text\.tfl.*UTF-8"):
        list(ps.open(lines, index="never").scan())


def test_scan_and_take_agree(numbers: Path) -> None:
    ds = ps.open(numbers)
    assert ds.shards[0].format == "fixedsize"
    assert len(ds) == len(VALUES)
    assert pa.table(ds).column("record").to_pylist() == VALUES
    asked = [9_999, 0, 4096, 4095, 4096]
    assert ds.take(asked).column("record").to_pylist() == [VALUES[n] for n in asked]


def test_a_cut_file_is_located(numbers: Path) -> None:
    numbers.write_bytes(numbers.read_bytes()[:-1])
    with pytest.raises(ps.TruncatedError) as caught:
        ps.open(numbers)
    assert (caught.value.record, caught.value.byte) == (9_999, 8 + 2 * 9_999)


def test_overlays_of_it_work(numbers: Path) -> None:
    ds = ps.open(numbers)
    ranks = pa.record_batch({"rank": range(len(VALUES), 0, -1)})
    write_overlay(ds, "rank", ranks.schema, lambda shard: [ranks])
    ds = ps.open(numbers)
    table = pa.table(ds)
    assert table.column("record").to_pylist() == VALUES
    assert table.column("rank").to_pylist() == ranks.column(0).to_pylist()
    asked = [9_999, 0, 4096, 4095, 4096]
    for columns in (["rank", "record"], ["rank"], ["record"], []):
        for damage in ("error", "skip"):
            taken = ps.open(numbers, columns=columns, damage=damage).take(asked)
            assert taken.num_rows == len(asked)
            if columns:
                assert taken.to_pylist() == table.select(columns).take(asked).to_pylist()
    numbers.write_bytes(numbers.read_bytes() + b"ab")
    with pytest.raises(ps.StaleIndexError):
        ps.open(numbers)


class OnlyLines(LinesFormat):
    """A format that ignores raw=True."""

    def raw_decoder(self) -> LineDecoder:
        return LineDecoder()


def test_a_framed_format_from_outside_is_verified_and_indexed(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "FORMATS", list(formats.FORMATS))  # put back afterwards
    assert ps.verify(lines).num_records == len(LINES)
    ps.index(lines)
    assert index_of(lines).exists()
    assert ps.open(lines)[99]["line"] == LINES[99]
    assert ps.open(lines, raw=True)[99]["record"] == LINES[99].encode()
    formats.FORMATS[-1] = OnlyLines()
    with pytest.raises(ps.UnsupportedError, match="lines has no raw records"):
        ps.open(lines, raw=True)
