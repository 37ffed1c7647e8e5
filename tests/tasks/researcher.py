"""A researcher mixes tars and Parquet files of pictures with masks. After a stop, the augmentations are the same."""

import numpy as np

import penstock as ps

rng = np.random.default_rng(0)


def scenes(first, num_records):
    """Pictures with masks that mark their red parts."""
    images = rng.integers(0, 50, (num_records, 48, 64, 3), np.uint8)
    masks = np.zeros((num_records, 48, 64, 1), np.uint8)
    masks[:, 10:40, 20:50] = 7
    images[..., 0] += masks[..., 0] * 25
    numbers = range(first, first + num_records)
    return {
        "__key__": [f"{n:06d}" for n in numbers],
        "image.png": ps.encode_images(images, "png"),
        "mask.png": ps.encode_images(masks, "png"),
        "txt": [f"scene {n}" for n in numbers],
    }


ps.write(scenes(0, 60), "web-{shard:06d}.tar", shard_records=25)
ps.write(scenes(1000, 40), "own.parquet")
sets = {"web": ps.open("web-*.tar"), "own": ps.open("own.parquet")}


def brighten(batch, keys):
    batch["shift"] = (keys % 16).astype(np.uint8)
    batch["image.png"] += batch["shift"][:, None, None, None]
    return batch


def loader():
    return ps.Loader(
        sets,
        20,
        order=ps.Mixture({"web": 0.75, "own": 0.25}, seed=0),
        decode={"image.png": ps.Image(32, crop="random", flip=True, same={"mask.png": "nearest"})},
        map=brighten,
    )


first = loader()
batches = iter(first)
for _ in range(2):
    batch = next(batches)
    own = sum(text.startswith("scene 1") and len(text) == 10 for text in batch["txt"])
    assert own == 5  # a quarter of 20
    assert batch["image.png"].shape == (20, 32, 32, 3)
    assert batch["mask.png"].shape == (20, 32, 32)
    # Picture and mask were cropped and flipped alike: except at edges, the mask marks the red parts.
    inside = batch["mask.png"] == 7
    red = batch["image.png"][..., 0] >= 150
    assert set(np.unique(batch["mask.png"])) <= {0, 7}
    assert (inside == red).mean() > 0.95

state = first.state_dict()
expected = [next(batches) for _ in range(2)]
again = loader()
again.load_state_dict(state)
for found, batch in zip(again, expected, strict=False):
    assert found["txt"].tolist() == batch["txt"].tolist()
    assert np.array_equal(found["image.png"], batch["image.png"])
    assert np.array_equal(found["mask.png"], batch["mask.png"])

texts = ps.open("web-*.tar").to_table(columns=["txt"])  # reads no picture
assert texts["txt"].to_pylist() == [f"scene {n}" for n in range(60)]
