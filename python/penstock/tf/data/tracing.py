"""Finds the specs of a function's results from the specs of its argument, by calling it with placeholders."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.data.op import looking, merged_specs, specs_of, with_shape
from penstock.tf.nest import map_structure
from penstock.tf.placeholders import placeholder
from penstock.tf.probing import NotRecorded
from penstock.tf.shapes import TensorSpec

_NONE = object()
_NEEDED = 2
"""The number of runs that must succeed. A single run does not show which sizes are known."""


def traced(function: Callable[[Any], Any], spec: Any) -> Any:
    """The specs of a function's result.

    Args:
        function: a function from an element to an element, or to specs.
        spec: the specs of its argument.

    Returns:
        The specs, or None if the function does not take placeholders.
    """
    runs = (_run(function, spec, run) for run in range(probing.RUNS))
    found = [specs for specs in runs if specs is not _NONE]
    if len(found) < _NEEDED:
        return None
    made = found[0]
    try:
        for other in found[1:]:
            made = merged_specs(made, other)
    except (ValueError, TypeError):
        return None
    return map_structure(_without_zeros, made, lists=False)


def _without_zeros(spec: Any) -> Any:
    """A spec whose sizes of 0 are unknown: the placeholders may have been shorter than elements are, as in `x[1000:]`."""
    if type(spec) is not TensorSpec or spec.shape.rank is None or 0 not in spec.shape:
        return spec
    return with_shape(spec, [size or None for size in spec.shape])


def _run(function: Callable[[Any], Any], spec: Any, run: int) -> Any:
    """The specs that one run finds; _NONE if the function fails, for whatever reason, with these placeholders."""
    try:
        with looking(), probing.probing(run), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return specs_of(function(placeholder(spec)))
    except (Exception, NotRecorded):
        return _NONE
