"""The loader: order, batches, resume, ranks, threads."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

COUNT = 1000


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loader") / "numbers.tfrecord"
    lists = [list(range(n % 5)) for n in range(COUNT)]
    columns = {
        "id": pa.array(range(COUNT)),
        "score": pa.array(np.arange(COUNT, dtype=np.float32)),
        "name": pa.array([f"n{n}".encode() for n in range(COUNT)]),
        "words": pa.array(lists, pa.list_(pa.int64())),
    }
    ps.write(pa.table(columns), path)
    return path


def ids(loader: ps.Loader) -> list[int]:
    return [int(n) for batch in loader for n in batch["id"]]


def test_one_loop_is_one_epoch_and_the_next_is_another(numbers: Path) -> None:
    loader = ps.Loader(ps.open(numbers), 64, order=ps.Shuffled(seed=3))
    first, second = ids(loader), ids(loader)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second
    assert first == ps.Shuffled(3).take(COUNT, 0, 0, COUNT).tolist()
    assert second == ps.Shuffled(3).take(COUNT, 1, 0, COUNT).tolist()
    assert loader.epoch == 2


@pytest.mark.parametrize("threads", [0, 1, 3, 8])
def test_threads_change_nothing(numbers: Path, threads: int) -> None:
    loader = ps.Loader(ps.open(numbers), 7, order=ps.Shuffled(seed=3), threads=threads)
    assert ids(loader) == ps.Shuffled(3).take(COUNT, 0, 0, COUNT).tolist()


def test_batches_are_numpy_arrays_that_can_be_written_to(numbers: Path) -> None:
    batch = next(iter(ps.Loader(ps.open(numbers), 8)))
    assert batch["id"].dtype == np.int64
    assert batch["score"].dtype == np.float32
    assert batch["name"].tolist() == [f"n{n}".encode() for n in range(8)]
    values, offsets = batch["words"]
    assert offsets.tolist() == [0, 0, 1, 3, 6, 10, 10, 11, 13]
    assert values[3:6].tolist() == [0, 1, 2]
    batch["id"][:] = 0
    values[:] = 0


def test_ragged_columns_are_padded_or_listed_on_request(numbers: Path) -> None:
    padded = next(iter(ps.Loader(ps.open(numbers), 4, ragged="pad")))["words"]
    assert padded.tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 2]]
    listed = next(iter(ps.Loader(ps.open(numbers), 4, ragged={"words": "list"})))["words"]
    assert [one.tolist() for one in listed] == [[], [0], [0, 1], [0, 1, 2]]


def test_a_state_continues_at_the_position_of_the_loop(numbers: Path) -> None:
    whole = [b["id"].tolist() for b in ps.Loader(ps.open(numbers), 64, order=ps.Shuffled(1))]
    for step in range(len(whole)):
        loader = ps.Loader(ps.open(numbers), 64, order=ps.Shuffled(1))
        iterator = iter(loader)
        for _ in range(step):
            next(iterator)
        text = json.dumps(loader.state_dict())
        assert len(text) < 1024
        other = ps.Loader(ps.open(numbers), 64, order=ps.Shuffled(1))
        other.load_state_dict(json.loads(text))
        assert [b["id"].tolist() for b in other] == whole[step:]
        assert len(ids(other)) == COUNT
        iterator.close()


def test_a_state_after_the_last_batch_is_the_next_epoch(numbers: Path) -> None:
    loader = ps.Loader(ps.open(numbers), 64)
    for _ in loader:
        state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)
    assert loader.state_dict() == state


def test_set_epoch_keeps_the_position_in_the_epoch_of_a_loaded_state(numbers: Path) -> None:
    loader = ps.Loader(ps.open(numbers), 64, order=ps.Shuffled(1))
    next(iter(loader))
    other = ps.Loader(ps.open(numbers), 64, order=ps.Shuffled(1))
    other.load_state_dict(loader.state_dict())
    other.set_epoch(0)
    assert len(ids(other)) == COUNT - 64
    other.set_epoch(5)
    assert ids(other) == ps.Shuffled(1).take(COUNT, 5, 0, COUNT).tolist()


def test_a_state_of_other_data_is_refused(numbers: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tfrecord"
    ps.write({"id": np.arange(COUNT)}, other)
    state = ps.Loader(ps.open(other), 64).state_dict()
    loader = ps.Loader(ps.open(numbers), 64)
    with pytest.raises(ps.StateError, match="other data"):
        loader.load_state_dict(state)
    with pytest.raises(ps.StateError, match="another order"):
        loader.load_state_dict(ps.Loader(ps.open(numbers), 64, order=ps.Shuffled(0)).state_dict())
    good = loader.state_dict()
    for wrong in (
        {"version": 2},
        {"epoch": -1},
        {"position": COUNT + 1},
        {"position": True},
        {"epoch": None},
    ):
        with pytest.raises(ps.StateError):
            loader.load_state_dict({**good, **wrong})
    with pytest.raises(ps.StateError, match="dict"):
        loader.load_state_dict([])  # pyright: ignore[reportArgumentType]


def test_ranks_share_an_epoch_and_any_rank_can_load_the_state_of_any(numbers: Path) -> None:
    def loader(rank: int, world_size: int) -> ps.Loader:
        order = ps.Shuffled(seed=5)
        return ps.Loader(ps.open(numbers), 10, order=order, rank=rank, world_size=world_size)

    expected = ps.Shuffled(5).take(COUNT, 0, 0, COUNT).tolist()
    loaders = [loader(rank, 4) for rank in range(4)]
    four = [iter(one) for one in loaders]
    seen = [n for _ in range(5) for one in four for n in next(one)["id"].tolist()]
    assert seen == expected[:200]
    states = [one.state_dict() for one in loaders]
    assert all(state == states[0] for state in states)
    three = [loader(rank, 3) for rank in range(3)]
    for one in three:
        one.load_state_dict(states[2])
    rest = [b["id"].tolist() for batches in zip(*three, strict=True) for b in batches]
    assert [n for one in rest for n in one][:800] == expected[200:]


def test_padding_is_masked(numbers: Path) -> None:
    loaders = [
        ps.Loader(ps.open(numbers), 64, uneven="pad", rank=rank, world_size=3) for rank in range(3)
    ]
    seen = [n for one in loaders for b in one for n in b["id"][b["mask"]].tolist()]
    assert sorted(seen) == list(range(COUNT))
    assert {len(b["id"]) for one in loaders for b in one} == {64}


def test_a_function_sees_whole_batches_or_records_and_their_keys(numbers: Path) -> None:
    def double(batch: dict[str, Any]) -> dict[str, Any]:
        return {"twice": batch["id"] * 2}

    def one(record: dict[str, Any], keys: int) -> dict[str, Any]:
        rng = np.random.default_rng(int(keys))
        return {"id": record["id"], "noise": rng.normal(), "text": record["name"].decode()}

    ds = ps.open(numbers)
    assert next(iter(ps.Loader(ds, 3, map=double)))["twice"].tolist() == [0, 2, 4]
    noise: list[dict[int, float]] = []
    for threads, batch_size, order in ((0, 16, ps.Shuffled(1)), (4, 100, ps.Sequential())):
        loader = ps.Loader(ds, batch_size, order=order, map_records=one, threads=threads, seed=9)
        found: dict[int, float] = {}
        for batch in loader:
            found.update(zip(batch["id"].tolist(), batch["noise"].tolist(), strict=True))
            assert batch["text"][0] == f"n{batch['id'][0]}"
        noise.append(found)
    assert noise[0] == noise[1]


def test_an_error_of_the_users_function_reaches_the_loop(numbers: Path) -> None:
    def wrong(batch: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        next(iter(ps.Loader(ps.open(numbers), 3, map=wrong)))


def test_a_missing_number_is_an_error_or_filled(tmp_path: Path) -> None:
    path = tmp_path / "gaps.tfrecord"
    ps.write({"id": pa.array([1, None, 3])}, path)
    with pytest.raises(ps.SchemaError, match=r"missing.*") as caught:
        next(iter(ps.Loader(ps.open(path), 3)))
    assert (caught.value.field, caught.value.record) == ("id", 1)
    assert next(iter(ps.Loader(ps.open(path), 3, fill={"id": -1})))["id"].tolist() == [1, -1, 3]


def test_several_datasets_are_laid_end_to_end(numbers: Path, tmp_path: Path) -> None:
    other = tmp_path / "more.npz"
    ps.write({"id": np.arange(1000, 1100), "extra": np.zeros(100)}, other)
    sets = {"a": ps.open(numbers), "b": ps.open(other)}
    loader = ps.Loader(sets, 100, columns=["id"])
    assert ids(loader) == list(range(1100))
    assert list(next(iter(loader))) == ["id"]


def test_damaged_records_are_errors_or_skipped_and_named(numbers: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.tfrecord"
    data = bytearray(numbers.read_bytes())
    ds = ps.open(numbers)
    place = data.index(b"n500")
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(ps.ChecksumError, match="record 500"):
        ids(ps.Loader(ps.open(path), 64))
    loader = ps.Loader(ps.open(path, damage="skip"), 64, order=ps.Shuffled(2))
    expected = [n for n in ps.Shuffled(2).take(COUNT, 0, 0, COUNT).tolist() if n != 500]
    assert ids(loader) == expected
    assert len(loader.damage) == 1
    assert loader.stats().num_skipped == 1
    stopped = ps.Loader(ps.open(path, damage="stop"), 64)
    assert ids(stopped) == list(range(500))
    assert len(ds) == COUNT


def test_loader_and_state_pickle(numbers: Path) -> None:
    loader = ps.Loader(ps.open(numbers), 64, order=ps.Shuffled(1))
    next(iter(loader))
    other = pickle.loads(pickle.dumps(loader))
    assert other.state_dict() == loader.state_dict()
    assert next(iter(other))["id"].tolist() == ps.Shuffled(1).take(COUNT, 1, 0, 64).tolist()


def test_stats_report_where_the_time_went(numbers: Path) -> None:
    loader = ps.Loader(ps.open(numbers), 64)
    assert "Nothing" in loader.stats().bottleneck
    ids(loader)
    stats = loader.stats()
    assert (stats.num_batches, stats.num_records) == (len(loader), COUNT)
    assert stats.num_bytes > COUNT * 8
    assert all(seconds >= 0 for seconds in stats.stage_seconds.values())
    assert stats.bottleneck in " ".join(str(stats).split())


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"batch_size": 0}, ValueError),
        ({"rank": 2, "world_size": 2}, ValueError),
        ({"threads": -1}, ValueError),
        ({"uneven": "x"}, ValueError),
        ({"columns": ["nothing"]}, ps.SchemaError),
        ({"decode": {"nothing": lambda column: column}}, ps.SchemaError),
        ({"fill": {"nothing": 1}}, ps.SchemaError),
        ({"ragged": {"nothing": "pad"}}, ps.SchemaError),
        ({"columns": "id"}, TypeError),
        ({"columns": ["id", "id"]}, ValueError),
        ({"order": ps.Shuffled}, TypeError),
        ({"order": "shuffled"}, TypeError),
        ({"map": 3}, TypeError),
        ({"decode": {"id": "jpeg"}}, TypeError),
        ({"decode": ps.Image()}, TypeError),
        ({"processes": -1}, ValueError),
        ({"memory_bytes": 0}, ValueError),
        ({"ragged": "x"}, ValueError),
        ({"ragged": {"words": "x"}}, ValueError),
        ({"record_numbers": 3}, TypeError),
        ({"cache": "memory", "cache_bytes": -1}, ValueError),
    ],
)
def test_a_loader_refuses_invalid_arguments(
    numbers: Path, wrong: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ps.Loader(ps.open(numbers), **{"batch_size": 4, **wrong})


COUNTS = ("batch_size", "world_size", "rank", "threads", "processes", "memory_bytes", "cache_bytes")


@pytest.mark.parametrize("word", COUNTS)
@pytest.mark.parametrize("value", [2.5, 1e9, "4", True])
def test_an_argument_that_is_not_a_whole_number_is_named(
    numbers: Path, word: str, value: Any
) -> None:
    with pytest.raises(TypeError, match=f"{word} is a whole number, not"):
        ps.Loader(ps.open(numbers), **{"batch_size": 4, word: value})


def test_a_missing_number_is_named_by_its_record_and_file(tmp_path: Path) -> None:
    path = tmp_path / "gap.tfrecord"
    ps.write({"id": pa.array([None if n == 37 else n for n in range(60)])}, path)
    with pytest.raises(ps.SchemaError) as caught:
        ids(ps.Loader(ps.open(path), 10, order=ps.Shuffled(3)))
    assert (caught.value.file, caught.value.record, caught.value.field) == (str(path), 37, "id")


def test_a_batch_without_readable_records_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "bad.tfrecord"
    ps.write({"id": np.arange(30), "text": [f"n{n:03}".encode() for n in range(30)]}, path)
    data = bytearray(path.read_bytes())
    for number in range(10, 20):
        data[data.index(f"n{number:03}".encode())] ^= 1
    path.write_bytes(data)
    ds = ps.open(path, damage="skip")
    loader = ps.Loader(ds, 10)
    assert [batch["id"].tolist() for batch in loader] == [[*range(10)], [*range(20, 30)]]
    assert loader.epoch == 1
    # Otherwise, other ranks would wait for this one.
    steps = [len(b["id"]) for b in ps.Loader(ds, 5, rank=0, world_size=2)]
    assert steps == [5, 0, 5]
    with pytest.raises(ValueError, match="stop"):
        ps.Loader(ps.open(path, damage="stop"), 5, rank=0, world_size=2)


def test_images_of_a_tfrecord_and_of_a_tar_mix(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 20, 30, 3), np.uint8)
    ps.write(
        {"image": ps.encode_images(pixels, "png"), "id": np.arange(6)}, tmp_path / "a.tfrecord"
    )
    table = pa.table({"image": ps.encode_images(pixels, "png"), "id": np.arange(6)})
    ps.write(table, tmp_path / "c.arrow")
    sets = [ps.open(tmp_path / name) for name in ("a.tfrecord", "c.arrow")]
    for data in (sets, sets[::-1]):
        loader = ps.Loader(data, 12, decode={"image": ps.Image()})
        batch = next(iter(loader))
        assert (batch["image"] == np.concatenate([pixels, pixels])).all()
    with pytest.raises(ValueError, match="need the same damage mode"):
        ps.Loader([sets[0], ps.open(tmp_path / "c.arrow", damage="skip")], 4)
    with pytest.raises(TypeError, match="str"):
        ps.Loader([sets[0], "c.arrow"], 4)
    with pytest.raises(ps.RecordIndexError):
        ps.Loader(sets, 4).locate(12)
    assert ps.Loader(sets, 4).locate(np.int64(7)) == (str(tmp_path / "c.arrow"), 1)


@pytest.mark.parametrize("threads", [0, 2])
def test_padded_batches_are_full_even_if_records_are_damaged(threads: int, tmp_path: Path) -> None:
    """One record is damaged, one image cannot be decoded, and one batch is lost completely."""
    pixels = np.zeros((50, 8, 8, 3), np.uint8)
    images = ps.encode_images(list(pixels), "png").storage.to_pylist()
    images[20] = b"no image"
    path = tmp_path / "images.tfrecord"
    ps.write({"image": images, "text": [f"text {n}" for n in range(50)]}, path)
    path.write_bytes(path.read_bytes().replace(b"text 33", b"text 34"))
    ds = ps.open(path, damage="skip")
    order = ps.Shuffled(5)

    def keyed(batch: dict[str, Any], keys: np.ndarray) -> dict[str, Any]:
        return {**batch, "keys": keys}

    ranks = [
        ps.Loader(
            *(ds, 7),
            order=order,
            uneven="pad",
            decode={"image": ps.Image(4)},
            map=keyed,
            record_numbers="n",
            rank=rank,
            world_size=2,
            threads=threads,
        )
        for rank in range(2)
    ]
    seen: list[int] = []
    for step in zip(*ranks, strict=True):
        for batch in step:
            assert {len(column) for column in batch.values()} == {7}
            assert batch["text"].tolist() == [f"text {n}" for n in batch["n"]]
            assert len(set(batch["keys"])) == len(set(batch["n"]))
            seen += batch["n"][batch["mask"]].tolist()
    assert seen == [n for n in order.take(50, 0, 0, 50).tolist() if n not in (20, 33)]
    assert len({region.reason for region in ds.damage}) == 2
    one = ps.Loader(ds, 50, order=order, uneven="pad", columns=["text"])
    assert ps.audit(one).coverage.num_missing == 1  # pyright: ignore[reportOptionalMemberAccess]
    alone = ps.Loader(ds, 1, uneven="pad", columns=["text"], threads=threads)
    assert len(list(alone)) == 49, "a batch is left out if its only record is damaged"


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    numbers = pa.array([1, 2])
    table = pa.Table.from_arrays([numbers, numbers, numbers], names=["a", "b", "a"])
    with pa.ipc.new_file(str(tmp_path / "twice.arrow"), table.schema) as file:
        file.write_table(table)
    ds = ps.open(tmp_path / "twice.arrow")
    with pytest.raises(ps.SchemaError, match="field 'a': several columns"):
        ps.Loader(ds, 2)
    assert next(iter(ps.Loader(ds, 2, columns=["b"])))["b"].tolist() == [1, 2]


def test_taking_no_records_works_for_a_type_that_python_cannot_make(tmp_path: Path) -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2])] * 2)
    table = pa.table({"u": union})
    with pa.ipc.new_file(str(tmp_path / "union.arrow"), table.schema) as file:
        file.write_table(table)
    ds = ps.open(tmp_path / "union.arrow")
    assert ds.take([]).num_rows == 0
    assert next(iter(ps.Loader(ds, 2)))["u"].tolist() == [1, 2]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_small_batches_are_read_together_and_errors_come_in_their_place(
    tmp_path: Path, threads: int
) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": np.arange(4000), "text": [f"n{n}.".encode() for n in range(4000)]}, path)
    len(ps.open(path))
    data = bytearray(path.read_bytes())
    for record in (2500, 3999):
        data[data.index(f"n{record}.".encode())] ^= 1
    path.write_bytes(data)
    found = []
    with pytest.raises(ps.ChecksumError) as caught:
        for batch in ps.Loader(ps.open(path), 7, order=ps.Sequential(), threads=threads):
            found.append(batch["id"].tolist())
    assert caught.value.record == 2500
    assert found == [list(range(n, n + 7)) for n in range(0, 2499, 7)]
    order = ps.Shuffled(3)
    loader = ps.Loader(ps.open(path, damage="skip"), 7, order=order, threads=threads)
    numbers = order.take(4000, 0, 0, 4000)
    wanted = [
        [n for n in numbers[at : at + 7] if n not in (2500, 3999)] for at in range(0, 4000, 7)
    ]
    assert [batch["id"].tolist() for batch in loader] == wanted
    assert loader.stats().num_skipped == 2
    loader = ps.Loader(ps.open(path, damage="stop"), 7, order=ps.Sequential(), threads=threads)
    assert [n for batch in loader for n in batch["id"]] == list(range(2500))
