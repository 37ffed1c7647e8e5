"""The loader's batches as torch tensors, in DataLoader's workers, and in training."""

from __future__ import annotations

import json
import multiprocessing
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

import penstock as ps
from training import loader as image_loader
from training import shapes

COUNT = 200
# torch warns about more workers than cores, and torchdata calls deprecated functions of torch.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]


@pytest.fixture(scope="module", autouse=True)
def _torch_is_imported_once_for_forkserver() -> None:
    multiprocessing.set_forkserver_preload(["torch.utils.data"])


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torch") / "numbers.tfrecord"
    columns = {
        "id": pa.array(range(COUNT)),
        "score": pa.array(np.arange(COUNT, dtype=np.float32)),
        "name": pa.array([f"n{n}".encode() for n in range(COUNT)]),
        "words": pa.array([list(range(n % 5)) for n in range(COUNT)], pa.list_(pa.int64())),
    }
    ps.write(columns, path)
    return path


def loader(path: Path, **more: Any) -> ps.Loader:
    return ps.Loader(ps.open(path), 16, order=ps.Shuffled(seed=1), **more)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@pytest.fixture(scope="module")
def epochs(numbers: Path) -> list[list[list[int]]]:
    """The batches that the loader itself returns in three epochs."""
    ours = loader(numbers)
    return [ids(ours) for _ in range(3)]


# -- tensors ----------------------------------------------------------------------------------------


def test_bfloat16_and_complex_numbers_are_torchs(tmp_path: Path) -> None:
    halves = torch.arange(24).reshape(12, 2).to(torch.bfloat16)
    field = pa.field("h", pa.uint16(), metadata={"penstock.dtype": "bfloat16"})
    flat = pa.array(halves[:, 0].contiguous().view(torch.int16).numpy().view(np.uint16))
    table = pa.table([flat], schema=pa.schema([field])).append_column("n", pa.array(range(12)))
    ps.write(table, tmp_path / "a.npz")
    ps.write({"z": np.arange(12) * 1j, "n": np.arange(12)}, tmp_path / "z.npz")
    for workers in (0, 2):
        for path, name, wanted in (
            ("a.npz", "h", halves[:, 0]),
            ("z.npz", "z", torch.arange(12) * 1j),
        ):
            ours = ps.Loader(ps.open(tmp_path / path), 4, order=ps.Shuffled(seed=3))
            batches = ours.torch() if not workers else DataLoader(
                ours.torch(), batch_size=None, num_workers=workers
            )  # fmt: skip
            for batch in batches:
                assert batch[name].dtype == (torch.bfloat16 if name == "h" else torch.complex128)
                assert (batch[name] == wanted[batch["n"]]).all()


def test_numbers_are_tensors_and_the_rest_are_lists(numbers: Path) -> None:
    batch = next(iter(ps.Loader(ps.open(numbers), 8).torch()))
    assert batch["id"].dtype == torch.int64
    assert batch["score"].tolist() == list(range(8))
    assert batch["name"] == [f"n{n}".encode() for n in range(8)]
    values, offsets = batch["words"]
    assert offsets.tolist() == [0, 0, 1, 3, 6, 10, 10, 11, 13]
    assert values[3:6].tolist() == [0, 1, 2]


def test_tensors_are_the_arrays_and_no_copies(numbers: Path) -> None:
    seen: list[np.ndarray] = []

    def remember(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append(batch["score"])
        return batch

    ours = loader(numbers, map=remember, threads=0).torch()
    for tensor, array in zip((batch["score"] for batch in ours), seen, strict=False):
        assert tensor.data_ptr() == array.ctypes.data
        tensor += 1


def test_arrays_that_torch_cannot_have_are_copied(numbers: Path) -> None:
    def odd(batch: dict[str, Any]) -> dict[str, Any]:
        frozen = batch["id"].copy()
        frozen.flags.writeable = False
        return {
            "backwards": batch["id"][::-1],
            "frozen": frozen,
            "dates": batch["id"].astype("datetime64[s]"),
            "nested": {"id": batch["id"], "several": [batch["id"], batch["score"]]},
        }

    batch = next(iter(ps.Loader(ps.open(numbers), 3, map=odd).torch()))
    assert batch["backwards"].tolist() == [2, 1, 0]
    batch["frozen"] += 1
    assert batch["dates"].dtype == "datetime64[s]"
    assert batch["nested"]["several"][1].tolist() == [0.0, 1.0, 2.0]


def test_one_for_is_one_epoch(numbers: Path, epochs: list[list[list[int]]]) -> None:
    ours = loader(numbers).torch()
    assert len(ours) == len(epochs[0])
    assert [ids(ours), ids(ours)] == epochs[:2]
    ours.set_epoch(0)
    assert ids(ours) == epochs[0]


@pytest.mark.parametrize("device", [None, "cpu", "meta"])
def test_a_state_follows_the_batch_that_the_loop_has(
    numbers: Path, epochs: list[list[list[int]]], device: str | None
) -> None:
    for steps in (0, 1, 2, 7, 12, 13):
        ours = loader(numbers).torch(device)
        batches = iter(ours)
        for _ in range(steps):
            assert next(batches)["id"].device == torch.device(device or "cpu")
        state = json.loads(json.dumps(ours.state_dict()))
        other = loader(numbers).torch()
        other.load_state_dict(state)
        rest = epochs[0][steps:] if steps < len(epochs[0]) else epochs[1]
        assert ids(other) == rest


def test_pinned_copies_to_a_gpu_use_a_separate_stream(
    numbers: Path, epochs: list[list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU is needed: the calls to torch are recorded and run on the CPU."""
    log: list[str] = []

    class Stream:
        def __init__(self, name: Any) -> None:
            self.name = str(name)
            self.events = 0

        def record_event(self) -> int:
            self.events += 1
            log.append(f"event {self.events}")
            return self.events

        def wait_event(self, event: int) -> None:
            log.append(f"wait {event}")

    model, inside = Stream("model"), []

    @contextmanager
    def stream(used: Stream) -> Any:
        inside.append(used.name)
        yield
        inside.pop()

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        log.append("pin")
        return tensor

    def to(tensor: torch.Tensor, device: Any, non_blocking: bool = False) -> torch.Tensor:
        assert inside == ["cuda:0"], "copies belong on the stream of their own"
        assert non_blocking
        log.append("copy")
        return tensor.clone()

    def record(tensor: torch.Tensor, used: Any) -> None:
        assert used is model
        assert not inside
        log.append("record")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: model)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "record_stream", record)
    ours = loader(numbers, columns=["id"]).torch("cuda:0")
    got = []
    for batch in ours:
        log.append("loop")
        got.append(batch["id"].tolist())
    assert got == epochs[0]
    sent, given = ["pin", "copy"], ["record", "loop"]
    assert log[:5] == [*sent, "event 1", "wait 1", *given][:5]
    # Batches 2 and 3 are sent before the loop gets batch 2; from then on, one batch is always
    # ahead.
    begin = log.index("event 2")
    assert log[begin : begin + 6] == ["event 2", *sent, "event 3", "wait 2", "record"]
    assert log.count("wait 13") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named(numbers: Path) -> None:
    batches = loader(numbers, columns=["id"]).torch("cuda")
    with pytest.raises(RuntimeError, match=r"copied to 'cuda': .*(NVIDIA|CUDA)"):
        next(iter(batches))


# -- in DataLoader ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_is_a_map_of_its_batches(numbers: Path, workers: int) -> None:
    ours = loader(numbers)
    expected = [batch["id"].tolist() for batch in loader(numbers)]
    for epoch in (0, 0):
        ours.set_epoch(epoch)
        given = DataLoader(ours, batch_size=None, num_workers=workers)
        assert [batch["id"].tolist() for batch in given] == expected
    picked = DataLoader(ours, batch_size=None, sampler=[2, 0])
    assert [batch["id"].tolist() for batch in picked] == [expected[2], expected[0]]
    assert ours[-1]["id"].tolist() == expected[-1]
    with pytest.raises(IndexError, match=f"an epoch has {len(ours)}"):
        ours[len(ours)]


# A worker that is not forked takes seconds to import torch, so it lives for all epochs here.
@pytest.mark.parametrize(
    ("context", "persistent"),
    [("fork", False), ("fork", True), ("forkserver", True), ("spawn", True)],
)
def test_workers_give_the_loaders_order_in_every_epoch(
    numbers: Path, epochs: list[list[list[int]]], context: str, persistent: bool
) -> None:
    ours = DataLoader(
        loader(numbers, threads=1).torch(),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=context,
        persistent_workers=persistent,
    )
    assert len(ours) == 13
    assert [ids(ours) for _ in epochs] == epochs


def test_a_pass_that_was_broken_off_counts_as_an_epoch(
    numbers: Path, epochs: list[list[list[int]]]
) -> None:
    ours = DataLoader(loader(numbers).torch(), batch_size=None, num_workers=2)
    assert next(iter(ours))["id"].tolist() == epochs[0][0]
    assert ids(ours) == epochs[1]
    ours.dataset.set_epoch(0)
    assert ids(ours) == epochs[0]


def test_workers_begin_where_a_state_says(numbers: Path, epochs: list[list[list[int]]]) -> None:
    one = loader(numbers)
    batches = iter(one)
    for _ in range(5):
        next(batches)
    view = loader(numbers).torch()
    view.load_state_dict(one.state_dict())
    batches.close()
    ours = DataLoader(view, batch_size=None, num_workers=3)
    assert [ids(ours), ids(ours)] == [epochs[0][5:], epochs[1]]


def test_a_process_that_cannot_find_its_rank_raises_an_error(numbers: Path) -> None:
    view = loader(numbers).torch()
    view.state_dict()
    for _ in DataLoader(view, batch_size=None, num_workers=1):
        break
    with pytest.raises(ps.StateError, match="StatefulDataLoader"):
        view.state_dict()


def test_a_worker_does_not_copy_to_a_device(numbers: Path) -> None:
    ours = DataLoader(loader(numbers).torch("meta"), batch_size=None, num_workers=1)
    with pytest.raises(ValueError, match="pin_memory"):
        next(iter(ours))


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_resumes_to_the_batch(
    numbers: Path, epochs: list[list[list[int]]], workers: int
) -> None:
    def stateful() -> Any:
        view = loader(numbers, threads=1).torch()
        return StatefulDataLoader(view, batch_size=None, num_workers=workers)

    for steps in (1, 6, 12):
        first = stateful()
        batches = iter(first)
        assert [next(batches)["id"].tolist() for _ in range(steps)] == epochs[0][:steps]
        state = first.state_dict()
        del batches, first
        second = stateful()
        second.load_state_dict(state)
        assert ids(second) == epochs[0][steps:]
        assert ids(second) == epochs[1]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_of_batches_of_batches_is_refused(numbers: Path, workers: int) -> None:
    batches = ps.Loader(ps.open(numbers), 32, columns=["id"]).torch()
    with pytest.raises(ValueError, match="batch_size=None"):
        next(iter(DataLoader(batches, batch_size=32, num_workers=workers)))
    (first, *_) = DataLoader(batches, batch_size=None, num_workers=workers)
    assert first["id"].shape == (32,)


@pytest.mark.parametrize(
    "context", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.stress)]
)
def test_samplers_of_others_choose_from_a_dataset(numbers: Path, context: str) -> None:
    ds = ps.open(numbers, columns=["id", "score", "name"])
    sampler = RandomSampler(ds, generator=torch.Generator().manual_seed(3))
    want = list(RandomSampler(ds, generator=torch.Generator().manual_seed(3)))
    ours = DataLoader(
        ds, batch_size=32, sampler=sampler, num_workers=2, multiprocessing_context=context
    )
    got = list(ours)
    assert [number for batch in got for number in batch["id"].tolist()] == want
    assert got[0]["name"] == [f"n{n}".encode() for n in want[:32]]
    assert got[0]["score"].tolist() == want[:32]


# -- in a training ------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 16, 3, stride=2),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(144, 4),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images.permute(0, 3, 1, 2).float() / 255)


class Training:
    def __init__(self, path: Path) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.data = image_loader(path).torch()

    def steps(self, count: int) -> list[float]:
        """The losses of this many steps, over as many epochs as needed."""
        losses: list[float] = []
        while len(losses) < count:
            for batch in self.data:
                loss = torch.nn.functional.cross_entropy(self.model(batch["image"]), batch["label"])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
                if len(losses) == count:
                    break
        return losses

    def save(self, path: Path) -> None:
        parts = (self.model.state_dict(), self.optimizer.state_dict(), self.data.state_dict())
        torch.save(parts, path)

    def load(self, path: Path) -> None:
        parts = (self.model, self.optimizer, self.data)
        for part, state in zip(parts, torch.load(path), strict=True):
            part.load_state_dict(state)


def test_a_net_learns_the_same_from_every_container(tmp_path: Path) -> None:
    curves = [Training(path).steps(60) for path in shapes(tmp_path)]
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)
    assert curves[0] == pytest.approx(curves[2], rel=1e-5)
    assert np.mean(curves[0][-6:]) < 0.5 * curves[0][0], "it has learnt"


def test_a_stopped_training_continues_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    path = shapes(tmp_path)[0]
    whole = Training(path).steps(20)
    for stop in (1, 6, 9, 17):
        first = Training(path)
        losses = first.steps(stop)
        first.save(tmp_path / "saved.pt")
        second = Training(path)
        second.load(tmp_path / "saved.pt")
        assert [*losses, *second.steps(20 - stop)] == pytest.approx(whole, rel=1e-5)
