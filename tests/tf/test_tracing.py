"""What TensorFlow decides by tracing, penstock.tf decides without it: the values of names, and specs."""

# ruff: noqa: B023 -- functions that read a loop's variable are what is tested

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock.tf as tf

SIZE = 1


def of_global(x: Any) -> Any:
    return x + SIZE


def values(dataset: Any) -> list[Any]:
    return [np.asarray(x).tolist() for x in dataset.as_numpy_iterator()]


def bound(t: Any) -> list[Any]:
    """Datasets whose functions use names that change before the datasets are read."""
    global SIZE  # noqa: PLW0603 -- that is what is tested
    made, counts = [], t.data.Dataset.range(3)
    for i in range(2):
        made += [
            counts.map(lambda x: x * 10 + i),
            counts.filter(lambda x: x != i),
            counts.flat_map(lambda x: t.data.Dataset.from_tensors(x + i)),
            counts.map(partial(lambda x, y: x + y + i, y=5)),
            counts.scan(np.int64(0), lambda s, x: (s + x, s + x * i)),
            counts.take_while(lambda x: x < i + 1),
            counts.group_by_window(lambda x: x % (i + 1), lambda k, w: w.batch(3), 3),
        ]
        SIZE = i + 1
        made.append(counts.map(of_global))
    step = 2
    made.append(counts.map(lambda x: x * step))
    step = 3
    SIZE = 100
    return [values(dataset) for dataset in made]


def test_functions_keep_the_values_that_names_had() -> None:
    assert bound(tf) == bound(tensorflow)


def test_what_a_function_assigns_stays_shared() -> None:
    seen, count = [], 0

    def noted(x: Any) -> Any:
        nonlocal count
        count += 1
        seen.append(int(x))
        return x

    assert values(tf.data.Dataset.range(3).map(noted)) == [0, 1, 2]
    assert (count, seen) == (4, [0, 1, 2])  # the first call is made with a stand-in


def example(t: Any) -> Any:
    return t.data.Dataset.from_tensor_slices([b""]).take(0)


FEATURES = {
    "jpeg": lambda t: t.io.FixedLenFeature([], t.string),
    "box": lambda t: t.io.VarLenFeature(t.float32),
    "n": lambda t: t.io.FixedLenFeature([2], t.int64),
    "rows": lambda t: t.io.RaggedFeature(t.int64),
    "steps": lambda t: t.io.FixedLenSequenceFeature([3], t.float32, allow_missing=True),
}


def parsed(t: Any) -> Any:
    features = {key: kind(t) for key, kind in FEATURES.items()}
    return example(t).map(
        lambda r: {**t.io.parse_single_example(r, features), "one": t.constant(1)}
    )


def image(t: Any, x: Any) -> Any:
    return t.io.decode_jpeg(x["jpeg"], channels=3)


SPECS: dict[str, Any] = {
    "parsed": parsed,
    "decoded": lambda t: parsed(t).map(lambda x: image(t, x)),
    "of any format": lambda t: parsed(t).map(lambda x: t.io.decode_image(x["jpeg"])),
    "one frame": lambda t: parsed(t).map(
        lambda x: t.io.decode_image(x["jpeg"], expand_animations=False)
    ),
    "resized": lambda t: parsed(t).map(lambda x: t.image.resize(image(t, x), [7, 9])).batch(2),
    "shaped": lambda t: parsed(t).map(lambda x: t.reshape(image(t, x), [64, 64, 3])).batch(2, True),
    "cropped": lambda t: parsed(t).map(lambda x: t.image.random_crop(image(t, x), [8, 8, 3])),
    "dense": lambda t: parsed(t).map(lambda x: t.sparse.to_dense(x["box"])),
    "by a size read": lambda t: parsed(t).map(lambda x: t.zeros([x["n"][0], 4])),
    "raw": lambda t: parsed(t).map(lambda x: t.io.decode_raw(x["jpeg"], t.uint8)),
    "split": lambda t: example(t).map(lambda x: t.strings.split(x, ",")),
    "split of several": lambda t: example(t).batch(2).map(t.strings.split),
    "number": lambda t: example(t).map(t.strings.to_number),
    "one of two": lambda t: parsed(t).map(
        lambda x: t.cond(x["n"][0] > 1, lambda: t.zeros([3]), lambda: t.zeros([5]))
    ),
    "of Python": lambda t: example(t).map(lambda x: t.numpy_function(lambda s: s, [x], t.float32)),
    "of Python, with a shape": lambda t: example(t).map(
        lambda x: t.ensure_shape(t.numpy_function(lambda s: s, [x], t.float32), [None, 3])
    ),
    "flattened": lambda t: parsed(t).flat_map(
        lambda x: t.data.Dataset.from_tensor_slices(x["steps"])
    ),
    "padded": lambda t: parsed(t).map(lambda x: image(t, x)).padded_batch(4),
    "csv": lambda t: example(t).map(lambda x: t.io.decode_csv(x, [0, 1.0, ""])),
    "windows": lambda t: t.data.Dataset.range(0).window(3).flat_map(lambda w: w.batch(3)),
    "stacked in a loop": lambda t: parsed(t).map(
        lambda x: t.map_fn(lambda s: t.io.decode_png(s, 1), t.stack([x["jpeg"]]), t.uint8)[..., 0]
    ),
    "groups": lambda t: t.data.Dataset.range(0).group_by_window(
        lambda x: x, lambda k, w: w.batch(4), 4
    ),
    "scanned": lambda t: parsed(t).scan(0, lambda s, x: (s + 1, image(t, x)[..., 0])),
    "sums": lambda t: parsed(t).map(lambda x: (t.reduce_sum(x["steps"], 0), t.size(x["rows"]))),
}


@pytest.mark.parametrize("name", SPECS)
def test_specs_of_empty_datasets_are_tensorflows(name: str) -> None:
    ours, theirs = (SPECS[name](t).element_spec for t in (tf, tensorflow))
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        ours, theirs = ([spec[key] for key in sorted(spec)] for spec in (ours, theirs))
    assert str(ours) == str(theirs)


def test_specs_of_parts_of_windows_are_tensorflows() -> None:
    def specs(t: Any) -> list[str]:
        slices = t.data.Dataset.from_tensor_slices
        columns, flat = np.zeros((40, 1), np.float32), np.zeros(40, np.int64)
        found = []
        for values in (columns, flat, np.zeros((40, 3, 5), np.uint8)):
            windows = slices(values).window(7, shift=1, drop_remainder=True)
            batches = windows.flat_map(lambda w: w.batch(7))
            found.append(batches.map(lambda w: (w[:-1], w[-1], w[6], w[2:4])).batch(4).element_spec)
            if values.ndim > 1:
                found.append(batches.map(lambda w: (w[3, 0], w[:, 0], w[..., 0])).element_spec)
        return [str(spec).replace("tf.", "") for spec in found]

    assert specs(tf) == specs(tensorflow)


def test_a_function_that_needs_values_is_called_with_the_first_two() -> None:
    dataset = tf.data.Dataset.range(2, 4).map(lambda n: np.zeros([int(n), 3][: 1 + int(n > 9)]))
    assert dataset.element_spec.shape.as_list() == [None]

    def strict(x: Any) -> Any:
        if bytes(x.numpy()) not in {b"a", b"b"}:
            raise ValueError(x)
        return tf.zeros([4])

    texts = tf.data.Dataset.from_tensor_slices([b"a", b"b"])
    assert texts.map(strict).element_spec == tf.TensorSpec([4], tf.float32)


def test_specs_draw_no_random_numbers() -> None:
    def drawn(asks: bool) -> list[Any]:
        tf.random.set_seed(3)
        dataset = tf.data.Dataset.range(3).map(lambda x: tf.random.uniform([], seed=5))
        if asks:
            assert dataset.element_spec.shape == ()
        return values(dataset)

    assert drawn(True) == drawn(False)
    tf.random.set_seed(None)


def test_types_and_shapes_are_given_as_in_tensorflow_1() -> None:
    def said(t: Any) -> list[str]:
        dataset = t.data.Dataset.from_tensor_slices({"a": [[1, 2]], "b": ["x"]})
        v1 = t.compat.v1.data
        found = [v1.get_output_types(dataset), v1.get_output_shapes(dataset)]
        first = v1.make_one_shot_iterator(dataset).get_next()
        return [str(part) for part in (*found, first["b"].numpy())]

    assert said(tf) == said(tensorflow)


def test_saved_elements_come_back(tmp_path: Any) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(
        {"a": np.arange(6).reshape(3, 2), "s": ["x", "", "é"]}
    ).map(lambda x: (x["a"], x["s"], tf.SparseTensor([[1]], [x["a"][0]], [4])))
    path = str(tmp_path / "saved")
    dataset.save(path, "GZIP")
    loaded = tf.data.Dataset.load(path)
    assert loaded.element_spec == dataset.element_spec
    assert len(loaded) == 3
    for mine, first in zip(loaded, dataset, strict=True):
        assert mine[0].numpy().tolist() == first[0].numpy().tolist()
        assert mine[1] == first[1]
        assert (
            tf.sparse.to_dense(mine[2]).numpy().tolist()
            == tf.sparse.to_dense(first[2]).numpy().tolist()
        )
    with pytest.raises(tf.errors.NotFoundError, match="penstock"):
        tf.data.Dataset.load(str(tmp_path / "none"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("kept")
    with pytest.raises(tf.errors.AlreadyExistsError):
        dataset.save(str(tmp_path / "other"))


def test_a_snapshot_is_written_once(tmp_path: Any) -> None:
    calls = []
    dataset = (
        tf.data.Dataset.range(3).map(lambda x: calls.append(1) or x).snapshot(str(tmp_path / "s"))
    )
    assert values(dataset) == values(dataset) == [0, 1, 2]
    before = len(calls)
    values(dataset)
    assert len(calls) == before


def test_resampled_classes_are_as_frequent_as_wanted() -> None:
    dataset = tf.data.Dataset.from_tensor_slices([0] * 900 + [1] * 100).shuffle(1000, seed=1)
    classes = [
        int(c) for c, _ in dataset.rejection_resample(lambda x: x, [0.5, 0.5], [0.9, 0.1], seed=2)
    ]
    assert 0.4 < np.mean(classes) < 0.6


def csv_files(t: Any, path: str) -> list[Any]:
    rows = t.data.experimental.CsvDataset(path, [t.int32, [0.5], ""], header=True)
    made = t.data.experimental.make_csv_dataset(
        path, 2, label_name="c", num_epochs=1, shuffle=False
    )
    found: list[Any] = [
        str(rows.element_spec),
        [[np.asarray(v).tolist() for v in row] for row in rows],
    ]
    for features, label in made:
        found.append([{k: v.numpy().tolist() for k, v in features.items()}, label.numpy().tolist()])
    return found


def test_csv_files_are_tensorflows(tmp_path: Any) -> None:
    path = str(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").write_text('a,b,c\n1,2.5,x\n2,,"y, z"\n3,1e3,\n')
    assert csv_files(tf, path) == csv_files(tensorflow, path)


QUOTED = [
    '1,"a\nb"\n2,c\n', '1,"a\r\nb"\r\n2,c\r\n', '1,"a\rb"\n2,c\r3,d\n', '1,"a""\n""b"\n2,x', 'h,"x\ny"\n1,a\n',
    '1,"a\n\nb"\n\n2,c', '1,"a\nb","c\nd"\n2,c\n', '1,"a\nb', '1,a"b\n2,c\n', '1,"abc\n2,"d\ne"\n', "1,a\r\r\n2,b\n",
]  # fmt: skip


@pytest.mark.parametrize("text", QUOTED)
def test_a_quoted_field_may_have_line_ends(text: str, tmp_path: Any) -> None:
    path = str(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").write_bytes(text.encode())

    def rows(t: Any, **how: Any) -> list[Any]:
        found: list[Any] = []
        try:
            for number, word in t.data.experimental.CsvDataset(path, [t.int32, t.string], **how):
                found.append((int(number), word.numpy()))
        except t.errors.InvalidArgumentError:
            found.append("refused")
        return found

    for how in ({}, {"header": True}, {"use_quote_delim": False}):
        assert rows(tf, **how) == rows(tensorflow, **how)


def test_a_table_of_texts_with_line_ends_is_tensorflows(tmp_path: Any) -> None:
    path = str(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").write_text('a,"b\nb",c\n1,"2\n3",x\n2,,"y\n z"\n3,1e3,\n')
    found = [
        [(name, part.numpy().tolist()) for batch in made for name, part in batch.items()]
        for t in (tf, tensorflow)
        for made in [t.data.experimental.make_csv_dataset(path, 2, num_epochs=1, shuffle=False)]
    ]
    assert found[0] == found[1]


def test_rows_of_batches_are_joined_again_without_a_loop_over_rows() -> None:
    def found(t: Any) -> list[Any]:
        rows = t.data.Dataset.from_tensor_slices(
            {"a": np.arange(12).reshape(4, 3), "s": [["x", "y", "z"]] * 4}
        )
        dataset = rows.map(lambda x: (x["a"] + 1, x["s"])).unbatch().batch(5)
        return [(a.numpy().tolist(), s.numpy().tolist()) for a, s in dataset]

    assert found(tf) == found(tensorflow)


def test_rows_of_elements_of_different_sizes_are_taken() -> None:
    def found(t: Any) -> list[Any]:
        sizes = t.data.Dataset.range(4).map(t.range)
        return [
            values(sizes.unbatch()),
            values(sizes.unbatch().batch(4)),
            values(sizes.take(0).unbatch()),
        ]

    assert found(tf) == found(tensorflow)


def test_a_slow_function_is_called_on_threads() -> None:
    names: set[str] = set()

    def noted(x: Any) -> Any:
        names.add(threading.current_thread().name)
        time.sleep(0.002)
        return x + 1

    assert values(tf.data.Dataset.range(40).map(noted, num_parallel_calls=2)) == [*range(1, 41)]
    assert names - {threading.current_thread().name}


def test_maps_on_threads_that_follow_one_another_keep_order_and_errors() -> None:
    def found(t: Any) -> list[Any]:
        made = t.data.Dataset.range(9).map(lambda x: x * 2, 2).map(lambda x: 100 // (x - 6), 2)
        return values(made.map(lambda x: x + 1, 2).take(3)), values(
            made.apply(t.data.experimental.ignore_errors())
        )

    assert found(tf)[0] == found(tensorflow)[0]


def rows_above(t: Any, x: Any) -> Any:
    """Write values of some rows, as programs for YOLO do: how many is not known before."""
    places, values = (t.TensorArray(kind, 1, dynamic_size=True) for kind in (t.int32, t.float32))
    count = 0
    for row in range(2):
        if x[row][0] > 3:
            places, values = places.write(count, [row, 1]), values.write(count, x[row][0])
            count += 1
    return t.tensor_scatter_nd_update(t.zeros((t.shape(x)[0], 2)), places.stack(), values.stack())


def test_specs_do_not_claim_sizes_of_placeholders() -> None:
    long = tf.data.Dataset.from_tensors(np.zeros(9000, np.float32)).repeat(1)
    long = tf.data.Dataset.from_generator(
        lambda: iter(long), output_signature=tf.TensorSpec([None], tf.float32)
    )
    heard = long.map(lambda x: tf.abs(tf.signal.stft(x[:8000], 1024, 256)))
    assert heard.element_spec.shape.as_list() == [None, 513]
    assert long.map(lambda x: x[100:]).element_spec.shape.as_list() == [None]


def test_specs_do_not_claim_the_size_of_the_first_batches() -> None:
    batches = tf.data.Dataset.from_tensor_slices(np.arange(20.0, dtype="f4").reshape(10, 2)).batch(
        4
    )
    assert batches.map(lambda x: rows_above(tf, x)).element_spec.shape.as_list() == [None, 2]

    def untraced(x: Any) -> Any:
        values = np.frombuffer(x.numpy().tobytes(), "f4")
        if not values.any() or len(values) > 8:
            raise ValueError("a placeholder")
        return tf.constant(np.concatenate([values, values]).reshape(-1, 2))

    assert batches.map(untraced).element_spec.shape.as_list() == [None, 2]
