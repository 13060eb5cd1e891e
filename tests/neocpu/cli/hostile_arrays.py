"""Malformed files of arrays that readers of ``.npy`` have to refuse."""

import numpy as np

X = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 64)}"


def npy(
    header: str | bytes, data: bytes = X.tobytes(), version: int = 1, length: int = -1
) -> bytes:
    """Return a file with a header that claims ``length`` bytes."""
    text = header.encode("latin-1") if isinstance(header, str) else header
    size = len(text) if length < 0 else length
    prefix = size.to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + prefix + text + data


def shaped(shape: str, dtype: str = "'<f4'", fortran: str = "False") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': {fortran}, 'shape': {shape}}}"


BAD = {
    "huge shape": npy(shaped("(1000000000, 64)")),
    "shape beyond 64 bits": npy(shaped(f"({10**30}, 64)")),
    "extent of 5,000 digits": npy(shaped(f"({'9' * 5000},)")),
    "boolean shape": npy(shaped("(True, 64)")),
    "negative shape": npy(shaped("(-4, 64)")),
    "negative zero": npy(shaped("(4, -0.0)")),
    "shape of floats": npy(shaped("(4.0, 64)")),
    "shape that is a list": npy(shaped("[4, 64]")),
    "shape that is a number": npy(shaped("256")),
    "no shape": npy("{'descr': '<f4', 'fortran_order': False}"),
    "another key": npy(GOOD[:-1] + ", 'more': 1}"),
    "a list": npy("[4, 64]"),
    "code": npy("__import__('os').getpid()"),
    "a thousand parentheses": npy("(" * 1000),
    "ten thousand signs": npy("-" * 10000 + "1"),
    "unhashable key": npy("{[]: 1}"),
    "zero bytes": npy(b"\0" * 64),
    "not text": npy(b"\xff\xfe" * 32, version=3),
    "order that is a number": npy(shaped("(4, 64)", fortran="0")),
    "objects": npy(shaped("(4, 64)", "'|O'")),
    "text": npy(shaped("(4, 64)", "'<U4'")),
    "dates": npy(shaped("(4, 64)", "'<M8[s]'")),
    "structures": npy(shaped("(4, 64)", "[('a', '<f4')]")),
    "structure in short": npy(shaped("(4, 64)", "'f4,f4'")),
    "endless items": npy(shaped("(4, 64)", "'V2000000000'")),
    "complex": npy(shaped("(4, 64)", "'<c8'")),
    "unknown dtype": npy(shaped("(4, 64)", "'<f7'")),
    "header of a gigabyte": npy(GOOD, version=2, length=1 << 30),
    "header of four": npy(GOOD, version=2, length=(1 << 32) - 1),
    "header beyond the end": npy(GOOD, b"", length=5000),
    "unknown version": npy(GOOD, version=9),
    "no data": npy(GOOD, b""),
    "cut short": npy(GOOD, X.tobytes()[:-1]),
    "magic alone": b"\x93NUMPY",
    "empty": b"",
    "archive": b"PK\x03\x04",
}
