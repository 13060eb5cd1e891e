"""The weights' digest: the same however they come, and of every piece."""

import hashlib

import numpy as np
import pytest
from forgery import without_calls

from neocpu.building.link import write_artifact
from neocpu.building.weights_digest import WEIGHTS_PIECE, WeightsDigest
from neocpu.foundation.errors import ArtifactError
from neocpu.runtime.artifact import ArtifactFile


@pytest.mark.parametrize("size", [0, 1, WEIGHTS_PIECE - 1, WEIGHTS_PIECE, 2 * WEIGHTS_PIECE + 7])
@pytest.mark.parametrize("part", [WEIGHTS_PIECE // 3, 3 * WEIGHTS_PIECE])
def test_it_is_that_of_the_pieces_digests(size, part):
    data = np.random.default_rng(0).bytes(size)
    pieces = (data[i : i + WEIGHTS_PIECE] for i in range(0, size, WEIGHTS_PIECE))
    expected = hashlib.sha256(b"".join(hashlib.sha256(piece).digest() for piece in pieces))
    found = WeightsDigest()
    for start in range(0, size, part):
        found.update(data[start : start + part])
    assert found.digest() == expected.digest()


@pytest.fixture
def heavy(linear, tmp_path):
    """An artifact with three pieces of weights."""
    weights = np.random.default_rng(1).random(5 * WEIGHTS_PIECE // 8, "f4")
    path = tmp_path / "heavy.so"
    write_artifact(without_calls(linear, 1), [weights], linear.header, path)
    return path, weights


def test_undamaged_weights_are_found_so(heavy):
    done = []
    file = ArtifactFile(heavy[0])
    file.check_weights(done.append)
    assert done == [WEIGHTS_PIECE, 2 * WEIGHTS_PIECE, file.variants[0].weight_bytes]
    file.check_weights()  # again


@pytest.mark.parametrize("piece", [0, 1, 2])
def test_damage_is_found_in_every_piece(heavy, piece):
    path, weights = heavy
    data = bytearray(path.read_bytes())
    data[data.index(weights[:64].tobytes()) + piece * WEIGHTS_PIECE + 99] ^= 4
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="the weights are damaged"):
        ArtifactFile(path).check_weights()
