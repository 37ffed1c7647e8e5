"""What is measured: one file for each kind of work. The order of this list is the order of the table."""

from __future__ import annotations

from benchmarks.cases import (
    access,
    arrays,
    choosing,
    containers,
    fields,
    images,
    loading,
    process,
    programs,
    reading,
    writing,
)
from benchmarks.cases.case import Case, Goal

CASES: tuple[Case, ...] = (
    *reading.CASES,
    *writing.CASES,
    *fields.CASES,
    *choosing.CASES,
    *access.CASES,
    *containers.CASES,
    *arrays.CASES,
    *loading.CASES,
    *images.CASES,
    *programs.CASES,
    *process.CASES,
)

__all__ = ["CASES", "Case", "Goal"]
