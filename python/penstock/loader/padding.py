"""`Pad`: how lists are padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Pad:
    """How the lists of a column are padded, in `pad_to=` of `penstock.Loader`.

    Args:
        length: as in `pad_to=`; None pads to the longest list of the batch, or to the size of its bucket.
        value: what lists are filled up with. None: 0, False, or None for text.
        mask: add a column `<name>_mask`, bool of the shape of the padded lists: True for values of the list.
        lengths: add a column `<name>_length`, int64[n]: how many values of the list are in the batch.
        side: which end of a list is filled up: "right", or "left", as decoders need it to generate text. The mask is False
            there. Lists of lists are filled up on this side at every level. A list that `truncate` shortens keeps its
            first values, whatever the side.

    With `uneven="pad"`, records that only fill a batch are False in that mask, their lengths are 0, and their values are
    the pad value.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"tokens": [[5, 6, 7], [8]]}, "tokens.tfrecord", overwrite=True)
        >>> pad = ps.Pad(4, value=-1, mask=True, lengths=True)
        >>> batch = next(iter(ps.Loader(ps.open("tokens.tfrecord"), 2, pad_to={"tokens": pad})))
        >>> batch["tokens"].tolist(), batch["tokens_length"].tolist()
        ([[5, 6, 7, -1], [8, -1, -1, -1]], [3, 1])
        >>> batch["tokens_mask"].tolist()
        [[True, True, True, False], [True, False, False, False]]
        >>> pad = ps.Pad(4, side="left")
        >>> next(iter(ps.Loader(ps.open("tokens.tfrecord"), 2, pad_to={"tokens": pad})))["tokens"]
        array([[0, 5, 6, 7],
               [0, 0, 0, 8]])
    """

    length: int | Sequence[int] | None = None
    value: Any = None
    mask: bool = False
    lengths: bool = False
    side: Literal["right", "left"] = "right"

    def __post_init__(self) -> None:
        if self.side not in ("right", "left"):
            raise ValueError(f"side={self.side!r} of Pad is not 'right' or 'left'")
