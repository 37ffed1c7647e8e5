"""The messages of `tf.train` on hostile bytes: a message that they accept must be accepted again after they wrote
it."""

from __future__ import annotations

import random

from penstock.tf import train

KINDS = [getattr(train, name) for name in train.__all__ if name != "DecodeError"]


def parsed(data: bytes, rng: random.Random) -> None:
    """A message parsed from any bytes: written, read again, printed, copied and merged."""
    kind = rng.choice(KINDS)
    message = kind.FromString(data)
    written = message.SerializeToString()
    assert len(written) == message.ByteSize() <= len(data) * 2 + 64
    again = kind.FromString(written)
    assert again == message
    assert again.SerializeToString() == written
    assert len(message.SerializeToString(deterministic=True)) == len(written)
    assert str(again) == str(message)
    copied = kind()
    copied.CopyFrom(message)
    copied.MergeFrom(message)
    assert kind.FromString(written + written) == copied
    message.Clear()
    assert message == kind()
