"""A language-model team pads tokens and shards them over JAX devices, in few shapes, and counts every token once."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # two devices of one host

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import penstock as ps

lengths = np.random.default_rng(0).integers(1, 2049, 300)
rows = ({"id": n, "tokens": np.full(length, n + 1)} for n, length in enumerate(lengths))
ps.write(rows, "tokens.tfrecord", num_shards=4)
ds = ps.open("tokens@4.tfrecord")

mesh = Mesh(np.array(jax.devices()), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))
compiled = []


@jax.jit
def count(tokens, mask):
    compiled.append(tokens.shape)  # runs once for each shape
    return jnp.where(mask[:, None], tokens > 0, False).sum()


# With three buckets, batches have three shapes, so JAX compiles three times.
buckets = {"tokens": [128, 512, 2048]}
loader = ps.Loader(
    ds, 16, order=ps.Shuffled(seed=0), columns=["tokens"], buckets=buckets, uneven="pad"
)
places = 0
for _epoch in range(2):
    total = 0
    for batch in loader.jax(sharding=sharding):
        assert len(batch["tokens"].addressable_shards) == 2
        places += batch["tokens"].size
        total += int(count(batch["tokens"], batch["mask"]))
    assert total == lengths.sum()
assert sorted(compiled) == [(16, 128), (16, 512), (16, 2048)]

# If all are padded to 2,048, batches have one shape, but more padding.
compiled.clear()
loader = ps.Loader(ds, 16, columns=["tokens"], pad_to={"tokens": 2048}, uneven="pad")
total = sum(int(count(b["tokens"], b["mask"])) for b in loader.jax(sharding=sharding))
assert total == lengths.sum()
assert compiled == []  # this shape was compiled before
assert places < 2 * 16 * 2048 * len(loader)

# Two hosts have the same bucket in each step, and together every record once.
ranks = [
    ps.Loader(ds, 8, order=ps.Shuffled(seed=0), buckets=buckets, uneven="pad", rank=n, world_size=2)
    for n in range(2)
]
ids = []
for one, other in zip(*ranks, strict=True):
    assert one["tokens"].shape == other["tokens"].shape
    ids += [*one["id"][one["mask"]], *other["id"][other["mask"]]]
assert sorted(ids) == list(range(300))
