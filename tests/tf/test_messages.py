"""`tf.train`'s messages: the operations that programs use, one at a time."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest

import penstock.tf as tf
from penstock.tf import train
from penstock.tf.train import (
    BytesList,
    Example,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    SequenceExample,
)


def ints(*values: int) -> Feature:
    return Feature(int64_list=Int64List(value=values))


def test_an_example_of_the_usual_style_has_these_bytes() -> None:
    example = Example(features=Features(feature={"a": ints(-1, 1)}))
    assert example.SerializeToString().hex() == "0a160a140a0161120f1a0d0a0bffffffffffffffffff0101"
    assert example.ByteSize() == 24


def test_changing_a_value_far_below_sets_everything_above() -> None:
    example = Example()
    value = example.features.feature["label"].bytes_list.value
    assert example.HasField("features")
    assert example.features.feature["label"].WhichOneof("kind") is None
    value.append(b"x")
    assert example.features.feature["label"].WhichOneof("kind") == "bytes_list"
    assert example.features.feature["label"].bytes_list.value[0] == b"x"


def test_reading_alone_sets_nothing_but_makes_missing_keys() -> None:
    example = Example()
    assert not example.features.feature
    assert example.features.feature.get("a") is None
    assert "a" not in example.features.feature
    assert not example.HasField("features")
    assert example.features.feature["a"] == Feature()
    assert list(example.features.feature) == ["a"]


def test_a_feature_can_be_assigned_to_a_key_and_is_copied() -> None:
    example = Example()
    height = ints(256)
    example.features.feature["height"] = height
    height.int64_list.value.append(1)
    assert example.features.feature["height"].int64_list.value == [256]
    example.features.feature.update({"width": {"int64_list": {"value": [3]}}})
    assert example.features.feature.setdefault("width", height).int64_list.value == [3]


def test_messages_built_from_others_do_not_change_with_them() -> None:
    values = Int64List(value=[1])
    feature = Feature(int64_list=values)
    features = Features(feature={"a": feature, "b": feature})
    example = Example(features=features)
    again = Example(features=features)
    values.value.append(2)
    feature.int64_list.value.append(3)
    features.feature["a"].int64_list.value.append(4)
    example.features.feature["b"].int64_list.value.append(5)
    assert values.value == [1, 2]
    assert feature.int64_list.value == [1, 3]
    assert {k: list(v.int64_list.value) for k, v in features.feature.items()} == {
        "a": [1, 4],
        "b": [1],
    }
    assert example.features.feature["a"].int64_list.value == [1]
    assert example.features.feature["b"].int64_list.value == [1, 5]
    assert again == Example(features={"feature": {"a": ints(1), "b": ints(1)}})


def test_a_view_of_a_copied_message_sees_only_the_original() -> None:
    feature = ints(1)
    view = feature.int64_list.value
    features = Features(feature={"a": feature})
    view.append(2)
    assert features.feature["a"].int64_list.value == [1]
    assert feature.int64_list.value == [1, 2]


def test_views_stay_attached() -> None:
    example = Example(features={"feature": {"a": ints(1)}})
    view, values = example.features.feature["a"], example.features.feature["a"].int64_list.value
    values.append(2)
    view.int64_list.value.append(3)
    assert example.features.feature["a"].int64_list.value == [1, 2, 3]
    assert example.features == example.features
    del example
    gc.collect()
    assert list(values) == [1, 2, 3]


def test_removed_messages_keep_their_contents() -> None:
    features = Features(feature={"a": ints(1)})
    view = features.feature["a"]
    del features.feature["a"]
    view.int64_list.value.append(2)
    assert (len(features.feature), list(view.int64_list.value)) == (0, [1, 2])
    feature = ints(1)
    old = feature.int64_list
    feature.float_list.value.append(0.5)
    old.value.append(2)
    assert feature.WhichOneof("kind") == "float_list"
    assert old.value == [1, 2]


def test_a_kind_that_waits_can_take_the_place_of_another() -> None:
    feature = Feature()
    waiting = feature.int64_list
    feature.float_list.value.append(1)
    waiting.value.append(3)
    assert feature == ints(3)


def test_setting_nothing_is_setting_the_kind() -> None:
    feature = Feature()
    feature.int64_list.value.extend([])
    assert feature.SerializeToString() == b"\x1a\x00"
    feature.ClearField("kind")
    assert feature.WhichOneof("kind") is None
    assert not feature.HasField("kind")
    feature.bytes_list.SetInParent()
    assert (feature.HasField("bytes_list"), "float_list" in feature) == (True, False)


def test_lists_of_values_behave_as_lists() -> None:
    value = Int64List(value=range(5)).value
    value[1:3] = [9]
    assert value == [0, 9, 3, 4]
    value[::2] = [7, 8]
    assert (value[-1], value[1:], len(value)) == (4, [9, 8, 4], 4)
    del value[0]
    value.insert(0, 5)
    value.sort(reverse=True)
    assert (value.pop(), value.pop(0), list(value)) == (4, 9, [8, 5])
    value.remove(8)
    value.MergeFrom([1, 2])
    value.reverse()
    assert (list(value), 5 in value, repr(value)) == ([2, 1, 5], True, "[2, 1, 5]")
    assert np.array(value).tolist() == [2, 1, 5]
    assert copy.deepcopy(value) == [2, 1, 5]
    value.clear()
    assert not value
    with pytest.raises(IndexError):
        value.pop()
    with pytest.raises(IndexError):
        value[0]
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)


def test_lists_of_features_behave_as_lists_of_copies() -> None:
    steps = FeatureList()
    one = ints(1)
    steps.feature.append(one)
    one.int64_list.value.append(9)
    steps.feature.add(int64_list={"value": [2]}).int64_list.value.append(3)
    steps.feature.extend([ints(4)])
    steps.feature.insert(0, ints(0))
    assert [list(f.int64_list.value) for f in steps.feature] == [[0], [1], [2, 3], [4]]
    assert steps.feature.pop() == ints(4)
    del steps.feature[0]
    steps.feature[0].int64_list.value[0] = 5
    steps.feature.sort(key=lambda f: -len(f.int64_list.value))
    assert steps == FeatureList(feature=[ints(2, 3), ints(5)])
    with pytest.raises(TypeError, match="assignment"):
        steps.feature[0] = ints(1)
    with pytest.raises(TypeError, match="Expected a message object"):
        steps.feature.append(3)


def test_maps_behave_as_dicts() -> None:
    feature = Features(feature={"b": ints(2), b"a": ints(1)}).feature
    assert list(feature) == list(feature.keys()) == ["a", "b"]
    assert dict(feature.items()) == feature == {"a": ints(1), "b": ints(2)}
    assert list(feature.values()) == [ints(1), ints(2)]
    assert feature.pop("a") == ints(1)
    assert feature.pop("zz") == Feature()
    assert feature.pop("zz", 1) == Feature()
    assert feature.popitem() == ("b", ints(2))
    with pytest.raises(KeyError):
        del feature["b"]
    with pytest.raises(TypeError):
        feature[1]
    assert 1 not in feature


def test_merging_appends_lists_and_replaces_keys() -> None:
    one, two = Features(feature={"a": ints(1)}), Features(feature={"a": ints(2), "b": ints(3)})
    one.MergeFrom(two)
    assert one == two
    feature = ints(1)
    feature.MergeFrom(ints(2))
    feature.MergeFrom(feature)
    assert feature == ints(1, 2, 1, 2)
    feature.CopyFrom(ints(7))
    feature.CopyFrom(feature)
    assert feature == ints(7)
    with pytest.raises(TypeError, match="same class"):
        feature.MergeFrom(Int64List())


def test_unknown_fields_are_kept_and_written_back() -> None:
    example = Example.FromString(b"\x18\x05" + Example(features=Features()).SerializeToString())
    assert example.SerializeToString() == b"\x0a\x00\x18\x05"
    assert str(example) == "features {\n}\n"
    assert copy.copy(example) == example != Example(features=Features())
    example.DiscardUnknownFields()
    assert example == Example(features=Features())


def test_text_is_that_of_protobuf() -> None:
    lists = FeatureLists(feature_list={"l": FeatureList(feature=[ints(1)])})
    example = SequenceExample(context={"feature": {"é\n": Feature()}}, feature_lists=lists)
    example.context.feature["é\n"].bytes_list.value.append(b"\x00\xff'a")
    assert str(example) == (
        'context {\n  feature {\n    key: "é\\n"\n    value {\n      bytes_list {\n'
        '        value: "\\000\\377\\\'a"\n      }\n    }\n  }\n}\n'
        'feature_lists {\n  feature_list {\n    key: "l"\n    value {\n      feature {\n'
        "        int64_list {\n          value: 1\n        }\n      }\n    }\n  }\n}\n"
    )


def test_messages_pickle_copy_compare_and_do_not_hash() -> None:
    example = Example(features={"feature": {"a": ints(1)}})
    for twin in (pickle.loads(pickle.dumps(example)), copy.deepcopy(example), copy.copy(example)):
        assert twin == example
        twin.features.feature["a"].int64_list.value.append(2)
        assert twin != example
    assert example != 3
    assert Int64List() != Feature()
    assert FloatList(value=[float("nan")]) == FloatList(value=[float("nan")])
    assert FloatList(value=[0.0]) != FloatList(value=[-0.0])
    with pytest.raises(TypeError, match="unhashable"):
        hash(example)


def test_numbers_of_numpy_are_taken() -> None:
    wanted = Int64List(value=[1, 2])
    for values in (
        [np.int8(1), np.uint64(2)],
        np.array([1, 2]),
        np.array([1, 2], np.uint16),
        (n for n in (1, 2)),
        [True, np.array(2)],
        tf.constant([1, 2]),
    ):
        assert Int64List(value=values) == wanted
    halves = FloatList(value=np.array([0.5, 1e40]))
    assert halves.value == [0.5, float("inf")]
    assert FloatList(value=[1, True, np.float16(0.1)]).value == [1, 1, float(np.float16(0.1))]
    assert FloatList(value=[0.1]).value[0] == float(np.float32(0.1))
    assert BytesList(value=np.array([b"a", b"bc"])).value == [b"a", b"bc"]


@pytest.mark.parametrize(
    ("make", "values", "error"),
    [
        (Int64List, [1.0], TypeError),
        (Int64List, ["1"], TypeError),
        (Int64List, [None], TypeError),
        (Int64List, [1 << 63], ValueError),
        (Int64List, np.array([1.0]), TypeError),
        (Int64List, np.array([True]), TypeError),
        (Int64List, np.array([[1]]), TypeError),
        (Int64List, 3, TypeError),
        (FloatList, ["a"], TypeError),
        (FloatList, [np.array([1.0])], TypeError),
        (FloatList, [1j], TypeError),
        (FloatList, [10**400], OverflowError),
        (BytesList, ["a"], TypeError),
        (BytesList, b"ab", TypeError),
        (BytesList, [bytearray(b"a")], TypeError),
        (BytesList, [1], TypeError),
    ],
)
def test_values_that_do_not_fit_are_refused(make: type, values: object, error: type) -> None:
    with pytest.raises(error):
        make(value=values)
    message = make()
    with pytest.raises(error):
        message.value.extend(values)
    assert message.SerializeToString() == b""


def test_names_that_a_message_lacks_are_refused() -> None:
    with pytest.raises(TypeError, match="No positional arguments allowed"):
        Example(Features())
    with pytest.raises(ValueError, match='Protocol message Example has no "foo" field'):
        Example(foo=1)
    with pytest.raises(TypeError, match="expected Features got int"):
        Example(features=3)
    with pytest.raises(TypeError, match="expected Int64List got FloatList"):
        Feature(int64_list=FloatList())
    with pytest.raises(ValueError, match="does not have presence"):
        Int64List().HasField("value")
    with pytest.raises(ValueError, match='no "kind" field'):
        Example().WhichOneof("kind")
    for change in ("features", "foo"):
        with pytest.raises(AttributeError):
            setattr(Example(), change, Features())
    with pytest.raises(UnicodeDecodeError):
        Features(feature={b"\xff": Feature()})
    with pytest.raises(UnicodeEncodeError):
        Features(feature={"\ud800": Feature()})
    assert Example(features=None) == Example()


def test_bytes_that_are_not_a_message_are_a_decode_error_that_names_it() -> None:
    for data in (
        b"\x0a\x7f",
        b"\x07",
        b"\x1c",
        b"\x0a\x03\x0a\x01\xff",
        b"\x8a\x80\x80\x80\x80\x00",
    ):
        with pytest.raises(train.DecodeError, match=r"message with type 'tensorflow\.Example'"):
            Example.FromString(data)
    with pytest.raises(ValueError):
        Example().MergeFromString(b"\x0a")
    with pytest.raises(TypeError, match="expected bytes, str found"):
        Example.FromString("abc")
    assert Example.FromString(memoryview(b"\x0a\x00")) == Example(features=Features())
    assert Example().ParseFromString(b"\x0a\x00") == 2


def test_groups_nest_a_hundred_deep_and_no_further() -> None:
    assert Example.FromString(b"\x1b" * 100 + b"\x1c" * 100).ByteSize() == 200
    with pytest.raises(train.DecodeError):
        Example.FromString(b"\x1b" * 101 + b"\x1c" * 101)
    with pytest.raises(train.DecodeError):
        Example.FromString(b"\x1b" * 1_000_000)


def test_fields_are_listed_by_name_and_number() -> None:
    example = SequenceExample(feature_lists=FeatureLists())
    listed = [(field.name, field.number) for field, _ in example.ListFields()]
    assert listed == [("feature_lists", 2)]
    assert Int64List().ListFields() == []


def test_many_keys_do_not_take_quadratic_time() -> None:
    features = Features()
    for number in range(20_000):
        features.feature[f"{number}"].int64_list.value.append(number)
    assert Features.FromString(features.SerializeToString()) == features
