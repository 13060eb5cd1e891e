"""The digest of weights does not depend on how they come, and covers every piece."""

import hashlib
import struct

import numpy as np
import pytest
from forgery import without_calls

from neocpu.building.link import WEIGHTS_PIECE, WeightsDigest, write_artifact
from neocpu.foundation.errors import ArtifactError
from neocpu.runtime.artifact import ArtifactFile

CHECKED = 4 << 20
"""Bytes that a reader looks at in one go."""


def crc32c(data):
    """CRC-32C bit by bit (RFC 3720, appendix B.4)."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    found = 0xFFFFFFFF
    for byte in data:
        found = found >> 8 ^ table[(found ^ byte) & 0xFF]
    return found ^ 0xFFFFFFFF


def test_the_reference_is_right():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize(
    "size", [0, 1, 7, 8, 13, WEIGHTS_PIECE - 1, WEIGHTS_PIECE, 6 * WEIGHTS_PIECE + 7]
)
@pytest.mark.parametrize("part", [WEIGHTS_PIECE // 3, 2 * WEIGHTS_PIECE, 5 * WEIGHTS_PIECE + 1])
def test_it_is_that_of_the_pieces_checksums(size, part):
    data = np.random.default_rng(0).bytes(size)
    pieces = (data[i : i + WEIGHTS_PIECE] for i in range(0, size, WEIGHTS_PIECE))
    expected = hashlib.sha256(b"".join(struct.pack("<I", crc32c(piece)) for piece in pieces))
    found = WeightsDigest()
    for start in range(0, size, part):
        found.update(data[start : start + part])
    assert found.digest() == expected.digest()


@pytest.fixture
def heavy(linear, tmp_path):
    """An artifact with weights that are read in three pieces."""
    weights = np.random.default_rng(1).random(5 * CHECKED // 8, "f4")
    path = tmp_path / "heavy.so"
    write_artifact(without_calls(linear, 1), [weights], linear.header, path)
    return path, weights


def test_undamaged_weights_are_found_so(heavy):
    done = []
    file = ArtifactFile(heavy[0])
    file.check_weights(done.append)
    assert done == [CHECKED, 2 * CHECKED, file.variants[0].weight_bytes]
    file.check_weights()  # again


@pytest.mark.parametrize("piece", [0, 1, 2])
def test_damage_is_found_in_every_piece(heavy, piece):
    path, weights = heavy
    data = bytearray(path.read_bytes())
    data[data.index(weights[:64].tobytes()) + piece * CHECKED + 99] ^= 4
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="the weights are damaged"):
        ArtifactFile(path).check_weights()
