"""Random parsing programs, to be run by penstock.tf and by TensorFlow: features, and records for them.

Each key has a fixed kind ("a" and "n" integers, "b" strings, "c" floats), and most features request that kind.
"""

from __future__ import annotations

import random
import re
from typing import Any

KEYS = {"a": "int64", "n": "int64", "b": "string", "c": "float32", "zz": "int64"}
PARTITIONS = ["RowLengths", "RowSplits", "RowStarts", "RowLimits", "ValueRowIds"]
VALUES: dict[str, Any] = {"int64": 7, "float32": 0.5, "string": b"d"}


class Programs:
    """Random features, as functions of a `tf` module, so that both libraries get the same.

    Args:
        seed: every choice comes from it.
        strings: whether feature lists and contexts may be sparse strings: on damaged ones TensorFlow 2.21
            writes beyond its memory.
    """

    def __init__(self, seed: int, *, strings: bool = True) -> None:
        self.rng = random.Random(seed)
        self.strings = strings

    def key(self) -> str:
        return self.rng.choice("aaabbcccn" + "z").replace("z", "zz")

    def dtype(self, key: str) -> str:
        return KEYS[key] if self.rng.random() < 0.93 else self.rng.choice(list(VALUES))

    def features(self, kinds: str, most: int = 3) -> dict[str, tuple[Any, ...]]:
        return {self.key(): self.feature(kinds) for _ in range(self.rng.randint(1, most))}

    def example(self) -> dict[str, Any]:
        """Features of Examples, by key."""
        found = self.features("fffvvsrpq" if self.rng.random() < 0.5 else "ffv")
        return {key: self._named(key, kind) for key, (kind, _) in found.items()}

    def context(self) -> dict[str, Any]:
        return {key: self._named(key, kind) for key, (kind, _) in self.features("ffvrp").items()}

    def lists(self) -> dict[str, Any]:
        return {key: self._named(key, kind) for key, (kind, _) in self.features("llvvrp").items()}

    def feature(self, kinds: str) -> tuple[Any, ...]:
        return self.rng.choice(kinds), None

    def _named(self, key: str, kind: str) -> Any:
        rng, dtype = self.rng, self.dtype(key)
        shape = rng.choice([[], [], [1], [2], [2, 2], [3], [0], 2])
        size = 1
        for n in [shape] if isinstance(shape, int) else shape:
            size *= n
        match kind:
            case "f":
                default = None
                if rng.random() < 0.6:
                    default = [VALUES[dtype]] * size if shape else VALUES[dtype]
                return lambda tf: tf.io.FixedLenFeature(shape, getattr(tf, dtype), default)
            case "s" | "l":
                rows = rng.choice([[], [], [1], [2], [2, 1]])
                missing, fill = rng.random() < 0.8, None
                if kind == "s":
                    missing, fill = missing or rng.random() < 0.8, rng.choice([None, VALUES[dtype]])
                return lambda tf: tf.io.FixedLenSequenceFeature(
                    rows, getattr(tf, dtype), missing, fill
                )
            case "v":
                if dtype == "string" and not self.strings:
                    dtype = "float32"
                return lambda tf: tf.io.VarLenFeature(getattr(tf, dtype))
            case "r" | "p":
                names = [
                    rng.choice(PARTITIONS) for _ in range(rng.randint(0, 2) if kind == "p" else 0)
                ]
                keys = [rng.choice("aan") for _ in names]
                uniform = rng.choice([0, 1, 2, 3]) if rng.random() < 0.2 else None
                validate, splits = rng.random() < 0.3, rng.choice(["int32", "int32", "int64"])
                value_key = rng.choice("abc") if rng.random() < 0.5 else None

                def ragged(tf: Any) -> Any:
                    ragged = tf.io.RaggedFeature
                    made = [getattr(ragged, name)(k) for name, k in zip(names, keys, strict=True)]
                    if uniform is not None:
                        made.append(ragged.UniformRowLength(uniform))
                    return ragged(
                        getattr(tf, dtype), value_key, made, getattr(tf, splits), validate
                    )

                return ragged
            case _:
                index = rng.choice(["a", "a", ["a"], ["a", "n"]])
                size = rng.choice([5, 100]) if isinstance(index, str) else [5] * len(index)
                value, is_sorted = rng.choice("abc"), rng.random() < 0.3
                found = KEYS[value]
                return lambda tf: tf.io.SparseFeature(
                    index, value, getattr(tf, found), size, is_sorted
                )


class SaneRecords:
    """Records as TensorFlow's own messages serialize them."""

    def __init__(self, seed: int, tf: Any) -> None:
        self.rng = random.Random(seed)
        self.train = tf.train

    def example(self) -> bytes:
        return self.train.Example(features=self.features()).SerializeToString()

    def sequence_example(self) -> bytes:
        lists = {key: self.frames(key) for key in "abcn" if self.rng.random() < 0.85}
        return self.train.SequenceExample(
            context=self.features(), feature_lists=self.train.FeatureLists(feature_list=lists)
        ).SerializeToString()

    def features(self) -> Any:
        same = self.rng.choice([None, 1, 2, 2, 4])
        chosen = [key for key in "abcn" if self.rng.random() < 0.9]
        return self.train.Features(feature={key: self.feature(key, same) for key in chosen})

    def frames(self, key: str) -> Any:
        same = self.rng.choice([None, 1, 1, 2])
        count = self.rng.choice([0, 1, 2, 3])
        return self.train.FeatureList(feature=[self.feature(key, same) for _ in range(count)])

    def feature(self, key: str, same: int | None) -> Any:
        rng, train = self.rng, self.train
        if rng.random() < 0.02:
            return train.Feature()
        count = rng.choice([0, 1, 2, 3, 6]) if same is None else same
        kind = KEYS[key] if rng.random() < 0.98 else rng.choice(list(VALUES))
        if kind == "string":
            texts = [rng.choice([b"", b"x", b"yz" * 9]) for _ in range(count)]
            return train.Feature(bytes_list=train.BytesList(value=texts))
        if kind == "float32":
            values = [rng.choice([0.0, 1.5, -2.25]) for _ in range(count)]
            return train.Feature(float_list=train.FloatList(value=values))
        low = rng.choice([0, 0, 0, -2])
        numbers = [rng.randrange(low, 4) for _ in range(count)]
        if rng.random() < 0.6:  # so that they make good row splits, too
            numbers.sort()
        return train.Feature(int64_list=train.Int64List(value=numbers))


def spares_tensorflow(payloads: list[bytes], features: list[Any]) -> bool:
    """Whether TensorFlow must not read this: for a long length it would reserve gigabytes, and it writes unpacked
    floats past the end of a dense tensor."""
    dense = any(hasattr(f, "shape") and f.dtype.name == "float32" for f in features)
    return any(re.search(rb"[\x80-\xff]{4}", p) or (dense and b"\x0d" in p) for p in payloads)


def components(value: Any) -> Any:
    """The components of tensors of either library, in a form that can be compared and in which NaN equals NaN."""
    if isinstance(value, dict):
        return {key: components(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [components(part) for part in value]
    if hasattr(value, "dense_shape"):
        return ["sparse", *map(components, (value.indices, value.values, value.dense_shape))]
    if hasattr(value, "row_splits"):
        parts = map(components, (value.flat_values, *value.nested_row_splits))
        # Without row splits, TensorFlow's shape has -1 rows, and raises.
        full = all(len(splits) for splits in value.nested_row_splits)
        return ["ragged", *parts, str(value.shape) if full else None]
    array = value.numpy()
    if isinstance(array, bytes):
        return ["string", [], repr(array)]
    return [array.dtype.str, list(array.shape), repr(array.tolist())]


def answer(run: Any) -> Any:
    """The result of a program, with the order of keys, or the class and message of its error."""
    try:
        found = run()
    except UnicodeDecodeError:  # TensorFlow's message of an InvalidArgumentError, with bytes in it
        return "InvalidArgumentError", ""
    except Exception as error:
        message = re.sub(r"^\{\{function_node .*?\}\} ", "", str(error))
        return type(error).__name__, re.sub(r" \[Op:.*", "", message, flags=re.DOTALL)
    return components(found), repr(order(found))


def order(value: Any) -> Any:
    """The keys of dicts in their order."""
    return [order(part) for part in value] if isinstance(value, tuple) else list(value)
