"""The language of conditions: its meaning, and what it refuses."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import compute

import penstock as ps
from penstock.conditions import expression_of, filter_of, parse

BATCH = pa.record_batch(
    {
        "x": pa.array([1, None, 3, 4, -7], pa.int32()),
        "f": pa.array([1.0, 2.5, None, 0.0, -7.0]),
        "t": ["a", "bb", None, "é", ""],
        "data": pa.array([b"a", b"b\xff", None, b"d", b""], pa.binary_view()),
        "ok": [True, False, None, True, False],
        "tokens": [[1, 2], None, [], [3], [3, None]],
        "s": pa.array([{"q": 1}, None, {"q": 3}, {"q": None}, {"q": 5}]),
        "a-b/c": [1, 2, 3, 4, 5],
        "s.r": [5, 4, 3, 2, 1],
        "u": pa.array([1, 2, 3, 2**64 - 1, None], pa.uint64()),
        "label": pa.array(["cat", "dog", None, "cat", "eel"]).dictionary_encode(),
        **{name: pa.array([1, 2, 3, 4, 5]) for name in ("like", "between", "ilike")},
        "when": pa.array([0, 10**6, None, 2 * 10**6, 3 * 10**6], pa.timestamp("us")),
    }
)


def kept(where: Any, batch: pa.RecordBatch = BATCH) -> list[int]:
    """The numbers of the records for which a condition is true."""
    found = filter_of(where, batch.schema.names)
    columns = batch if found.columns is None else batch.select(found.columns)
    return np.flatnonzero(found.holds(columns)).tolist()


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("ok", [0, 3]),
        ("not ok", [1, 4]),
        ("ok or x == 3", [0, 2, 3]),
        ("not (ok and x > 1)", [0, 1, 4]),
        ("x not in [1, 4]", [2, 4]),
        ("x not in [1, null]", []),
        ("x in [1, 2.5, 99999999999]", [0]),
        ("2 < x", [2, 3]),
        ("x between 1 and 3", [0, 2]),
        ("x not between 1 and 3 and ok", [3]),
        ("x between f and a-b/c - 1 or x == 1", [0, 4]),
        ("not x between null and 3", [3]),
        ('when between "1970-01-01" and "1970-01-01T00:00:01"', [0, 1]),
        ('t like "_"', [0, 3]),
        ('t not like "b%"', [0, 3, 4]),
        ('t ilike "É" or t like ""', [3, 4]),
        ('data like "%b_"', [1]),
        ('label like "%a%"', [0, 3]),
        ('lower(t) like "%b" and x is null', [1]),
        ("like == 2 or between < 2 or ilike == 3", [0, 1, 2]),
        ("x is null or t is null", [1, 2]),
        ("x == null", []),
        ("null is null or x == 3", [0, 1, 2, 3, 4]),
        ("a-b/c - 1 == 2", [2]),
        ("`a-b/c` / 2 > 1.5", [3, 4]),
        ("x % 4 == -3", [4]),
        ("x / f is null", [1, 2, 3]),
        ("f + x * 2 == 3", [0]),
        ("(f + x) * 2 == 4", [0]),
        ("s.q >= 3", [2, 4]),
        ("s.r >= 3", [0, 1, 2]),
        ("len(t) == 1", [0, 3]),
        ("len(data) == 2", [1]),
        ("len(tokens) == 0", [2]),
        ("contains(tokens, 3)", [3, 4]),
        ('contains(t, "b")', [1]),
        ('startswith(data, "b")', [1]),
        ('matches(t, "^(a|é)$")', [0, 3]),
        ('cast(x, "string") == "-7"', [4]),
        ('lookup(x + 7, ["a", "b", "c", "d", "e", "f", "g", "h", "k", "l", "m", "n"]) == "k"', [0]),
        ('lookup(label, {"cat": 5, "dog": 6, "eel": null}) == 5', [0, 3]),
        ('lookup(a-b/c - 1, ["a", "b", "c", "b", "e"]) == "b"', [1, 3]),
        ("u == 18446744073709551615", [3]),
        ("u > x", [3]),
        ('label == "cat"', [0, 3]),
        ('when > "1970-01-01T00:00:01"', [3, 4]),
        ("t == data", [0, 4]),
        ("x == 1 or x == 3 and ok", [0]),
        ("if(ok, x, 0) == 0", [1, 2, 4]),  # a null condition takes the last value
        ("if(x > 1, t, data) is null", [2]),
        ("if(ok, 1.5, x) > 1", [0, 2, 3]),
        ("if(ok and x > 1, ok, x is null)", [1, 3]),
        ("if(x is null, null, 1) is null", [1]),
        ("if(f != 0, x / f, 0) == 0", [2, 3]),
        ("coalesce(x, 0) == 0", [1]),
        ('coalesce(t, label, "none") == "none"', [2]),
        ("coalesce(null, f, x) == 3", [2]),
        ("coalesce(x > 3, true)", [1, 3]),
        ('try_cast(t, "int64") is null', [0, 1, 2, 3, 4]),
        ('try_cast(data, "string") is null', [1, 2]),
        ('try_cast(x, "uint8") is null', [1, 4]),
        ('try_cast(a-b/c, "string") == "5"', [4]),
        ('upper(t) == "É"', [3]),
        ('lower("A") == t', [0]),
        ('endswith(t, "b")', [1]),
        ('replace(t, "b", "x") == "xx"', [1]),
        ('trim(coalesce(t, " a ")) == "a"', [0, 2]),
        ("abs(x) == 7", [4]),
        ("round(f / 2) == 1", [0, 1]),
        ("round(f / 2) == -4", [4]),
        ("-x > 5", [4]),
        ("-(x + 1) * 2 == - 4", [0]),
        ("isnan(f / f - f / f)", []),
        ("not isnan(f)", [0, 1, 3, 4]),
        ("not isnan(x)", [0, 2, 3, 4]),
        ('cast(ok, "int64") + cast(x > 3, "int64") == 2', [3]),
        ("(3) > x", [0, 4]),
    ],
)
def test_a_condition_selects_exactly_these_records(where: str, numbers: list[int]) -> None:
    assert kept(where) == numbers


def test_an_expression_and_a_function_mean_the_same_as_the_text() -> None:
    expression = (compute.field("x") > 1) & compute.field("ok").is_valid()
    assert kept(expression) == kept("x > 1 and ok is not null") == [3]
    by_function = kept(lambda batch: np.array(batch["x"].fill_null(0)) > 1)
    assert by_function == kept("x > 1") == [2, 3]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("x -1 > 2", "expected spaces around `-`"),
        ("1 < x < 3", "expected an `and`, as in"),
        ("x > 1 x", "expected an operator, an `and` or an `or`"),
        ("x = 3", "expected `==`, at '= 3'"),
        ("x <> 3", "expected `!=`, at '<> 3'"),
        ("x between 1", "expected `and`, as in"),
        ("x between 1 and", "expected a value"),
        ("t like x", "expected a value"),
        (r't == "\ud800"', "half of a surrogate pair"),
        ("t like 3", "expected a pattern in quotes, such as \"cat%\", at '3'"),
        ("t ilike 'cat%'", "expected a text in double quotes"),
        ("x not == 3", "expected `in`, `between` or `like`, as in"),
        ("len(x", r"expected `\)`"),
        ("x == {}", "not a single value"),
        ("in == 3", 'if "in" is the name of a field, write it in backquotes: `in`'),
        ('matches(t, "(")', "not a regular expression"),
        ('cast(x, "number")', "not a type"),
        ("x == NaN + ", "expected a value"),
        ("x == 'cat'", "expected a text in double quotes"),
        ("lookup(x, 3) == 1", r"expected a table, such as .*, at '3\) == 1'"),
        ("lookup(x, []) == 1", "expected a table, such as"),
        ("lookup(x, [[1]]) == 1", "expected a table, such as"),
        ('lookup(x, [1, "b"]) == 1', "a table whose values have one type"),
        ("(" * 1000 + "x", "nested"),
        ("not " * 1000 + "ok", "nested"),
        ("[" * 100_000, "expected a value"),
        ("if(ok, 1)", "expected `,`"),
        ("coalesce() == 1", "expected a value"),
        ("if(" * 1000, "nested"),
        ("lower(" * 1000 + "x", "nested"),
        ('replace(t, "a") == "b"', "expected `,`"),
        ("endswith(t, 1)", "expected a text in quotes"),
        ("least(x, 1) == 1", "one of the functions if, coalesce, len, startswith, .*try_cast"),
        ("3", "expected a comparison"),
        ("x == 3 AND x > 1", "at 'AND x > 1'; write `and` in small letters"),
        ("x NOT IN [3]", "write `not` in small letters"),
        ("NOT ok", "at 'ok'; write `not` in small letters"),
    ],
)
def test_an_invalid_condition_names_what_was_expected_and_where(where: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(where)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("y > 1", "'y': no such column"),
        ("x/2 == 1.5", r"'x/2': no such column; (?s:.*)write blanks .* as in x / 2"),
        ("x == NULL", "'NULL': no such column; (?s:.*)write `null` in small letters"),
        ("x", "'x': values of type int32 are not booleans"),
        ("t > 1", "'t': string cannot be compared with 1"),
        ("t + 1 > 2", "'t': values of type string are not numbers"),
        ('x like "1%"', "'x': like looks for '1%' in a text or bytes, not in int32"),
        ("t between 1 and 2", "'t': string cannot be compared with 1"),
        ("contains(x, 1)", "'x': contains looks for 1"),
        ("len(x) > 1", "'x': values of type int32 have no length"),
        ('cast(t, "int32") > 1', "'t': the condition cannot be computed"),
        ("lookup(u, [0, 1, 2, 3]) == 1", "'u': the condition cannot be computed: Integer value"),
        ("lookup(x, [0, 1]) == 1", "'x': lookup has no entry for 3, only for 0 to 1"),
        ("lookup(a-b/c, [7, 8, 9, 10, 11]) == 1", "no entry for 5, only for 0 to 4"),
        (
            'lookup(label, {"cat": 1}) == 1',
            "'label': lookup has no entry for 'dog', only for 1 names",
        ),
        ('lookup(x, {"1": 2}) == 1', "'x': lookup by name needs texts or bytes, not int32"),
        ("lookup(f, [1]) == 1", "'f': lookup in a list needs whole numbers, not double"),
        ('x in [1, "1"]', "'x': int32 cannot be compared with '1'"),
        ("x in [1, true]", "'x': int32 cannot be compared with True"),
        ("s.z == 1", "s has no field z"),
        ("if(ok, x, t) == 1", "int32 and string have no common type; cast one of them"),
        ("if(ok, true, x) == 1", "bool and int32 have no common type"),
        ('coalesce(x, "a") == 1', "int32 and string have no common type"),
        ("if(x, 1, 2) == 1", "'x': values of type int32 are not booleans"),
        ("coalesce(u, x) > 0", "the condition cannot be computed: Integer value"),
        ("lower(x) == t", "'x': lower takes texts, not int32"),
        ("abs(t) == 1", "'t': abs takes numbers, not string"),
        ("upper(data) == t", "'data': the condition cannot be computed: Invalid UTF8"),
        ('try_cast(tokens, "int64") == 1', "'tokens': the condition cannot be computed"),
        ('if(ok, cast(t, "int64"), 1) == 1', "'t': the condition cannot be computed"),
        ("x + 9223372036854775807 > 0", "'x': the condition cannot be computed: overflow"),
    ],
)
def test_a_condition_that_does_not_fit_the_columns_is_a_schema_error(
    where: str, message: str
) -> None:
    with pytest.raises(ps.SchemaError, match=message):
        kept(where)


def test_a_null_of_a_function_is_not_true() -> None:
    assert kept(lambda batch: compute.greater(batch["x"], 1)) == kept("x > 1")
    assert kept(lambda batch: compute.is_in(batch["x"], pa.array([3]))) == [2]
    with pytest.raises(TypeError, match="not one boolean for each record"):
        kept(lambda batch: batch["x"])


NUMBERS = pa.record_batch(
    {
        "p": pa.array(["8165.57", "7077.40", "0.29", None]).cast(pa.decimal128(12, 2)),
        "r": pa.array(["9.99", "-9.50", "0.50", None]).cast(pa.decimal32(3, 2)),
        "w": pa.array(["1" + "0" * 29 + "5", "1", "-2", None]).cast(pa.decimal128(38, 0)),
        "i": pa.array([2**62 + n for n in range(4)]),
        "x": [0.0, -0.0, 1.0, None],
        "s": pa.array([-128, 1, 2, None], pa.int8()),
        "h": pa.array([2, 1.5, None, 0], pa.float16()),
        "f": pa.array([0.1, 1, 2, None], pa.float32()),
        "b": pa.array(["ärger".encode(), b"\xffrger", "ÄRGER".encode(), None]),
    }
)


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("p == 8165.57", [0]),
        ("p > 8165.57", []),
        ("p <= 7077.40", [1, 2]),
        ("p between 0.29 and 7077.399999999999999999999", [2]),
        ("p in [1, 0.29, 0.001]", [2]),
        ("p < 1e500 and p > -1e-500", [0, 1, 2]),
        ("p * 100 == 29", [2]),
        ("p == 0.1 + 0.19", [2]),
        ("p % 0.1 == 0", [1]),
        ('cast(p, "float64") == 7077.4', [1]),
        ("p / 100 == 0.0029", [2]),
        ("p / 0 is null and p % 0 is null", [0, 1, 2, 3]),
        ("coalesce(p, 0) == 0", [3]),
        ("if(p < 1, i, p) > 8000", [0, 2]),
        ("round(r) == 10 or round(r) == -10", [0, 1]),
        ("r + 0.01 == 10", [0]),
        ("w == 1000000000000000000000000000005", [0]),
        ("w * 100 == 100", [1]),
        ("i > 4611686018427387904.5 and i < 4611686018427387907.0", [1, 2]),
        ("i < 4.7e18", [0, 1, 2, 3]),
        ("i in [4611686018427387905.0, 1e300]", [1]),
        ("i > x and i + 0.5 > 1", [0, 1, 2]),
        ("x in [0]", [0, 1]),
        ("x not in [-0.0]", [2]),
        ("abs(s) == 128", [0]),
        ("h == 2 or h in [1.5]", [0, 1]),
        ("f == 0.1 or f in [0.1]", []),  # float32 has no 0.1
        ('b ilike "ärger"', [0, 2]),
        ('b like "_rger"', [0, 1]),  # bytes that are not UTF-8 are compared byte by byte
        ('matches(b, "(?i)^.rger$")', [0, 1, 2]),
    ],
)
def test_numbers_are_compared_exactly_and_bytes_as_text(where: str, numbers: list[int]) -> None:
    assert kept(where, NUMBERS) == numbers


@pytest.mark.parametrize(
    ("text", "type_", "first"),
    [
        ("p * 100", pa.decimal128(16, 2), Decimal("816557.00")),
        ("p - 1", pa.decimal128(13, 2), Decimal("8164.57")),
        ("p / 3", pa.float64(), 8165.57 / 3),
        ("w * 100", pa.float64(), 1e32),  # 42 digits
        ("coalesce(p, 0.001)", pa.decimal128(13, 3), Decimal("8165.570")),
        ("coalesce(p, i)", pa.decimal128(21, 2), Decimal("8165.57")),
        ("coalesce(p, x)", pa.float64(), 8165.57),
    ],
)
def test_decimals_are_computed_as_decimals(text: str, type_: pa.DataType, first: Any) -> None:
    found = expression_of(text, NUMBERS.schema.names).values(NUMBERS)
    assert (found.type, found[0].as_py()) == (type_, first)


def test_a_branch_that_is_not_taken_is_not_computed() -> None:
    batch = pa.record_batch({"price": pa.array(["1.5", "n/a", None, "2"], pa.string_view())})
    assert kept('if(price != "n/a", cast(price, "float64"), null) >= 1.5', batch) == [0, 3]
    known = batch.slice(2)
    assert kept('coalesce(price, cast("n/a", "string")) == "n/a"', known) == [0]
    assert kept('coalesce(price, "2") == "2"', known) == [0, 1]


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("coalesce(x, 0)", pa.int32()),  # a literal has the type of the column if it can
        ("coalesce(x, 3000000000)", pa.int64()),
        ("coalesce(x, 0.5)", pa.float64()),
        ("coalesce(x, a-b/c)", pa.int64()),
        ("coalesce(x, f)", pa.float64()),
        ('coalesce(t, "")', pa.string()),
        ("coalesce(t, data)", pa.binary()),
        ('if(ok, data, "")', pa.binary()),
        ('coalesce(when, "2026-01-31")', pa.timestamp("us")),
        ("if(ok, null, x)", pa.int32()),
        ("if(ok, tokens, null)", pa.list_(pa.int64())),
        ('if(ok, null, cast(t, "float64"))', pa.float64()),
        ('try_cast(null, "int8")', pa.int8()),
        ("if(ok, 1, 2.5)", pa.float64()),
    ],
)
def test_joined_values_have_the_wider_type(text: str, type_: pa.DataType) -> None:
    found = expression_of(text, BATCH.schema.names)
    for rows in (BATCH.slice(2, 0), BATCH.slice(2, 1)):
        assert found.values(rows).type == type_


def test_a_computed_column_cleans_a_column_of_text(tmp_path: Path) -> None:
    prices = ["n/a", " 1.5", None, "2"]
    ps.write({"price": [price and price.encode() for price in prices]}, tmp_path / "a.tfrecord")
    ds = ps.open(tmp_path / "a.tfrecord").with_columns(
        {
            "usd": 'try_cast(trim(price), "float64")',
            "sure": 'if(price != "n/a", cast(trim(price), "float64"), null)',
            "known": 'coalesce(price, "?")',
        }
    )
    assert ds.to_table(columns=["usd", "sure"]).to_pylist() == [
        {"usd": value, "sure": value} for value in (None, 1.5, None, 2.0)
    ]
    assert ds.to_table(columns=["known"])["known"].to_pylist() == [b"n/a", b" 1.5", b"?", b"2"]


@given(st.lists(st.text("0123456789+-.eExXaAbfintyINF \n_") | st.none(), max_size=20))
def test_try_cast_gives_what_cast_gives_and_null_where_that_is_impossible(
    texts: list[str | None],
) -> None:
    for type_ in ("int8", "int64", "float32", "float64", "bool", "date32"):
        columns = {"t": pa.array(texts, pa.string())}
        tried = expression_of(f'try_cast(t, "{type_}")', ["t"]).values(pa.record_batch(columns))
        cast = expression_of(f'cast(t, "{type_}")', ["t"])
        for row, found in enumerate(tried):
            try:
                wanted = cast.values(pa.record_batch({"t": columns["t"].slice(row, 1)}))[0]
            except ps.SchemaError:
                assert not found.is_valid
            else:
                assert str(found) == str(wanted)  # NaN is not equal to NaN


def test_lists_views_and_tensors_have_a_length_and_values() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12).reshape(2, 3, 2))
    batch = pa.record_batch(
        {
            "large": pa.array([[1], [2, 3]], pa.large_list(pa.int8())),
            "fixed": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
            "tensor": tensors,
        }
    )
    assert kept("len(large) == 2", batch) == [1]
    assert kept("contains(large, 3)", batch) == [1]
    assert kept("len(fixed) == 2", batch) == [0]
    assert kept("len(map) == 1", batch) == [0]
    assert kept("len(tensor) == 3", batch) == [0, 1]
    assert kept("contains(fixed, 2)", batch) == [0]


@pytest.mark.parametrize("where", ['"x" is not null', '"x" == 3', "1 == 1", "true"])
def test_a_condition_that_names_no_column_is_refused(where: str) -> None:
    with pytest.raises(ValueError, match="names no column: write names without quotes"):
        kept(where)


def test_images_are_chosen_by_their_size(tmp_path: Path) -> None:
    sizes = [(2, 1), (3, 5), (4, 4)]
    images = [ps.encode_images([np.zeros((h, w, 3), np.uint8)], "png")[0].as_py() for w, h in sizes]
    path = str(tmp_path / "a.tfrecord")
    ps.write({"image": [*images, None]}, path)
    ds = ps.open(path)
    assert ds.count("width(image) > 2 and height(image) == 4") == 1
    found = ds.with_columns({"w": "width(image)", "h": "height(image)"}).to_table(["w", "h"])
    assert list(zip(*found.to_pydict().values(), strict=True)) == [*sizes, (None, None)]
    assert found.schema.types == [pa.int64(), pa.int64()]
    ps.write({"image": [*images, b"none"], "n": [1, 2, 3, 4]}, path, overwrite=True)
    with pytest.raises(ps.SchemaError, match="width takes images, but these bytes are not a") as at:
        ps.open(path).count("width(image) > 2")
    assert (at.value.file, at.value.record, at.value.field) == (path, 3, "image")
    with pytest.raises(ps.SchemaError, match="'n': height takes images, not int64"):
        ps.open(path).count("height(n) > 2")


def test_a_text_that_is_not_json_is_named_with_its_file_and_record(tmp_path: Path) -> None:
    texts = [f'{{"iso": {n}}}' for n in range(500)]
    texts[321] = "{iso: 3}"
    path = str(tmp_path / "a.parquet")
    ps.write({"meta": texts}, path)
    with pytest.raises(ps.SchemaError, match=r'types=\{"meta": "json"\}'):
        ps.open(path).filter("meta.iso == 3").to_table()
    ds = ps.open(path, types={"meta": "json"})
    with pytest.raises(ps.SchemaError, match="is not JSON") as caught:
        ds.filter("meta.iso == 3").to_table()
    assert (caught.value.file, caught.value.record) == (path, 321)
    texts[321] = "{}"
    ps.write({"meta": texts}, path, overwrite=True)
    assert len(ps.open(path, types={"meta": "json"}).filter("meta.iso == 3")) == 1


def test_a_condition_on_a_missing_field_names_the_existing_fields(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    with pytest.raises(ps.SchemaError, match="no such column; there are: a"):
        ps.convert(tmp_path / "a.tfrecord", tmp_path / "b.parquet", where="nope > 3")
    assert not (tmp_path / "b.parquet").exists()


@pytest.mark.parametrize(
    ("where", "low"),
    [
        ("x < 4611686018427387904.9", 2**62),
        ("x in [4611686018427387904.0]", 2**62),
        ("x == 9007199254740993", 2.0**53),
    ],
)
def test_bounds_are_as_exact_as_the_condition(where: str, low: float) -> None:
    found = filter_of(where, ["x"])
    assert found.holds(pa.record_batch({"x": [low]})).all()
    assert all(bound.may_hold(low, low, has_nulls=False) for bound in found.bounds)


VALUES = st.none() | st.integers(-4, 4)
LITERALS = st.integers(-5, 5)


@st.composite
def texts_of_one_field(draw: st.DrawFn, depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        parts = [draw(texts_of_one_field(depth - 1)) for _ in range(2)]
        return draw(st.sampled_from(["({} and {})", "({} or {})", "not ({})"])).format(*parts)
    sign = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
    kinds = [f"x {sign} {draw(LITERALS)}", f"x in [{draw(LITERALS)}, {draw(LITERALS)}]"]
    kinds += [f"x between {draw(LITERALS)} and {draw(LITERALS)}"]
    kinds += [f"x not between {draw(LITERALS)} and {draw(LITERALS)}"]
    kinds += [f"coalesce(x, {draw(LITERALS)}) {sign} {draw(LITERALS)}"]
    kinds += [f"if(x {sign} {draw(LITERALS)}, x is null, x > {draw(LITERALS)})"]
    kinds += [f"if(x {sign} {draw(LITERALS)}, null, x) {sign} {draw(LITERALS)}"]
    kinds += [f'coalesce(try_cast(x, "uint8"), 1) {sign} {draw(LITERALS)}']
    return draw(st.sampled_from([*kinds, "x is null", "x is not null", "x % 2 == 0"]))


@st.composite
def expressions_of_one_field(draw: st.DrawFn, depth: int = 2) -> Any:
    if depth and draw(st.booleans()):
        left, right = (draw(expressions_of_one_field(depth - 1)) for _ in range(2))
        return draw(st.sampled_from([left & right, left | right, ~left]))
    x, value = compute.field("x"), draw(LITERALS)
    every = [x == value, x != value, x < value, x >= value, x.isin([value, draw(LITERALS)])]
    return draw(st.sampled_from([*every, x.is_null(), x.is_valid()]))


@settings(max_examples=300)
@given(texts_of_one_field() | expressions_of_one_field(), st.lists(VALUES, min_size=1, max_size=4))
def test_bounds_exclude_no_values_for_which_the_condition_is_true(
    where: Any, values: list[int | None]
) -> None:
    batch = pa.record_batch({"x": pa.array(values, pa.int64())})
    found = filter_of(where, ["x"], schema=batch.schema)
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (None, None)
    if found.holds(batch).any():
        for bound in found.bounds:
            assert bound.may_hold(low, high)
            assert bound.may_hold(low, high, has_nulls=None in values)


JSON_ROWS = [
    {"label": 3, "name": "a", "deep": {"q": 1.5}, "tags": ["x"], "ok": True},
    {"label": None, "name": "b", "deep": None, "tags": [], "ok": False},
    None,
    {"label": 4, "deep": {"q": 2}, "tags": ["x", "y"]},
    [1, 2],
    {"name": "a", "deep": "no object", "label": 3},
]
JSON_BATCH = pa.record_batch(
    {
        "json": pa.array([None if r is None else json.dumps(r) for r in JSON_ROWS], pa.json_()),
        "s": pa.StructArray.from_arrays(
            [pa.array([json.dumps({"n": n}) for n in range(6)], pa.json_())], names=["in"]
        ),
        "json.dot": list(range(6)),
    }
)


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("json.label == 3", [0, 5]),
        ("json.label is null", [1, 2, 4]),
        ("json.label + 1 > 4", [3]),
        ("json.deep.q >= 2", [3]),
        ("json.deep.q is null and json.label == 3", [5]),
        ('json.name in ["a"]', [0, 5]),
        ("json.ok", [0]),
        ("not json.ok", [1]),
        ("len(json.tags) == 2", [3]),
        ('contains(json.tags, "x")', [0, 3]),
        ("json.missing == 3", []),
        ("json.missing is null", [0, 1, 2, 3, 4, 5]),
        ("s.in.n > 3", [4, 5]),
        ("json.dot == 2", [2]),
        ('cast(json.label, "string") == "3"', [0, 5]),
    ],
)
def test_fields_of_json(where: str, numbers: list[int]) -> None:
    assert kept(where, JSON_BATCH) == numbers


@pytest.mark.parametrize(
    "ending", ["tar", "parquet", "arrow", "tfrecord", "h5", "msgpack", "beton"]
)
def test_fields_of_json_in_every_format(ending: str, tmp_path: Path) -> None:
    texts = [json.dumps({"label": n % 4}) for n in range(20)]
    table = pa.table({"json": pa.array(texts, pa.json_()), "n": range(20)})
    ps.write(table, tmp_path / f"a.{ending}", **({"key": "n"} if ending == "tar" else {}))
    ds = ps.open(tmp_path / f"a.{ending}")
    assert ds.count("json.label == 3") == 5
    made = ps.convert(ds, tmp_path / "b.arrow", where="json.label == 3 and json.none is null")
    assert made.num_records == 5


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["{", "{}"], "not JSON"),
        (["[" * 100_000], "not JSON"),
        (['{"a": 1}', '{"a": "b"}'], "no common type"),
        (['{"a": 99999999999999999999999}'], "no common type"),
        (['{"a": "\\ud800"}'], "no common type"),
    ],
)
def test_json_that_has_no_values_to_compare(texts: list[str], message: str) -> None:
    batch = pa.record_batch({"json": pa.array(texts, pa.json_())})
    with pytest.raises(ps.SchemaError, match=message) as told:
        kept("json.a == 1", batch)
    assert told.value.field == "json.a"


@pytest.mark.parametrize(
    "where",
    ['when >= "1970-01-02"', 'when in ["1970-01-02"]', 'when == "1970-01-02T01:00:00+01:00"'],
)
def test_a_text_without_a_zone_is_utc_for_a_column_with_one(where: str) -> None:
    times = pa.array([0, 86400, None], pa.timestamp("s", "Europe/Berlin"))
    assert kept(where, pa.record_batch({"when": times})) == [1]
