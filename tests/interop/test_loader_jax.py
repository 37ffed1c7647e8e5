"""The loader's batches as JAX arrays, on one device and over eight, and in training.

XLA_FLAGS=--xla_force_host_platform_device_count=8 makes eight devices of one processor.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import penstock as ps
from training import CLASSES, shapes
from training import loader as image_loader

COUNT = 200


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("jax") / "numbers.arrow"
    columns = {
        "id": pa.array(range(COUNT), pa.int64()),
        "score": pa.FixedSizeListArray.from_arrays(np.arange(2 * COUNT, dtype=np.float32), 2),
        "name": pa.array([f"n{n}".encode() for n in range(COUNT)]),
        "words": pa.array([list(range(n % 5)) for n in range(COUNT)], pa.list_(pa.int64())),
    }
    ps.write(columns, path)
    return path


def loader(path: Path, **more: Any) -> ps.Loader:
    return ps.Loader(ps.open(path), 16, order=ps.Shuffled(seed=1), **more)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def over_eight() -> NamedSharding:
    assert len(jax.devices()) == 8, "see the first lines of this file"
    return NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))


def test_bfloat16_is_jaxs(tmp_path: Path) -> None:
    values = np.arange(-8, 8).reshape(8, 2).astype(jnp.bfloat16)
    ps.write({"x": values}, tmp_path / "a.npz")
    ours = ps.Loader(ps.open(tmp_path / "a.npz"), 8)
    for batches in (ours.jax(), ours.jax(sharding=over_eight())):
        (batch,) = list(batches)
        assert batch["x"].dtype == jnp.bfloat16
        assert (np.asarray(batch["x"]) == values).all()


def test_numbers_are_arrays_and_the_rest_are_lists(numbers: Path) -> None:
    batch = next(iter(ps.Loader(ps.open(numbers), 8).jax()))
    assert isinstance(batch["id"], jax.Array)
    assert batch["score"].shape == (8, 2)
    assert batch["name"] == [f"n{n}".encode() for n in range(8)]
    values, offsets = batch["words"]
    assert values[int(offsets[3]) : int(offsets[4])].tolist() == [0, 1, 2]


def test_arrays_are_on_the_requested_device(numbers: Path) -> None:
    third = jax.devices()[3]
    batch = next(iter(loader(numbers).jax(device=third)))
    assert batch["id"].devices() == {third}
    with pytest.raises(ValueError, match="one of"):
        loader(numbers).jax(device=third, sharding=SingleDeviceSharding(third))


def test_a_state_follows_the_batch_that_the_loop_has(numbers: Path) -> None:
    whole = loader(numbers)
    first, second = ids(whole), ids(whole)
    for steps in (0, 1, 2, 7, 12, 13):
        ours = loader(numbers).jax()
        batches = iter(ours)
        for _ in range(steps):
            next(batches)
        state = json.loads(json.dumps(ours.state_dict()))
        other = loader(numbers).jax()
        other.load_state_dict(state)
        assert ids(other) == (first[steps:] or second)


def test_a_global_array_has_every_record_on_its_device(numbers: Path) -> None:
    sharding = over_eight()
    flat = {"columns": ["id", "score", "name"], "drop_last": True}
    want = list(loader(numbers, **flat))
    ours = loader(numbers, **flat).jax(sharding)
    assert len(ours) == len(want) == 12
    for batch, plain in zip(ours, want, strict=True):
        assert batch["name"] == plain["name"].tolist()
        for name in ("id", "score"):
            array = batch[name]
            assert array.sharding == sharding
            assert array.is_fully_addressable
            assert np.array_equal(array, plain[name])
            for shard in array.addressable_shards:
                place = sharding.mesh.devices.tolist().index(shard.device)
                assert np.array_equal(shard.data, plain[name][2 * place : 2 * place + 2])


def test_errors_for_data_that_cannot_be_sharded_say_what_to_do(numbers: Path) -> None:
    with pytest.raises(ps.SchemaError, match="pad"):
        next(iter(loader(numbers).jax(over_eight())))
    # 200 records are 12 batches of 16 and one of 8, which can be divided over 8 devices. 198
    # records leave a batch of 6, which cannot, and that is known before the first batch.
    ids = ps.open(numbers, columns=["id"])
    short = ps.Loader(ids.subset(range(198)), 16)
    with pytest.raises(ps.SchemaError, match=r"a batch of 6 records .* 8 equal parts\n.*drop_last"):
        next(iter(short.jax(over_eight())))
    assert short.state_dict()["position"] == 0
    with pytest.raises(ps.SchemaError, match="a batch_size that is a multiple of 8"):
        next(iter(ps.Loader(ids, 66).jax(over_eight())))
    # Only a batch shows what `map` makes of it.
    fewer = iter(ps.Loader(ids, 16, map=lambda batch: {"id": batch["id"][:12]}).jax(over_eight()))
    with pytest.raises(ps.SchemaError, match="'id': a batch of 12 records"):
        next(fewer)


@pytest.mark.parametrize("wrong", ["dict", "mesh", "spec"])
def test_what_is_no_sharding_is_refused_with_its_type(numbers: Path, wrong: str) -> None:
    sharding = over_eight()
    given = {"dict": {"id": sharding}, "mesh": sharding.mesh, "spec": sharding.spec}[wrong]
    with pytest.raises(TypeError, match=f"NamedSharding.*not a {type(given).__name__}$"):
        loader(numbers).jax(given)


def test_a_spec_is_cut_to_the_axes_of_each_column(numbers: Path) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "seq"))
    spec = PartitionSpec("data", "seq")
    flat = {"columns": ["id", "score"], "record_numbers": "number", "uneven": "pad"}
    want = next(iter(loader(numbers, **flat)))
    batch = next(iter(loader(numbers, **flat).jax(NamedSharding(mesh, spec))))
    for name, axes in {"id": spec[:1], "number": spec[:1], "mask": spec[:1], "score": spec}.items():
        assert batch[name].sharding == NamedSharding(mesh, PartitionSpec(*axes)), name
        assert np.array_equal(batch[name], want[name])
    three = NamedSharding(mesh, PartitionSpec("seq", "data"))
    with pytest.raises(ps.SchemaError, match=r"'score': .*16, 2.*\n.*PartitionSpec"):
        next(iter(loader(numbers, columns=["score"]).jax(three)))


@pytest.mark.parametrize("value", [2**40 + 5, -(2**31) - 1, 2**31])
@pytest.mark.parametrize("is_sharded", [False, True])
def test_integers_that_do_not_fit_32_bits_are_refused(
    value: int, is_sharded: bool, tmp_path: Path
) -> None:
    sharding = over_eight() if is_sharded else None
    ps.write({"id": [1] * 7 + [value]}, tmp_path / "a.parquet")
    ours = ps.Loader(ps.open(tmp_path / "a.parquet"), 8)
    with pytest.raises(ps.SchemaError, match=f"'id': .*int32.*\n.*found {value}\n.*jax_enable_x64"):
        next(iter(ours.jax(sharding)))
    with jax.enable_x64(True):
        assert next(iter(ours.jax(sharding)))["id"].tolist() == [1] * 7 + [value]


def test_integers_that_fit_32_bits_pass(tmp_path: Path) -> None:
    columns = {
        "signed": np.array([-(2**31), 2**31 - 1]),
        "unsigned": np.array([0, 2**32 - 1], np.uint64),
        "lists": pa.array([[2**31 - 1], []]),
    }
    ps.write(columns, tmp_path / "a.parquet")
    batch = next(iter(ps.Loader(ps.open(tmp_path / "a.parquet"), 2).jax()))
    assert batch["signed"].tolist() == columns["signed"].tolist()
    assert batch["unsigned"].tolist() == columns["unsigned"].tolist()
    assert batch["lists"][0].tolist() == [2**31 - 1]
    ps.write({"u": np.array([2**32], np.uint64)}, tmp_path / "b.parquet")
    with pytest.raises(ps.SchemaError, match="4294967296"):
        next(iter(ps.Loader(ps.open(tmp_path / "b.parquet"), 1).jax()))
    ps.write({"lists": [[1], [2**31, 2]]}, tmp_path / "c.parquet")
    with pytest.raises(ps.SchemaError, match="2147483648"):
        next(iter(ps.Loader(ps.open(tmp_path / "c.parquet"), 2).jax()))


def test_a_padded_last_batch_can_be_sharded(numbers: Path) -> None:
    ours = ps.Loader(ps.open(numbers, columns=["id"]), 48, uneven="pad").jax(over_eight())
    last = list(ours)[-1]
    assert last["id"].shape == last["mask"].shape == (48,)
    assert last["id"][last["mask"]].tolist() == list(range(192, 200))


@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_batch_may_be_donated(is_sharded: bool, tmp_path: Path) -> None:
    """XLA writes into its memory, which no later batch shares, and not the loader's pool of buffers."""
    path = shapes(tmp_path)[0]
    sharding = over_eight() if is_sharded else None
    invert = jax.jit(lambda batch: {**batch, "image": 255 - batch["image"]}, donate_argnums=0)
    given, plain = image_loader(path).jax(sharding), image_loader(path)
    num_donated = 0
    for _ in range(2):
        for batch, want in zip(given, plain, strict=True):
            made = invert(batch)
            assert np.array_equal(made["image"], 255 - want["image"])
            assert np.array_equal(made["label"], want["label"])
            num_donated += batch["image"].is_deleted()
    assert num_donated == 12


# -- in a training ------------------------------------------------------------------------------------


def weights() -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = {"first": (3, 3, 3, 8), "second": (3, 3, 8, 16), "last": (256, CLASSES)}
    return {
        name: jax.random.normal(key, size) / np.sqrt(np.prod(size[:-1]))
        for key, (name, size) in zip(keys, sizes.items(), strict=True)
    }


def loss_of(model: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    x = images.astype(jnp.float32) / 255
    for name in ("first", "second"):
        layout = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, model[name], (2, 2), "SAME", dimension_numbers=layout)
        x = jax.nn.relu(x)
    logits = jax.nn.log_softmax(x.reshape(len(x), -1) @ model["last"])
    return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()


@jax.jit
def step(model: Any, velocity: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, Any, Any]:
    loss, slope = jax.value_and_grad(loss_of)(model, images, labels)
    velocity = jax.tree.map(lambda v, g: 0.9 * v - 0.1 * g, velocity, slope)
    return jax.tree.map(jnp.add, model, velocity), velocity, loss


class Training:
    def __init__(self, path: Path, sharding: Any = None) -> None:
        self.model = weights()
        self.velocity = jax.tree.map(jnp.zeros_like, self.model)
        if sharding is not None:
            everywhere = NamedSharding(sharding.mesh, PartitionSpec())
            self.model = jax.device_put(self.model, everywhere)
            self.velocity = jax.device_put(self.velocity, everywhere)
        self.data = image_loader(path).jax(sharding)

    def steps(self, count: int) -> list[float]:
        losses: list[float] = []
        while len(losses) < count:
            for batch in self.data:
                self.model, self.velocity, loss = step(
                    self.model, self.velocity, batch["image"], batch["label"]
                )
                losses.append(float(loss))
                if len(losses) == count:
                    break
        return losses

    def state(self) -> Any:
        return jax.device_get((self.model, self.velocity)), self.data.state_dict()


def test_a_net_learns_the_same_from_every_container(tmp_path: Path) -> None:
    curves = [Training(path).steps(60) for path in shapes(tmp_path)]
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)
    assert curves[0] == pytest.approx(curves[2], rel=1e-5)
    assert np.mean(curves[0][-6:]) < 0.5 * curves[0][0], "it has learnt"


def test_a_net_learns_the_same_on_eight_devices(tmp_path: Path) -> None:
    path = shapes(tmp_path)[0]
    assert Training(path, over_eight()).steps(12) == pytest.approx(
        Training(path).steps(12), rel=1e-4
    )


def test_a_stopped_training_continues_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    path = shapes(tmp_path)[0]
    whole = Training(path).steps(20)
    for stop in (1, 6, 9, 17):
        first = Training(path)
        losses = first.steps(stop)
        second = Training(path)
        (second.model, second.velocity), state = first.state()
        second.data.load_state_dict(json.loads(json.dumps(state)))
        assert [*losses, *second.steps(20 - stop)] == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("target", ["x.tfrecord", "x.msgpack"])
def test_bfloat16_of_any_library_is_refused_if_it_would_be_read_as_numbers(
    target: str, tmp_path: Path
) -> None:
    for values in (jnp.array([1.5], "bfloat16"), jnp.ones((2, 3), "bfloat16")):
        with pytest.raises(ps.SchemaError, match="bits of bfloat16"):
            ps.write({"c": values}, tmp_path / target)
        ps.write({"c": values}, tmp_path / "x.parquet", overwrite=True)
        field = ps.open(tmp_path / "x.parquet").schema.field("c")
        assert field.metadata[b"penstock.dtype"] == b"bfloat16"


LEFT = """
import sys
import penstock as ps

batches = iter(ps.Loader(ps.open(sys.argv[1]), 8).jax())
next(batches)
"""


def test_a_loop_that_is_left_at_the_end_of_a_program_prints_nothing(numbers: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LEFT, str(numbers)], capture_output=True, text=True, check=True
    )
    assert not run.stderr
