"""HDF5 files of many demonstrations: `group="data/*"`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

h5py = pytest.importorskip("h5py")
DEMOS = [0, 1, 2, 10]


def steps(demo: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(demo)
    count = 3 + demo
    return {
        "actions": rng.random((count, 7)).astype(np.float32),
        "dones": np.arange(count) == count - 1,
        "obs/eef": rng.random((count, 3)),
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file as robomimic writes it."""
    with h5py.File(tmp_path / "demos.hdf5", "w") as file:
        for demo in reversed(DEMOS):
            group = file.create_group(f"data/demo_{demo}")
            group.attrs["num_samples"] = 3 + demo
            for name, values in steps(demo).items():
                group.create_dataset(name, data=values, chunks=(2, *values.shape[1:]))
        file["data"].attrs["env_args"] = "{}"
        file["mask/train"] = np.array([b"demo_0", b"demo_1"])
    return tmp_path / "demos.hdf5"


def expected() -> list[dict[str, Any]]:
    return [
        {name: values[step] for name, values in steps(demo).items()} | {"episode": f"demo_{demo}"}
        for demo in DEMOS
        for step in range(3 + demo)
    ]


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


def test_the_steps_of_all_demonstrations_are_records_in_the_order_of_their_numbers(
    path: Path,
) -> None:
    ds = ps.open(path, group="data/*")
    wanted = expected()
    assert len(ds) == len(wanted)
    for record, step in zip(ds, wanted, strict=True):
        same(record, step)
    for number in (0, 2, 3, 11, 24):
        same(ds[number], wanted[number])


def test_records_in_any_order_are_those_of_a_scan(path: Path) -> None:
    ds = ps.open(path, group="data/demo_*")
    numbers = np.random.default_rng(0).integers(0, len(ds), 200)
    assert ds.take(numbers).to_pylist() == [ds.to_table().to_pylist()[n] for n in numbers]
    assert ds.take([]).num_rows == 0


def test_episodes_can_be_chosen_and_loaded(path: Path, tmp_path: Path) -> None:
    ds = ps.open(path, group="data/*")
    assert ds.count('episode == "demo_2"') == 5
    loader = ps.Loader(ds, 5, order=ps.Shuffled(seed=0))
    seen = np.concatenate([batch["episode"] for batch in loader])
    assert loader.class_names["episode"] == [f"demo_{demo}" for demo in DEMOS]
    assert np.bincount(seen).tolist() == [3 + demo for demo in DEMOS]
    assert ps.verify(path, group="data/*").num_records == len(ds)
    ps.convert(ds, tmp_path / "steps.parquet", prove=True)
    assert ps.open(tmp_path / "steps.parquet")[24]["episode"] == "demo_10"


def test_datasets_and_columns_choose_fields_within_the_groups(path: Path) -> None:
    ds = ps.open(path, group="data/*", datasets=["obs", "dones"])
    assert ds.schema.names == ["dones", "obs/eef", "episode"]
    asked = pa.schema([("episode", pa.string()), ("dones", pa.bool_())])
    assert ps.open(path, group="data/*", columns=["episode"])[3] == {"episode": "demo_1"}
    assert ps.open(path, group="data/*", schema=asked)[2] == {"episode": "demo_0", "dones": True}


def test_a_pattern_may_name_one_group_or_several_levels(path: Path) -> None:
    ds = ps.open(path, group="data/demo_10")
    assert (len(ds), ds[0]["episode"]) == (13, "demo_10")
    with h5py.File(path, "a") as file:
        file["more/demo_0/actions"] = np.zeros((2, 7), np.float32)
    ds = ps.open(path, group="*/demo_*", datasets=["actions"])
    assert (len(ds), ds[24]["episode"], ds[25]["episode"]) == (27, "data/demo_10", "more/demo_0")


def test_a_file_of_groups_says_which_option_opens_it(path: Path) -> None:
    for read in (ps.open, ps.verify, ps.stats):
        with pytest.raises(ps.SchemaError) as caught:
            read(path)
        assert (
            caught.value.hint == "open(..., group='data/*'), which reads these groups as one table"
        )
        assert len(str(caught.value)) - len(str(path)) < 300


def test_the_names_of_many_datasets_are_not_all_listed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for count in range(1, 40):
            for name in "abcdef":
                file[f"dataset_{name}_{count}"] = np.arange(count)
    with pytest.raises(ps.SchemaError, match="differ in length") as caught:
        ps.open(tmp_path / "many.h5")
    assert "1: dataset_a_1, dataset_b_1, dataset_c_1, and 3 more; 2:" in str(caught.value)
    assert "and 35 more" in str(caught.value)
    assert len(str(caught.value)) < 800


def test_every_verb_that_reads_takes_the_pattern(path: Path) -> None:
    expected_records = sum(3 + demo for demo in DEMOS)
    assert ps.verify(path, group="data/*").num_records == expected_records
    assert ps.stats(path, group="data/*").num_records == expected_records
    with pytest.raises(TypeError, match=r"give group= to penstock[.]open"):
        ps.stats(ps.open(path, group="data/*"), group="data/*")
    (kept,) = ps.index(path, group="data/*", checksums=True)
    assert Path(kept).exists()
    assert ps.verify(path, group="data/*").ok


def test_a_rewrite_notes_that_groups_become_one_table(path: Path, tmp_path: Path) -> None:
    ds = ps.open(path, group="data/*")
    ps.add_fields(ds, {"score": np.arange(len(ds))})
    baked = ps.bake_fields(ps.open(path, group="data/*"), into=tmp_path / "baked.hdf5")
    dropped = ps.drop_fields(
        ps.open(path, group="data/*", overlays=False), ["dones"], into=tmp_path / "b.hdf5"
    )
    for made, name in ((baked, "baked.hdf5"), (dropped, "b.hdf5")):
        (note,) = made.notes
        assert note.endswith(
            f"{name}: the 4 groups became one table, and what was beside them is left out"
        )
    assert not ps.drop_fields(tmp_path / "b.hdf5", ["actions"], into=tmp_path / "c.hdf5").notes


def test_a_field_called_episode_stays(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data/x/episode"] = np.array([7, 8])
    assert ps.open(tmp_path / "a.h5", group="data/*").to_table().to_pydict() == {"episode": [7, 8]}


def test_groups_that_differ_are_errors_that_say_where(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["data/demo_11/actions"] = np.zeros((2, 7), np.float32)
    with pytest.raises(ps.SchemaError) as caught:
        ps.open(path, group="data/*")
    assert caught.value.file == str(path)
    assert "data/demo_11" in str(caught.value)
    asked = pa.schema([("actions", pa.list_(pa.float32(), 7)), ("dones", pa.bool_())])
    dones = ps.open(path, group="data/*", schema=asked).to_table().column("dones").to_pylist()
    assert dones == [step["dones"] for step in expected()] + [None, None]
    with pytest.raises(ps.SchemaError, match=r"no group matches 'nothing/\*'.*data, mask"):
        ps.open(path, group="nothing/*")
    with h5py.File(path, "a") as file:
        file.create_group("empty")
    with pytest.raises(ps.SchemaError, match="no datasets with a first axis"):
        ps.open(path, group="empty")


def test_links_to_other_files_are_not_followed(path: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["far"] = h5py.ExternalLink(str(path), "/data/demo_0")
        file["soft"] = h5py.SoftLink("/near")
        file["near/x"] = np.arange(3)
    ds = ps.open(tmp_path / "b.h5", group="*")
    assert set(ds.to_table().column("episode").to_pylist()) == {"near"}


def test_attributes_of_the_groups_are_columns(path: Path, tmp_path: Path) -> None:
    with h5py.File(path, "a") as file:
        for demo in DEMOS:
            file[f"data/demo_{demo}"].attrs["model_file"] = f"<model n='{demo % 2}'/>"
            file[f"data/demo_{demo}"].attrs["goal"] = np.array([demo, 1.5])
        file["data/demo_2"].attrs["success"] = True
    names = ["num_samples", "model_file", "goal", "success"]
    ds = ps.open(path, group="data/*", attributes=names)
    assert ds.schema.names == ["actions", "dones", "obs/eef", "episode", *names]
    demos = [demo for demo in DEMOS for _ in range(3 + demo)]
    table = ds.to_table()
    assert table["num_samples"].to_pylist() == [3 + demo for demo in demos]
    assert table["model_file"].to_pylist() == [f"<model n='{demo % 2}'/>" for demo in demos]
    assert table["success"].to_pylist() == [True if demo == 2 else None for demo in demos]
    np.testing.assert_array_equal(ds[24]["goal"], [10, 1.5])
    assert ds.take([24, 0], ["model_file", "num_samples"]).to_pylist() == [
        {"model_file": "<model n='0'/>", "num_samples": 13},
        {"model_file": "<model n='0'/>", "num_samples": 3},
    ]
    assert ds.count("num_samples > 4") == 5 + 13
    asked = pa.schema([("num_samples", pa.int32()), ("dones", pa.bool_())])
    one = ps.open(path, group="data/*", attributes=["num_samples"], schema=asked)
    assert one[24] == {"num_samples": 13, "dones": True}
    ps.convert(ds.select(["num_samples", "model_file"]), tmp_path / "a.parquet", prove=True)


def test_attributes_that_no_group_has_or_that_differ_are_errors(path: Path) -> None:
    with pytest.raises(ps.SchemaError, match=r"no group has this attribute.*: num_samples"):
        ps.open(path, group="data/*", attributes=["nothing"])
    with h5py.File(path, "a") as file:
        file["data/demo_1"].attrs["actions"] = 1
        file["data/demo_1"].attrs["num_samples"] = "four"
    with pytest.raises(ps.SchemaError, match="data/demo_1 is string, and that of others int64"):
        ps.open(path, group="data/*", attributes=["num_samples"])
    with pytest.raises(ps.SchemaError, match="a dataset has the name of this attribute"):
        ps.open(path, group="data/*", attributes=["actions"])
    for more in ({"attributes": ["num_samples"]}, {"mask": "train"}):
        with pytest.raises(ValueError, match=r'add group="data/\*"'):
            ps.open(path, **more)
    with pytest.raises(TypeError, match="list of names"):
        ps.open(path, group="data/*", attributes="num_samples")


@pytest.mark.parametrize("kind", ["bytes", "text"])
def test_a_split_has_the_groups_in_its_mask(path: Path, kind: str) -> None:
    with h5py.File(path, "a") as file:
        names = [f"demo_{demo}" for demo in (10, 2)]
        texts = np.array(names, h5py.string_dtype()) if kind == "text" else np.array(names, "S16")
        file["mask/valid"] = texts
    whole = ps.open(path, group="data/*")
    for split, demos in (("train", {0, 1}), ("valid", {2, 10})):
        ds = ps.open(path, group="data/*", split=split)
        assert set(ds.to_table()["episode"].to_pylist()) == {f"demo_{demo}" for demo in demos}
        assert len(ds) == sum(3 + demo for demo in demos)
        same = ps.open(path, group="data/*", mask=split)
        assert same.to_table().equals(ds.to_table())
    assert len(whole) == 25
    with pytest.raises(ValueError, match="no split 'test' in the group mask; there are: train, v"):
        ps.open(path, group="data/*", split="test")
    with pytest.raises(ValueError, match=r'add group="data/\*"'):
        ps.open(path, split="train")
    with h5py.File(path, "a") as file:
        file["mask/odd"] = np.array([b"demo_1", b"demo_77"])
    with pytest.raises(ps.SchemaError, match="mask/odd lists 'demo_77'"):
        ps.open(path, group="data/*", split="odd")


def test_a_split_in_the_names_of_files_comes_before_one_inside(path: Path) -> None:
    named = path.with_name("train.hdf5")
    path.rename(named)
    assert len(ps.open(named, group="data/*", split="train")) == 25
    assert len(ps.open(named, group="data/*", mask="train")) == 7


def test_a_file_without_masks_has_no_splits(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data/x/a"] = np.array([7, 8])
    with pytest.raises(ps.SchemaError, match="no split 'train' in the group mask; there are: none"):
        ps.open(tmp_path / "a.h5", group="data/*", split="train")
