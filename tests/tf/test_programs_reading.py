"""The programs of examples/ that read: with penstock.tf and with TensorFlow, they give the same values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import program

import penstock as ps
import penstock.tf as tf

COUNT = 100
LABELS = [i % 10 for i in range(COUNT)]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with images, files with one record for each, plain and compressed, and shards of these files."""
    folder = str(tmp_path_factory.mktemp("written"))
    program("sample_images").main(folder, COUNT)
    program("write_images").main(folder, LABELS)
    program("write_gzip").main(folder, LABELS)
    (Path(folder) / "shards").mkdir()
    ps.write(
        ps.open(f"{folder}/data.tfrecord", index="never"),
        f"{folder}/shards/train-{{shard:05d}}.tfrecord",
        shard_records=30,
        index=False,
    )
    return folder


def in_tensorflow(name: str) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    pytest.importorskip("tensorflow")
    return program(name, tensorflow=True)


def by_image(dataset: Any) -> list[tuple[int, np.ndarray]]:
    """Labels and images of all batches, sorted, because batches are shuffled."""
    found = [
        (int(label), picture)
        for pictures, labels in dataset
        for label, picture in zip(labels.numpy(), pictures.numpy(), strict=True)
    ]
    return sorted(found, key=lambda pair: (pair[0], pair[1].sum(dtype=np.float64)))


def same_pictures(ours: Any, theirs: Any) -> None:
    a, b = by_image(ours), by_image(theirs)
    assert [label for label, _ in a] == [label for label, _ in b]
    for (_, one), (_, other) in zip(a, b, strict=True):
        assert one.shape == other.shape == (224, 224, 3)
        assert one.dtype == other.dtype == np.float32
        # The decoders may differ by a step or two of 255.
        np.testing.assert_allclose(one, other, atol=4 / 255)


def test_two_records_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for module in (program("hello_records"), in_tensorflow("hello_records")):
        module.main(str(tmp_path))
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].splitlines()[0] == "tf.Tensor(b'Record A', shape=(), dtype=string)"


def test_images_are_parsed_decoded_resized_and_batched_as_in_tensorflow(written: str) -> None:
    ours, theirs = program("read_images"), in_tensorflow("read_images")
    same_pictures(ours.dataset(written), theirs.dataset(written))
    sizes = [len(labels) for _, labels in ours.dataset(written)]
    assert sizes == [32, 32, 32, 4]


def test_the_programs_that_print_run(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    program("read_images").main(written)
    assert capsys.readouterr().out.splitlines()[0] == "(32, 224, 224, 3) (32,)"
    program("read_shards").main(written)
    assert capsys.readouterr().out == f"{COUNT} records\n"
    program("train_pipeline").main(written)
    assert capsys.readouterr().out.splitlines() == [
        f"epoch {epoch} has {COUNT} images" for epoch in range(2)
    ]


def test_shards_are_interleaved_to_the_same_records(written: str) -> None:
    ours = sorted(record.numpy() for record in program("read_shards").dataset(written))
    theirs = sorted(record.numpy() for record in in_tensorflow("read_shards").dataset(written))
    assert ours == theirs
    assert len(ours) == COUNT


def test_compressed_images_are_cached_and_shuffled_in_each_epoch(written: str) -> None:
    files = [f"{written}/data.tfrecord.gz"]
    ours = program("train_pipeline").dataset(files)
    first, second = ([label for _, labels in ours for label in labels.numpy()] for _ in range(2))
    assert sorted(first) == sorted(second) == sorted(LABELS)
    assert first != second
    same_pictures(ours, in_tensorflow("train_pipeline").dataset(files))


def test_batched_features_train_a_model(tmp_path: Path) -> None:
    history = program("batched_features").main(str(tmp_path)).history
    assert len(history["loss"]) == 2
    assert all(np.isfinite(loss) for loss in history["loss"])


def test_batched_features_equal_tensorflows(tmp_path: Path) -> None:
    module, theirs = program("batched_features"), in_tensorflow("batched_features")
    paths = module.write(str(tmp_path))

    def rows(dataset: Any) -> list[tuple[int, tuple[float, ...], int]]:
        found = []
        for features, labels in dataset.take(4):
            assert list(features) == ["float_col", "int_col"] or set(features) == {
                "float_col",
                "int_col",
            }
            columns = (features["int_col"], features["float_col"], labels)
            for number, floats, label in zip(*(c.numpy() for c in columns), strict=True):
                found.append((int(number), tuple(floats.tolist()), int(label)))
        return sorted(found)

    assert rows(module.dataset(paths)) == rows(theirs.dataset(paths))


def inputs(folder: Path) -> list[bytes]:
    """A file input.tfrecord of images without labels."""
    records = [
        tf.train.Example(
            features={"feature": {"image": {"bytes_list": {"value": [b"image %d" % i]}}}}
        ).SerializeToString()
        for i in range(COUNT)
    ]
    with tf.io.TFRecordWriter(folder / "input.tfrecord") as writer:
        for record in records:
            writer.write(record)
    return records


def outputs(folder: Path) -> list[Any]:
    return ps.open(str(folder / "output.tfrecord"), index="never")[:].to_pylist()


def test_a_field_is_appended_as_in_tensorflow(tmp_path: Path) -> None:
    inputs(tmp_path)
    program("append_field").main(str(tmp_path))
    ours = outputs(tmp_path)
    assert ours == [{"image": b"image %d" % i, "label": b"somelabel"} for i in range(COUNT)]
    in_tensorflow("append_field").main(str(tmp_path))
    assert outputs(tmp_path) == ours


def test_a_field_of_another_type_is_appended_where_protobuf_refuses(tmp_path: Path) -> None:
    inputs(tmp_path)
    program("append_integer_field").main(str(tmp_path))
    assert outputs(tmp_path) == [{"height": 256, "image": b"image %d" % i} for i in range(COUNT)]
    with pytest.raises(ValueError, match="may not be assigned"):
        in_tensorflow("append_integer_field").main(str(tmp_path))


def test_a_field_is_appended_on_several_threads_where_tensorflow_traces(tmp_path: Path) -> None:
    inputs(tmp_path)
    program("append_field_parallel").main(str(tmp_path))
    assert outputs(tmp_path) == [
        {"image": b"image %d" % i, "label": b"somelabel"} for i in range(COUNT)
    ]
    with pytest.raises(AttributeError, match="numpy"):
        in_tensorflow("append_field_parallel").main(str(tmp_path))
