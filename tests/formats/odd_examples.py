"""Serialized Examples in encodings that no sane writer would use, to compare readers."""

from __future__ import annotations

import random
import struct


def varint(number: int, rng: random.Random | None = None) -> bytes:
    """A varint, sometimes longer than it needs to be."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    if rng is not None and rng.random() < 0.02:
        out[-1] |= 0x80
        out += b"\x80" * rng.randrange(3) + b"\x00"
    return bytes(out)


class OddExamples:
    """Random Examples of int64 under a, bytes under b, floats under c, with exceptions.

    Args:
        seed: every choice comes from it.
        negative: whether integers may be negative.
        mutate: share of the Examples in which bytes are changed, lost or added afterwards.
    """

    def __init__(self, seed: int, *, negative: bool = True, mutate: float = 0.5) -> None:
        self.rng = random.Random(seed)
        self.negative = negative
        self.mutate = mutate

    def example(self) -> bytes:
        rng = self.rng
        payload = b"".join(self.field(1, self.map()) for _ in range(1 if rng.random() < 0.9 else 2))
        return self.mutated(self.with_unknown(payload, 0.05))

    def sequence_example(self) -> bytes:
        parts = [self.field(1, self.map())] if self.rng.random() < 0.8 else []
        parts += [self.field(2, self.map(lists=True)) for _ in range(self.few())]
        self.rng.shuffle(parts)
        return self.mutated(self.with_unknown(b"".join(parts), 0.1))

    def few(self) -> int:
        return self.rng.choice([0, 1, 1, 1, 2, 3])

    def tag(self, number: int, wire: int) -> bytes:
        return varint(number << 3 | wire, self.rng if self.rng.random() < 0.1 else None)

    def field(self, number: int, content: bytes) -> bytes:
        length = len(content)
        if self.rng.random() < 0.004:
            length = max(0, length + self.rng.choice([-2, -1, 1, 2, 1 << 31, 1 << 32]))
        return self.tag(number, 2) + varint(length, self.rng) + content

    def with_unknown(self, content: bytes, share: float) -> bytes:
        """The message with an unknown field before or after it."""
        rng = self.rng
        if rng.random() > share:
            return content
        number = rng.choice([0, 4, 9, 15, 100])
        extra = rng.choice(
            [
                self.tag(number, 0) + varint(rng.randrange(300)),
                self.tag(number, 1) + b"12345678",
                self.field(number, b"zz"),
                self.tag(number, 5) + b"1234",
                self.tag(9, 3) + self.tag(1, 0) + b"\x01" + self.tag(9, 4),
                self.tag(rng.choice([1, 2, 3]), 0) + b"\x05",
                self.tag(number, rng.choice([4, 6, 7])),
            ]
        )
        return extra + content if rng.random() < 0.5 else content + extra

    def map(self, *, lists: bool = False) -> bytes:
        entries = b"".join(self.field(1, self.entry(lists)) for _ in range(self.few() + 1))
        return self.with_unknown(entries, 0.01)

    def entry(self, lists: bool) -> bytes:
        rng = self.rng
        number = rng.randrange(3)
        value = self.frames(number) if lists else self.feature(number)
        key = b"bca"[number : number + 1] if rng.random() < 0.97 else rng.choice([b"", b"\xff"])
        parts = [self.field(1, key), self.field(2, value)]
        if rng.random() < 0.02:
            parts = rng.choice([parts[::-1], parts[:1], parts[1:], parts[:1] * 2, parts * 2])
        return self.with_unknown(b"".join(parts), 0.01)

    def frames(self, kind: int) -> bytes:
        return b"".join(self.field(1, self.feature(kind)) for _ in range(self.few()))

    def feature(self, kind: int) -> bytes:
        if self.rng.random() < 0.05:
            return self.with_unknown(b"", 0.2)
        lists = [self.values(kind) for _ in range(1 if self.rng.random() < 0.9 else 2)]
        return self.with_unknown(b"".join(lists), 0.01)

    def values(self, kind: int) -> bytes:
        rng = self.rng
        kind = kind if rng.random() < 0.95 else rng.randrange(3)
        parts: list[bytes] = []
        for _ in range(1 if rng.random() < 0.95 else 2):
            count = rng.choice([0, 1, 1, 2, 2, 2, 3, 4])
            packed = rng.random() < 0.7
            if kind == 0:
                texts = [rng.choice([b"", b"x", b"yz", b"\xff\x00"]) for _ in range(count)]
                parts += [self.field(1, text) for text in texts]
            elif kind == 1:
                words = [struct.pack("<f", rng.choice([0.0, 1.5, 2.0])) for _ in range(count)]
                tail = b"\x00" * rng.randrange(4) if rng.random() < 0.03 else b""
                whole = self.field(1, b"".join(words) + tail)
                parts += [whole] if packed else [self.tag(1, 5) + word for word in words]
            else:
                low = -3 if self.negative else 0
                numbers = [varint(rng.randrange(low, 300), rng) for _ in range(count)]
                whole = self.field(1, b"".join(numbers))
                parts += [whole] if packed else [self.tag(1, 0) + number for number in numbers]
        return self.field(kind + 1, self.with_unknown(b"".join(parts), 0.01))

    def mutated(self, payload: bytes) -> bytes:
        rng = self.rng
        if rng.random() > self.mutate or not payload:
            return payload
        data = bytearray(payload)
        for _ in range(rng.choice([1, 1, 2, 3])):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(5):
                case 0 if at < len(data):
                    data[at] ^= 1 << rng.randrange(8)
                case 1 if at < len(data):
                    data[at] = rng.choice([0, 1, 2, 8, 0x0A, 0x0D, 0x12, 0x1A, 0x7F, 0x80, 0xFF])
                case 2:
                    del data[at : at + rng.choice([1, 1, 2, 5])]
                case 3:
                    data[at:at] = bytes([rng.choice([0, 1, 2, 8, 0x0A, 0x0D, 0x12, 0x1A, 0x80])])
                case _:
                    data = data[:at] if rng.random() < 0.3 else data
        return bytes(data)
