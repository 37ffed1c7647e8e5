"""Finds the specs of a function's results from the specs of its argument, by calling it with placeholders."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.data.op import looking, merged_specs, specs_of
from penstock.tf.placeholders import placeholder
from penstock.tf.probing import NotRecorded

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
    return made


def _run(function: Callable[[Any], Any], spec: Any, run: int) -> Any:
    """The specs that one run finds; _NONE if the function fails, for whatever reason, with these placeholders."""
    try:
        with looking(), probing.probing(run), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return specs_of(function(placeholder(spec)))
    except (Exception, NotRecorded):
        return _NONE
