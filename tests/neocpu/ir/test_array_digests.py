"""Digests of weights."""

import hashlib

import ml_dtypes
import numpy as np

from neocpu.ir import array_digests
from neocpu.ir.array_digests import ArrayDigests

MATRIX = np.random.default_rng(0).normal(size=(700, 500)).astype("float32")


def test_only_equal_arrays_have_equal_digests():
    found = ArrayDigests()
    others = (MATRIX, MATRIX.T, MATRIX.reshape(500, 700), MATRIX[1:], MATRIX[:, 1:])
    others = (*others, MATRIX.astype(ml_dtypes.bfloat16), MATRIX.view("int32"), MATRIX[:0])
    assert len({found.of(each) for each in others}) == len(others)
    assert found.of(MATRIX.copy()) == found.of(MATRIX)
    assert ArrayDigests().of(np.asfortranarray(MATRIX).T) == found.of(np.asfortranarray(MATRIX).T)


def test_arrays_that_share_memory_are_read_once(monkeypatch):
    read = 0

    def counting(data):
        nonlocal read
        read += data.size
        return hashlib.sha256(data.data).digest()

    monkeypatch.setattr(array_digests, "_digest_of_piece", counting)
    found = ArrayDigests()
    first = found.of(MATRIX)
    assert read == MATRIX.nbytes
    assert found.of(MATRIX.reshape(MATRIX.shape)) == first
    assert found.of(MATRIX.T) != first  # of the same bytes
    found.of_elements(MATRIX.reshape(-1))
    assert read == MATRIX.nbytes
