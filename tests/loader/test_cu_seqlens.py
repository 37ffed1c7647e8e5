"""`ps.cu_seqlens`, compared with runs in plain Python and with attention in torch."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps


@given(st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), max_size=6))
def test_each_run_of_a_row_is_a_sequence(rows: list[list[int]]) -> None:
    lengths = [len(list(run)) for row in rows for _, run in groupby(row)]
    found = ps.cu_seqlens(np.array(rows, np.int32).reshape(-1, 5))
    assert found.dtype == np.int32
    assert found.tolist() == [0, *np.cumsum(lengths)]
    if rows:
        assert ps.cu_seqlens(rows[0]).tolist() == ps.cu_seqlens(rows[:1]).tolist()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    tokens = [list(range(1, n + 1)) for n in (5, 30, 7, 12, 9, 25, 3)]
    path = tmp_path_factory.mktemp("rows") / "docs.arrow"
    ps.write({"tokens": tokens}, path)
    return ps.packed(ps.open(path), "tokens", 16)


def test_map_adds_them_to_the_batches_of_torch(packed: ps.Dataset) -> None:
    torch = pytest.importorskip("torch")

    def with_boundaries(batch: dict[str, Any]) -> dict[str, Any]:
        found = ps.cu_seqlens(batch["document"])
        return {**batch, "cu_seqlens": found, "max_seqlen": int(np.diff(found).max())}

    for batch in ps.Loader(packed, 4, map=with_boundaries, uneven="pad").torch():
        assert batch["cu_seqlens"].dtype == torch.int32
        assert batch["cu_seqlens"][-1] == batch["tokens"].numel()
        assert 0 < batch["max_seqlen"] <= 16


def test_attention_by_sequence_is_attention_within_documents(packed: ps.Dataset) -> None:
    torch = pytest.importorskip("torch")
    attention = torch.nn.functional.scaled_dot_product_attention
    batch = next(iter(ps.Loader(packed, 4).torch()))
    document = batch["document"]
    rows, length = document.shape
    query, key, value = torch.randn(3, rows, 2, length, 8, dtype=torch.float64)
    may_attend = (document[:, None, :, None] == document[:, None, None, :]).tril()
    masked = attention(query, key, value, attn_mask=may_attend)

    found = ps.cu_seqlens(document).tolist()
    flat = [part.transpose(1, 2).reshape(rows * length, 2, 8) for part in (query, key, value)]
    parts = [
        attention(*(part[a:b].transpose(0, 1) for part in flat), is_causal=True).transpose(0, 1)
        for a, b in pairwise(found)
    ]
    joined = torch.cat(parts).reshape(rows, length, 2, 8).transpose(1, 2)
    assert torch.allclose(masked, joined)


@pytest.mark.parametrize("wrong", [np.zeros((2, 3)), np.zeros((1, 2, 3), int), [[1], [1, 2]]])
def test_other_arrays_are_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        ps.cu_seqlens(wrong)


def test_rows_that_only_fill_a_batch_have_documents(packed: ps.Dataset, tmp_path: Path) -> None:
    *_, last = ps.Loader(packed, 4, uneven="pad")
    assert ps.cu_seqlens(last["document"])[-1] == 64
