"""The permutation in plain Python, as a reference for other implementations."""

from __future__ import annotations

END = 1 << 64


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % END
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % END
    return x ^ (x >> 31)


def key_of(*numbers: int) -> int:
    key = 0
    for number in numbers:
        key = mix(((key ^ number) + 0x9E3779B97F4A7C15) % END)
    return key


def scatter(x: int, bits: int) -> int:
    x = x * 0xFF51AFD7ED558CCD % END
    return (x ^ (x >> 32)) * 0xC4CEB9FE1A85EC53 % END >> (64 - bits)


def permuted(num_records: int, key0: int, key1: int, position: int) -> int:
    if num_records <= 64:
        numbers = list(range(num_records))
        for first in range(num_records):
            drawn = key_of(key0, key1, first) * (num_records - first) >> 64
            other = first + drawn
            numbers[first], numbers[other] = numbers[other], numbers[first]
        return numbers[position]
    bits = max(12, (num_records - 1).bit_length())
    few, many = bits // 2, bits - bits // 2
    number = position
    while True:
        left, right = number >> many, number % (1 << many)
        for turn in range(1, 9, 2):
            left ^= scatter(right ^ key_of(key0, key1, turn), few)
            right ^= scatter(left ^ key_of(key0, key1, turn + 1), many)
        number = left << many | right
        if number < num_records:
            return number
