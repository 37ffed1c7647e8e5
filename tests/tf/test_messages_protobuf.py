"""The messages compared with protobuf's own: the same operations on both, and the same bytes parsed by both."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import NAMES, messages

import penstock as ps
from penstock.tf import train

theirs: Any = messages()

KEYS = st.sampled_from(["a", "b", "some", "some_list", "", "é"])
INTS = st.one_of(
    st.integers(-3, 300), st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 63, 1.5, "a"])
)
FLOATS = st.one_of(
    st.floats(width=32), st.integers(-5, 5), st.sampled_from([1e40, 0.1, "a", None, 1 << 2000])
)
BYTES = st.one_of(st.binary(max_size=9), st.sampled_from(["a", 1, None]))
VALUES = {"BytesList": BYTES, "FloatList": FLOATS, "Int64List": INTS}
VERBS = ["new", *["field"] * 2, *["inside"] * 3, "merge", "copy", "clear", "clear field", "build"]
VERBS += ["parse", "deepcopy", "touch", "ask"]
FIELDS = {
    "Example": ["features"],
    "SequenceExample": ["context", "feature_lists"],
    "Features": ["feature"],
    "FeatureLists": ["feature_list"],
    "FeatureList": ["feature"],
    "Feature": ["bytes_list", "float_list", "int64_list"],
    "BytesList": ["value"],
    "FloatList": ["value"],
    "Int64List": ["value"],
}
HELD = {"features": "Features", "context": "Features", "feature_lists": "FeatureLists"}
HELD |= {"bytes_list": "BytesList", "float_list": "FloatList", "int64_list": "Int64List"}
HELD |= {"feature": "Feature", "feature_list": "FeatureList"}


class Twin:
    """A message of penstock and one of protobuf, on which the same operations are done."""

    def __init__(self, ours: Any, other: Any) -> None:
        self.ours, self.other = ours, other
        self.num_fields = 0
        """How many messages were obtained from its fields."""

    @property
    def name(self) -> str:
        return type(self.other).__name__

    def both(self, act: Callable[[Any], Any], *, numbered: bool = False) -> Any:
        """Run an operation on both, check that both accept or refuse it, and return the result."""
        results = []
        for message in (self.ours, self.other):
            try:
                results.append((act(message), None))
            except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
                results.append((None, type(error)))
        assert results[0][1] == results[1][1]
        return results[0][0], results[1][0]

    def check(self) -> None:
        ours = self.ours.SerializeToString(deterministic=True)
        assert ours == self.other.SerializeToString(deterministic=True)
        assert self.ours.ByteSize() == len(ours)
        assert self.ours == self.other


def step(data: st.DataObject, twins: list[Twin]) -> None:
    twin = twins[data.draw(st.integers(0, len(twins) - 1))]
    verb = data.draw(st.sampled_from(VERBS))
    field = data.draw(st.sampled_from(FIELDS[twin.name]))
    same = [other for other in twins if other.name == twin.name]
    other = same[data.draw(st.integers(0, len(same) - 1))]
    if verb == "new":
        name = data.draw(st.sampled_from(NAMES))
        twins.append(Twin(getattr(train, name)(), getattr(theirs, name)()))
    elif verb == "field" and twin.name in ("Example", "SequenceExample", "Feature"):
        twins.append(Twin(getattr(twin.ours, field), getattr(twin.other, field)))
        twin.num_fields += 1
    elif verb == "inside":
        inside(data, twin, field, twins)
    elif verb in ("merge", "copy"):
        verb = {"merge": "MergeFrom", "copy": "CopyFrom"}[verb]
        getattr(twin.ours, verb)(other.ours)
        getattr(twin.other, verb)(other.other)
    elif verb == "clear":
        # protobuf's Clear may leave one of several unset fields attached, depending on their
        # addresses.
        if twin.num_fields < 2:
            twin.both(lambda message: message.Clear())
    elif verb == "clear field":
        twin.both(lambda message: message.ClearField(field))
    elif verb == "build":
        build(data, twin, twins)
    elif verb == "parse":
        written = other.other.SerializeToString()
        twin.both(lambda message: message.MergeFromString(written))
    elif verb == "deepcopy":
        twins.append(Twin(copy.deepcopy(twin.ours), copy.deepcopy(twin.other)))
    elif verb == "touch":
        twin.both(lambda message: message.SetInParent())
    else:
        asked = twin.both(lambda message: message.HasField(field))
        assert asked[0] == asked[1]
        asked = twin.both(lambda message: message.WhichOneof("kind"))
        assert asked[0] == asked[1]
        asked = twin.both(lambda message: [(f.name, f.number) for f, _ in message.ListFields()])
        assert asked[0] == asked[1]


def build(data: st.DataObject, twin: Twin, twins: list[Twin]) -> None:
    """A message that contains one or two of the existing messages."""
    homes = [
        (name, field)
        for name, fields in FIELDS.items()
        for field in fields
        if HELD.get(field) == twin.name
    ]
    # Both FeatureList and Features have a field "feature"; the list of lists has another field.
    homes = [h for h in homes if h != ("FeatureLists", "feature")]
    if not homes:
        return
    name, field = data.draw(st.sampled_from(homes))
    keys = data.draw(st.lists(KEYS, min_size=1, max_size=2))

    def made(module: Any, message: Any) -> Any:
        value = message
        if name in ("Features", "FeatureLists"):
            value = dict.fromkeys(keys, message)
        elif name == "FeatureList":
            value = [message] * len(keys)
        return getattr(module, name)(**{field: value})

    twins.append(Twin(made(train, twin.ours), made(theirs, twin.other)))


def inside(data: st.DataObject, twin: Twin, field: str, twins: list[Twin]) -> None:
    """An operation on a list or map."""
    if twin.name in VALUES:
        values = data.draw(st.lists(VALUES[twin.name], max_size=3))
        place = data.draw(st.integers(-4, 4))
        part = slice(*data.draw(st.tuples(*[st.none() | st.integers(-4, 4)] * 2)))
        acts: list[Callable[[Any], Any]] = [
            lambda v: v.extend(values),
            lambda v: v.extend(values),
            lambda v: [v.append(value) for value in values],
            lambda v: v.insert(place, values[0] if values else b"q"),
            lambda v: v.__setitem__(place, values[0] if values else None),
            lambda v: assign(v, part, values),
            lambda v: v.__delitem__(place),
            lambda v: v.__delitem__(part),
            lambda v: v.__getitem__(place),
            lambda v: v.__getitem__(part),
            lambda v: v.pop(),
            lambda v: v.reverse() if len(v) else None,
            lambda v: v.sort(key=str) if len(v) else None,
            list,
            repr,
            len,
        ]
        act = data.draw(st.sampled_from(acts))
        found = twin.both(lambda message: act(message.value))
        assert repr(found[0]) == repr(found[1])
    elif twin.name in ("Features", "FeatureLists"):
        key = data.draw(KEYS)
        verb = data.draw(
            st.sampled_from(["get", "get", "get", "pop", "del", "in", "keys", "clear"])
        )
        if verb == "get":
            found = twin.both(lambda message: getattr(message, field)[key])
            twins.append(Twin(*found))
        elif verb == "pop":
            found = twin.both(lambda message: getattr(message, field).pop(key))
            twins.append(Twin(*found))
        elif verb == "del":
            twin.both(lambda message: getattr(message, field).__delitem__(key))
        elif verb == "in":
            found = twin.both(lambda message: key in getattr(message, field))
            assert found[0] == found[1]
        elif verb == "keys":
            found = twin.both(lambda message: sorted(getattr(message, field)))
            assert found[0] == found[1]
        else:
            twin.both(lambda message: getattr(message, field).clear())
    elif twin.name == "FeatureList":
        place = data.draw(st.integers(-3, 3))
        verb = data.draw(st.sampled_from(["add", "add", "get", "get", "pop", "del", "reverse"]))
        if verb == "add":
            twins.append(Twin(*twin.both(lambda message: message.feature.add())))
        elif verb in ("get", "pop") and len(twin.other.feature):
            place %= len(twin.other.feature)
            if verb == "pop":
                found = twin.both(lambda message: message.feature.pop(place))
            else:
                found = twin.both(lambda message: message.feature[place])
            twins.append(Twin(*found))
        elif verb == "del":
            twin.both(lambda message: message.feature.__delitem__(place))
        elif len(twin.other.feature):
            twin.both(lambda message: message.feature.reverse())


def assign(found: Any, part: slice, values: list[Any]) -> None:
    """Assign a slice. If a value is refused, protobuf's list keeps the space that it made for the value; so the list
    is reset in both."""
    before = list(found)
    try:
        found[part] = values
    except (TypeError, ValueError, OverflowError):
        found[:] = before
        raise


@pytest.mark.parametrize("part", [slice(None, 0), slice(0, 1), slice(None), slice(1, None)])
def test_a_slice_that_is_refused_leaves_the_list_as_it_was(part: slice) -> None:
    found = train.FloatList(value=[1.0, 2.0])
    with pytest.raises(TypeError):
        found.value[part] = [3.0, "a"]
    assert list(found.value) == [1.0, 2.0]


@given(st.data())
@settings(max_examples=150)
def test_the_same_steps_lead_to_the_same_messages(data: st.DataObject) -> None:
    walk(data)


@pytest.mark.stress
@given(st.data())
@settings(max_examples=10_000)
def test_many_more_steps_lead_to_the_same_messages(data: st.DataObject) -> None:
    walk(data)


def walk(data: st.DataObject) -> None:
    twins = [Twin(train.Example(), theirs.Example()), Twin(train.Feature(), theirs.Feature())]
    for _ in range(data.draw(st.integers(1, 25))):
        step(data, twins)
        for twin in twins:
            twin.check()


def outcome(module: Any, name: str, data: bytes) -> bytes | None:
    try:
        return getattr(module, name).FromString(data).SerializeToString(deterministic=True)
    except module.DecodeError:
        return None


def alike(name: str, data: bytes) -> None:
    assert outcome(train, name, data) == outcome(theirs, name, data), (name, data.hex())


def wire_cases(golden: Path) -> list[bytes]:
    folder = golden / "tf_example"
    cases = json.loads((folder / "wire_edge_cases.json").read_text())
    cases += json.loads((folder / "sequence_example.json").read_text())
    hexes = [case["hex"] for case in cases if "hex" in case]
    hexes = [text for one in hexes for text in (one if isinstance(one, list) else [one])]
    return [bytes.fromhex(text) for text in hexes]


def test_golden_wire_cases_parse_as_in_protobuf(golden: Path) -> None:
    cases = wire_cases(golden)
    assert len(cases) >= 63
    for data in cases:
        alike("Example", data)
        alike("SequenceExample", data)


def test_golden_cases_cut_and_flipped_parse_as_in_protobuf(golden: Path) -> None:
    rng = random.Random(5)
    cases = [case for case in wire_cases(golden) if len(case) < 200]
    for _ in range(20_000):
        data = bytearray(rng.choice(cases))
        for _ in range(rng.choice((1, 1, 2, 4))):
            if data and rng.random() < 0.8:
                data[rng.randrange(len(data))] = rng.choice((rng.randrange(256), 0x0A, 0x12, 0x1A))
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data) + 1)]
        alike(rng.choice(NAMES), bytes(data))


@given(st.sampled_from(NAMES), st.binary(max_size=40))
@settings(max_examples=500)
def test_any_bytes_parse_as_in_protobuf(name: str, data: bytes) -> None:
    alike(name, data)


def test_records_of_the_corpus_parse_and_print_as_in_protobuf(corpus: Path) -> None:
    looked_at = 0
    for path in sorted(corpus.glob("tfrecord/**/*")):
        if not path.is_file() or path.stat().st_size > 4 << 20:
            continue
        try:
            records = ps.open(str(path), format="tfrecord", raw=True, index="never")[:20]
        except (ps.PenstockError, OSError):
            continue
        for data in records.column(0).to_pylist():
            looked_at += 1
            alike("Example", data)
            alike("SequenceExample", data)
            prints_alike(data)
    assert looked_at >= 50


def prints_alike(data: bytes) -> None:
    """Keys have no order in protobuf, so features are compared one by one."""
    if outcome(train, "Example", data) is None:
        return
    ours, other = train.Example.FromString(data), theirs.Example.FromString(data)
    for key in other.features.feature:
        assert str(ours.features.feature[key]) == str(other.features.feature[key])


@given(st.lists(st.floats(width=32)))
def test_floats_print_as_in_protobuf(values: list[float]) -> None:
    assert str(train.FloatList(value=values)) == str(theirs.FloatList(value=values))


@given(st.lists(st.binary()), st.text())
def test_bytes_and_keys_print_as_in_protobuf(values: list[bytes], key: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    feature = {"feature": {key: {"bytes_list": {"value": values}}}}
    assert str(train.Example(features=feature)) == str(theirs.Example(features=feature))


def test_messages_of_protobuf_are_accepted_as_ours() -> None:
    real = theirs.Feature(int64_list={"value": [1]})
    example = train.Example()
    example.features.feature["a"].CopyFrom(real)
    example.features.feature["b"] = real
    assert train.Features(feature={"a": real, "b": real}) == example.features
    assert real == example.features.feature["a"]
    assert example.features.feature["a"] != theirs.Int64List()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("FloatList", [0.1, 2, float("inf")]),
        ("Int64List", [1, -(1 << 63)]),
        ("BytesList", [b"a", b"bcd"]),
    ],
)
def test_the_values_of_a_list_are_the_same_array_to_numpy(name: str, values: list[Any]) -> None:
    mine, other = (getattr(module, name)(value=values).value for module in (train, theirs))
    found, known = np.array(mine), np.array(other)
    assert found.dtype == known.dtype
    assert found.tolist() == known.tolist()
    assert np.array(mine, dtype=object).tolist() == np.array(other, dtype=object).tolist()


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_clearing_a_field_of_a_oneof_does_to_the_others_what_protobuf_does(
    is_looked_at: bool,
) -> None:
    found = []
    for module in (train, theirs):
        feature = module.Feature(bytes_list={"value": [b"x"]})
        view = feature.float_list if is_looked_at else None
        feature.ClearField("float_list")
        found.append((feature.SerializeToString(), feature.WhichOneof("kind"), view is None))
    assert found[0] == found[1]
