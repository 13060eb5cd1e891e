"""Transposing a square of vectors in registers."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as T


def transpose(rows: list[Any]) -> list[Any]:
    """Transpose a square of vectors; each round exchanges off-diagonal blocks of twice the size."""
    edge, stride = len(rows), 1
    while stride < edge:
        low = [j + edge - stride if j & stride else j for j in range(edge)]
        high = [j + edge if j & stride else j + stride for j in range(edge)]
        result = list(rows)
        for k in range(edge):
            if not k & stride:
                pair = [rows[k], rows[k | stride]]
                result[k] = T.Bind(T.Shuffle(pair, low))
                result[k | stride] = T.Bind(T.Shuffle(pair, high))
        rows, stride = result, stride * 2
    return rows
