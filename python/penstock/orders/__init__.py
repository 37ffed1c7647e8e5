"""Orders: which record comes when, as arithmetic."""

from penstock.orders.order import Order, Sequential, Shuffled

__all__ = ["Order", "Sequential", "Shuffled"]
