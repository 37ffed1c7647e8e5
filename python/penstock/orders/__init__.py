"""Orders: which record comes when, as arithmetic."""

from penstock.orders.blocked import Blocked, Window, Windows
from penstock.orders.mixture import Mixture
from penstock.orders.order import Order, Sequential, Shuffled
from penstock.orders.streams import Buffered, Interleaved
from penstock.orders.weights import Balanced, Weighted

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
]
