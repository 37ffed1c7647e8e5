"""`rank="auto"`, and loaders for which the user forgot the rank."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import penstock as ps
from penstock.loader import _ranks

LAUNCHED = [
    {"RANK": "1", "WORLD_SIZE": "3"},
    {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NTASKS": "8"},
    {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"},
    {"PMI_RANK": "1", "PMI_SIZE": "3"},
]


@pytest.fixture(autouse=True)
def not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, *names in _ranks._VARIABLES:
        for name in names:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def data(tmp_path: Path) -> ps.Dataset:
    ps.write({"id": np.arange(30)}, tmp_path / "ids.tfrecord")
    return ps.open(tmp_path / "ids.tfrecord")


@pytest.mark.parametrize("variables", LAUNCHED)
def test_the_rank_is_found_from_the_variables_of_a_launcher(
    data: ps.Dataset, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    loader = ps.Loader(data, 5, rank="auto")
    assert (loader.rank, loader.plan.world_size) == (1, 3)
    assert next(iter(loader))["id"].tolist() == [5, 6, 7, 8, 9]
    with pytest.warns(UserWarning, match=r"process 1 of 3 .* reads all records"):
        ps.Loader(data, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ps.Loader(data, 5, rank=0, world_size=1)
        ps.Loader(data, 5, rank=2, world_size=3)


def test_ray_train_is_asked_before_the_variables_that_its_workers_inherit(
    data: ps.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, context = ModuleType("ray.train.v2.api.train_fn_utils"), Mock()
    context.get_world_rank.return_value, context.get_world_size.return_value = 1, 3
    monkeypatch.setitem(sys.modules, train.__name__, train)
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")

    monkeypatch.setattr(train, "get_context", lambda: context, raising=False)
    loader = ps.Loader(data, 5, rank="auto")
    assert (loader.rank, loader.plan.world_size) == (1, 3)
    with pytest.warns(UserWarning, match=r"process 1 of 3 \(Ray Train\)"):
        ps.Loader(data, 5)

    for error in (RuntimeError("outside of a training function"), DeprecationWarning("in Tune")):
        monkeypatch.setattr(train, "get_context", Mock(side_effect=error))
        loader = ps.Loader(data, 5, rank="auto")
        assert (loader.rank, loader.plan.world_size) == (0, 2)


def test_a_single_process_is_rank_0_of_1(data: ps.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a batch script of SLURM, the number of tasks is set, but the script is one process.
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_PROCID", "0")
    loader = ps.Loader(data, 5, rank="auto")
    assert (loader.rank, loader.plan.world_size) == (0, 1)
    ps.Loader(data, 5)


def test_a_rank_without_the_number_of_ranks_is_refused(data: ps.Dataset) -> None:
    with pytest.raises(ValueError, match="not 1; give world_size=, too, or rank='auto'"):
        ps.Loader(data, 5, rank=1)
    assert ps.Loader(data, 5, rank=1, world_size=2).rank == 1
    with pytest.raises(ValueError, match=r"from 0 to 1, not 2$"):
        ps.Loader(data, 5, rank=2, world_size=2)


def test_the_repr_of_a_loader_shows_its_arguments(data: ps.Dataset) -> None:
    names = ", ".join(data.schema.names)
    loader = ps.Loader(data, 5, order=ps.Shuffled(seed=0))
    assert (
        repr(loader) == f"<penstock.Loader {len(loader)} batches of 5, Shuffled(seed=0): {names}>"
    )
    loader = ps.Loader(data, 5, rank=1, world_size=2)
    expected = f"<penstock.Loader {len(loader)} batches of 5, Sequential(), rank 1 of 2: {names}>"
    assert repr(loader) == expected


@pytest.mark.parametrize("rank", ["3", "-1", "one"])
def test_variables_that_are_not_a_rank_are_refused(
    data: ps.Dataset, monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="give rank= and world_size="):
        ps.Loader(data, 5, rank="auto")
    ps.Loader(data, 5)


def test_auto_excludes_a_world_size(data: ps.Dataset) -> None:
    with pytest.raises(ValueError, match="leave it out"):
        ps.Loader(data, 5, rank="auto", world_size=2)
    with pytest.raises(TypeError, match="'first'"):
        ps.Loader(data, 5, rank="first")  # pyright: ignore[reportArgumentType]


PROGRAM = """
    import sys
    import torch.distributed as dist
    import penstock as ps

    before = ps.Loader(ps.open(sys.argv[1]), 5, rank="auto")  # from torchrun's variables
    dist.init_process_group("gloo")
    loader = ps.Loader(ps.open(sys.argv[1]), 5, rank="auto")  # from torch.distributed
    assert (before.rank, before.plan.world_size) == (loader.rank, loader.plan.world_size)
    mine = [number for batch in loader for number in batch["id"].tolist()]
    found = [None, None]
    dist.all_gather_object(found, mine)
    assert sorted(found[0] + found[1]) == list(range(30)), found
    assert len(found[0]) == len(found[1]) == 15
    dist.destroy_process_group()
"""


def test_torchrun_divides_the_records(data: ps.Dataset, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(program), data.paths[0]],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


LATE = """
    import sys
    import warnings
    import torch.distributed as dist
    import penstock as ps

    ds, rank, place = ps.open(sys.argv[1]), int(sys.argv[2]), f"file://{sys.argv[3]}"
    forgotten, auto = ps.Loader(ds, 5), ps.Loader(ds, 5, rank="auto")
    meant = ps.Loader(ds, 5, rank=0, world_size=1)
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    for loader, count in ((forgotten, 1), (auto, 1), (auto.torch(), 0), (meant, 0), (ps.Loader(ds, 5, rank="auto"), 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                assert sum(len(batch["id"]) for batch in loader) in (15, 30)
        assert len(caught) == count, (loader, caught)
        for one in caught:
            assert f"process {rank} of 2 (torch.distributed)" in str(one.message)
            assert "made before the processes" in str(one.message)
            assert one.filename == __file__
    dist.destroy_process_group()
"""


def test_loaders_made_before_the_processes_are_set_up_warn_once(
    data: ps.Dataset, tmp_path: Path
) -> None:
    program = tmp_path / "late.py"
    program.write_text(textwrap.dedent(LATE))
    started = [
        subprocess.Popen(
            [sys.executable, str(program), data.paths[0], str(rank), str(tmp_path / "meeting")],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    errors = [one.communicate(timeout=300)[1] for one in started]
    assert [one.returncode for one in started] == [0, 0], errors


WAYS: dict[str, dict[str, Any]] = {
    "plain": {"batch_size": 4, "order": ps.Shuffled(0)},
    "padded": {"batch_size": 4, "uneven": "pad"},
    "dropped": {"batch_size": 4, "uneven": "drop"},
    "buckets": {"batch_size": 2, "buckets": {"id": [9, 29]}, "order": ps.Shuffled(0)},
    "sizes": {"buckets": {"id": {9: 3, 29: 2}}, "uneven": "pad"},
    "repeated": {"batch_size": 3, "buckets": {"id": [9, 29]}, "order": ps.Weighted([1.0] * 30, 0)},
}


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("way", WAYS)
def test_a_loader_that_gets_another_rank_continues_as_one_made_with_it(
    data: ps.Dataset, way: str, steps: int
) -> None:
    before = ps.Loader(data, **WAYS[way])
    before.set_epoch(1)
    batches = iter(before)
    for _ in range(steps):
        next(batches)
    state = before.state_dict()
    for rank in range(3):
        moved = ps.Loader(data, **WAYS[way], rank="auto")
        moved.load_state_dict(state)
        moved.set_rank(rank, 3)
        made = ps.Loader(data, **WAYS[way], rank=rank, world_size=3)
        made.load_state_dict(state)
        assert moved.state_dict() == made.state_dict() == state
        for _ in range(2):  # the rest of this epoch, and the next
            lengths = moved.batch_lengths()
            found, want = ([batch["id"].tolist() for batch in one] for one in (moved, made))
            assert found == want
            assert lengths == {len(batch) for batch in found}
    with pytest.raises(ValueError, match="rank must be from 0 to 1"):
        moved.set_rank(2, 2)


def test_a_state_of_something_else_is_refused_as_such(data: ps.Dataset) -> None:
    loader = ps.Loader(data, 5)
    with pytest.raises(
        ps.StateError, match=r"not the state of a loader\n.*found a dict with 'a'\n"
    ):
        loader.load_state_dict({"a": 1})
    with pytest.raises(ps.StateError, match="found a dict with nothing"):
        loader.load_state_dict({})
    with pytest.raises(ps.StateError, match=r"another version of penstock\n.*found version 7"):
        loader.load_state_dict({**loader.state_dict(), "version": 7})
