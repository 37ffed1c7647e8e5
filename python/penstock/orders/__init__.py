"""Orders compute which record is at which position of an epoch."""

from penstock.orders._blocked import Blocked, Window, Windows
from penstock.orders._mixture import Mixture, spec_until
from penstock.orders._order import Order, Sequential, Shuffled
from penstock.orders._streams import Buffered, Interleaved
from penstock.orders._weights import Balanced, Weighted

__all__ = [
    "Balanced",
    "Blocked",
    "Buffered",
    "Interleaved",
    "Mixture",
    "Order",
    "Sequential",
    "Shuffled",
    "Weighted",
    "Window",
    "Windows",
    "spec_until",
]
