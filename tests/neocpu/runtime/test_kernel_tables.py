"""Tables of kernels that point out of the code: refused in one line, before they are followed."""

import struct
from pathlib import Path

import pytest
from forgery import forge

from neocpu.building.elf import read_elf
from neocpu.foundation.errors import ArtifactError
from neocpu.runtime.module import load

# Of `nc_kernel_table` and of `nc_kernel` (core/src/kernel_table.h): where their fields are.
TABLE = {"magic": 0, "count": 8, "kernels": 16, "launch": 24}
KERNEL = {"name": 0, "function": 8, "sizes": 16, "types": 24, "loops": 32}
COUNTS = {"count": 40, "results": 44, "launch_count": 48}
RELOCATION = struct.Struct("<QQq")
OUTSIDE = (-8, 1 << 30, 1 << 40, -(1 << 62))


class Table:
    """The table of kernels of an artifact, as bytes to be changed."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        (self.entry,) = struct.unpack_from("<Q", data, 24)
        section = read_elf(memoryview(data)).find(".rela.dyn")
        assert section is not None
        places = range(section.offset, section.offset + section.size, RELOCATION.size)
        self._relocations = {struct.unpack_from("<Q", data, place)[0]: place for place in places}

    def address(self, field: int) -> int:
        """Return what a field points at."""
        return int(RELOCATION.unpack_from(self._data, self._relocations[field])[2])

    def point(self, field: int, address: int) -> None:
        """Let a field point elsewhere."""
        place = self._relocations[field]
        where, kind, _ = RELOCATION.unpack_from(self._data, place)
        RELOCATION.pack_into(self._data, place, where, kind, address)

    def write(self, address: int, value: bytes) -> None:
        """Write to the segment that is loaded at an address."""
        start, size, count = struct.unpack_from("<Q14xHH", self._data, 32)
        for place in range(start, start + size * count, size):
            _, _, offset, base, _, length, _, _ = struct.unpack_from("<IIQQQQQQ", self._data, place)
            if base <= address < base + length and struct.unpack_from("<I", self._data, place) == (
                1,
            ):
                inside = offset + address - base
                self._data[inside : inside + len(value)] = value
                return
        raise AssertionError("no segment")


def refuse(source: Path, path: Path, change, problem: str) -> None:
    forge(source, path, change)
    with pytest.raises(ArtifactError) as caught:
        load(path)
    assert str(caught.value) == (
        f"cannot load the code of {path}: {problem}; compile the model again with `neocpu compile`"
    )


@pytest.mark.parametrize("field", KERNEL)
@pytest.mark.parametrize("address", OUTSIDE)
def test_what_a_kernel_points_at_is_in_the_code(linear, tmp_path, field, address):
    def change(data: bytearray) -> None:
        table = Table(data)
        table.point(table.address(table.entry + TABLE["kernels"]) + KERNEL[field], address)

    said = {"sizes": "tensors' sizes", "types": "tensors' types"}.get(field, field)
    refuse(linear.path, tmp_path / "a.so", change, f"its kernel 0 has its {said} outside the code")


def test_a_function_in_the_constants_is_none(linear, tmp_path):
    def change(data: bytearray) -> None:
        table = Table(data)
        table.point(table.address(table.entry + TABLE["kernels"]) + KERNEL["function"], table.entry)

    refuse(linear.path, tmp_path / "a.so", change, "its kernel 0 has its function outside the code")


@pytest.mark.parametrize("address", [*OUTSIDE, 0, "function"])
def test_the_runtime_s_functions_go_into_variables_of_the_code(linear, tmp_path, address):
    """The runtime writes to them: elsewhere it would damage the process, or fault."""

    def change(data: bytearray) -> None:
        table = Table(data)
        kernel = table.address(table.entry + TABLE["kernels"])
        place = (
            table.address(kernel + KERNEL["function"]) & -8 if address == "function" else address
        )
        table.point(table.entry + TABLE["launch"], place)

    problem = "its table of kernels has variables outside the code"
    refuse(linear.path, tmp_path / "a.so", change, problem)


@pytest.mark.parametrize("count", [1 << 16, 1 << 32, (1 << 32) + 1, (1 << 64) // 7, (1 << 64) - 1])
def test_kernels_are_as_many_as_there_is_room_for(linear, tmp_path, count):
    def change(data: bytearray) -> None:
        table = Table(data)
        table.write(table.entry + TABLE["count"], struct.pack("<Q", count))

    problem = "its table of kernels has kernels outside the code"
    refuse(linear.path, tmp_path / "a.so", change, problem)


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("count", "has its tensors' sizes outside the code"),
        ("launch_count", "has its loops outside the code"),
        ("results", "writes more tensors than it takes"),
    ],
)
def test_a_kernel_s_numbers_are_of_what_is_there(linear, tmp_path, field, problem):
    def change(data: bytearray) -> None:
        table = Table(data)
        kernel = table.address(table.entry + TABLE["kernels"])
        table.write(kernel + COUNTS[field], b"\xff" * 4)

    refuse(linear.path, tmp_path / "a.so", change, f"its kernel 0 {problem}")
