"""Arrays from untrusted files are read exactly, or refused in one line with exit code 2."""

import contextlib
import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hostile_arrays import BAD, GOOD, X, npy, shaped
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neocpu.cli.array_files.arrays import read_archive, read_inputs, read_named
from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec

SPEC = TensorSpec("x", "float32", (4, 64))
MEMORY = 4 << 20
"""Bytes that reading may take at most: the input itself has a thousand."""


def read(path):
    """Read an array, and check the memory that reading takes."""
    tracemalloc.start()
    try:
        if path.suffix == ".npz":
            return read_archive(path, [SPEC])["x"]
        return read_named([str(path)], [SPEC])["x"]
    finally:
        assert tracemalloc.get_traced_memory()[1] < MEMORY
        tracemalloc.stop()


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("packed", [False, True])
def test_bad_files_exit_with_2_and_one_line(cli, linear, name, packed):
    path = Path("bad.npz" if packed else "bad.npy")
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", BAD[name])
    else:
        path.write_bytes(BAD[name])
    cli("run", linear.path, "--inputs" if packed else "--input", path).fails(2, str(path))
    with pytest.raises(UsageError):
        read(path)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
@pytest.mark.parametrize("save", ["npy", "npz", "compressed", "version 2", "in order"])
def test_arrays_written_by_numpy_are_read(order, dtype, save):
    x = np.array(X, dtype, order=order)
    path = Path("x.npy" if save in ("npy", "version 2") else "x.npz")
    if save == "version 2":
        with path.open("wb") as file:
            np.lib.format.write_array(file, x, version=(2, 0))
    else:
        arguments = {"npy": (np.save, (x,), {}), "npz": (np.savez, (), {"x": x})}.get(
            save, (np.savez_compressed, (x,), {})
        )
        arguments[0](path, *arguments[1], **arguments[2])
    assert np.array_equal(read(path), X)


def test_scalars_and_booleans():
    np.save("scalar.npy", np.float64(3.5))
    assert read_named(["scalar.npy"], [TensorSpec("s", "float64", ())])["s"] == 3.5
    flags = npy(shaped("(3,)", "'|b1'"), bytes([0, 1, 200]))
    Path("flags.npy").write_bytes(flags)
    found = read_named(["flags.npy"], [TensorSpec("f", "bool", (3,))])["f"]
    assert found.view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bomb_is_not_unpacked(method):
    """The file has 16 MB of zeros in a few kilobytes, as an input and as an unknown one."""
    for name, header in (("x", GOOD), ("x", shaped("(4000000,)")), ("bomb", GOOD)):
        with zipfile.ZipFile("bomb.npz", "w", method) as archive:
            with archive.open(f"{name}.npy", "w") as member:
                member.write(npy(header, b""))
                for _ in range(16):
                    member.write(bytes(1 << 20))
        if (name, header, method) == ("x", GOOD, zipfile.ZIP_DEFLATED):
            assert not read(Path("bomb.npz")).any()  # as numpy does, no more than it declares
        else:
            with pytest.raises(UsageError):
                read(Path("bomb.npz"))


def damaged(data):
    """Return strategies of a file with some bytes changed, and perhaps cut short."""
    change = st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255))

    def apply(changes, end):
        copy = bytearray(data)
        for place, value in changes:
            copy[place] = value
        return bytes(copy[:end])

    ends = st.one_of(st.just(len(data)), st.integers(0, len(data)))
    return st.builds(apply, st.lists(change, min_size=1, max_size=4), ends)


def archive(compressed):
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, x=X)
    return buffer.getvalue()


HEADERS = st.one_of(
    damaged(npy(GOOD.ljust(117) + "\n", b"")),
    st.text(st.sampled_from("{}[](),:'\"<>|=f4b1OL0123456789-+.eTrue \n\\descrshape")).map(
        lambda text: npy(text.encode(), b"")
    ),
    st.tuples(st.integers(-(2**70), 2**70), st.integers(-3, 300)).map(
        lambda shape: npy(shaped(str(shape)), b"")
    ),
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.one_of(
        HEADERS.map(lambda start: (".npy", start + X.tobytes())),
        damaged(archive(False)).map(lambda data: (".npz", data)),
        damaged(archive(True)).map(lambda data: (".npz", data)),
    )
)
def test_any_damage_is_one_kind_of_error(file):
    suffix, data = file
    path = Path(f"x{suffix}")
    path.write_bytes(data)
    with contextlib.suppress(UsageError):
        found = read(path)
        assert (found.dtype.newbyteorder("="), found.shape) == (X.dtype, X.shape)


@pytest.mark.parametrize(("shapes", "hint"), [(((1, 8), (4, 8)), True), (((1, 8), (1, 9)), False)])
def test_another_batch_is_only_offered_where_a_set_takes_one(shapes, hint):
    np.save("x.npy", np.zeros((3, 7), np.float32))
    choices = [[TensorSpec("x", "float32", shape)] for shape in shapes]
    with pytest.raises(UsageError) as error:
        read_inputs(None, ["x.npy"], choices)
    assert ("--shape names another batch" in error.value.args[0]) == hint
