"""What TensorFlow has and penstock has not: an error that names both, and the nearest way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.tf.errors import UnimplementedError


def missing(symbol: str, instead: str) -> UnimplementedError:
    """The error for a symbol that is not there.

    Args:
        symbol: TensorFlow's, in full: `tf.data.Dataset.save`.
        instead: the nearest way to do it.

    Example:
        >>> from penstock.tf.missing import missing
        >>> print(missing("tf.data.Dataset.rejection_resample", "Dataset.filter"))
        tf.data.Dataset.rejection_resample is not in penstock.tf
          try: Dataset.filter
    """
    return UnimplementedError(None, None, f"{symbol} is not in penstock.tf", hint=instead)


def stands_for(symbol: str, instead: str) -> Callable[..., Any]:
    """A function that raises that error, to stand where the symbol would."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise missing(symbol, instead)

    refuse.__name__ = symbol.rsplit(".", 1)[-1]
    refuse.__doc__ = f"Not in penstock: {instead}."
    return refuse
