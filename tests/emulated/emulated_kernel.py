"""Kernels for CPUs other than the host, compiled as usual and executed in an emulator.

Bochs executes those for x86-64, QEMU those for AArch64.
"""

from __future__ import annotations

import io
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import emulated_cpu
import numpy as np
import tvm
from emulated_cpu import PAGE, EmulationError, Program, Region
from numpy.typing import NDArray
from tvm import tirx

from neocpu.foundation.dtypes import DTYPES
from neocpu.runtime.header import ARGUMENT_ALIGN
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.target import CpuTarget

#: For each CPU that code is made for, the CPU of Bochs that has no further vector extensions.
CPUS: Final = {
    "skylake-avx512": emulated_cpu.SKYLAKE_X,
    "cascadelake": emulated_cpu.ICE_LAKE,
    "alderlake": emulated_cpu.ARROW_LAKE,
    "arrowlake": emulated_cpu.ARROW_LAKE,
    "sapphirerapids": emulated_cpu.SAPPHIRE_RAPIDS,
    "znver4": emulated_cpu.SAPPHIRE_RAPIDS,
}
#: QEMU's name of an ARM CPU; it has all of the others' features in one.
ARM_CPUS: Final = {"cortex-a76": "cortex-a76", "neoverse-v1": "max"}
CROSS, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
THREADS: Final = 3
"""Tasks of a parallel loop that leaves their number open."""

_STACK, _STACK_BYTES = 0x20000000, 1 << 20
_CALL, _TENSORS, _BETWEEN = 0x21000000, 0x22000000, 0x10000
_TENSOR_POINTER = 7  # TVMFFIAny's kind
_BESIDE = 0x5A
_KERNEL = "kernel"
# Bochs takes its short displacements for multiples of 4 bytes, not of 64: it gets them in full.
_PLACES: Final = ("\t.file\t1", "\t.loc\t")
_MISREAD = "vdpbf16ps"
_HERE = Path(__file__).parent
_CORE = _HERE.parent.parent / "core/src"
_HOSTED = (str(_HERE / "hosted_program.c"),)
_FLAT = (
    *("-ffreestanding", "-fno-stack-protector", "-fno-pic", "-mgeneral-regs-only", "-no-pie"),
    *("-nostdlib", "-Wl,-e,start", "-Wl,--build-id=none", str(_HERE / "flat_program.c")),
)


@dataclass(frozen=True, slots=True)
class _Argument:
    """A tensor that ends where its pages end, as nearly as its alignment lets it."""

    address: int
    array: NDArray[np.generic]
    is_writable: bool

    @property
    def region(self) -> Region:
        content = self.array.tobytes()
        before = bytes([_BESIDE]) * (self.start - self.address)
        whole = before + content
        return Region(
            self.address, whole + bytes([_BESIDE]) * (-len(whole) % PAGE), self.is_writable
        )

    @property
    def start(self) -> int:
        return self.address + -self.array.nbytes % PAGE // ARGUMENT_ALIGN * ARGUMENT_ALIGN

    def left(self, region: bytes) -> NDArray[np.generic]:
        """Return what a region holds; nothing may be written beside it."""
        first = self.start - self.address
        last = first + self.array.nbytes
        beside = region[:first] + region[last:]
        assert not beside.strip(bytes([_BESIDE])), "written beside a tensor"
        return np.frombuffer(region[first:last], self.array.dtype).reshape(self.array.shape)


def run(
    func: tirx.PrimFunc,
    target: CpuTarget,
    inputs: Sequence[NDArray[np.generic]],
    outputs: Sequence[NDArray[np.generic]],
    folder: Path,
) -> list[NDArray[np.generic]]:
    """Compile a kernel for one of `CPUS` or `ARM_CPUS`, execute it, and return its outputs.

    Inputs come first and are read-only; ``outputs`` have the contents of their memory before the
    call. Temporary files stay in ``folder``. An `EmulationError` says that the kernel accesses
    memory outside its tensors, fails, or has an instruction that the CPU lacks.
    """
    arguments, at = [], _TENSORS
    for number, one in enumerate((*inputs, *outputs)):
        arguments.append(_Argument(at, np.ascontiguousarray(one), number >= len(inputs)))
        at += (one.nbytes + 2 * _BETWEEN) // _BETWEEN * _BETWEEN
    program = _linked(func, target, folder)
    execute = _in_qemu if target.isa == "neon" else _in_bochs
    found = execute(program, target, arguments, folder)
    written = arguments[len(inputs) :]
    return [argument.left(region) for argument, region in zip(written, found, strict=True)]


def _in_bochs(
    path: Path, target: CpuTarget, arguments: Sequence[_Argument], folder: Path
) -> Sequence[bytes]:
    image = path.read_bytes()
    program = Program(
        CPUS[target.mcpu],
        (
            *_segments(image),
            Region(_STACK - _STACK_BYTES, bytes(_STACK_BYTES)),
            _call(arguments),
            *(argument.region for argument in arguments),
        ),
        entry=struct.unpack_from("<Q", image, 24)[0],
        stack=_STACK - 8,  # as after a call
        arguments=(_CALL, len(arguments)),
        has_tiles="amx-tile" in target.features,
    )
    written = [argument.region for argument in arguments if argument.is_writable]
    return emulated_cpu.execute(program, written, folder)


def _in_qemu(
    program: Path, target: CpuTarget, arguments: Sequence[_Argument], folder: Path
) -> Sequence[bytes]:
    regions = [argument.region for argument in arguments]
    sizes = [
        f"{'' if one.is_writable else '<'}{len(region.content)}:{one.start - one.address}"
        for one, region in zip(arguments, regions, strict=True)
    ]
    command = [QEMU, "-cpu", ARM_CPUS[target.mcpu], program, *sizes]
    done = subprocess.run(
        command, input=b"".join(region.content for region in regions), capture_output=True
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise EmulationError(f"exit status {done.returncode}: {said[-1] if said else ''}")
    written = io.BytesIO(done.stdout)
    return [written.read(len(region.content)) for region in regions if region.is_writable]


def _linked(func: tirx.PrimFunc, target: CpuTarget, folder: Path) -> Path:
    """Return a program that calls ``func``: for bare memory, or where it runs for Linux."""
    module = tvm.IRModule({_KERNEL: func.with_attr("global_symbol", _KERNEL)})
    built = tvm.tirx.build(module, target.to_tvm(), pipeline=PIPELINE)
    kernel = folder / "kernel.o"
    text = str(built.inspect_source("asm"))
    if _MISREAD in text:
        kernel = kernel.with_suffix(".s")
        # Older assemblers cannot read the source positions of lines.
        lines = [line for line in text.splitlines() if not line.startswith(_PLACES)]
        kernel.write_text("\n".join(lines).replace(_MISREAD, f"{{disp32}} {_MISREAD}") + "\n")
    else:
        built.write_to_file(str(kernel), "o")
    is_arm = target.isa == "neon"
    command = [
        *((CROSS, "-O1", "-static", *_HOSTED) if is_arm else ("cc", "-O1", "-static", *_FLAT)),
        *("-Wall", f"-DKERNEL=__tvm_ffi_{_KERNEL}", f"-DTHREADS={THREADS}", f"-iquote{_CORE}"),
        *(str(kernel), "-o", "program"),
    ]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def _segments(image: bytes) -> Iterator[Region]:
    """Yield the segments of a 64-bit ELF program that are in memory."""
    (table,), (size, count) = (
        struct.unpack_from(kind, image, at) for kind, at in (("<Q", 32), ("<HH", 54))
    )
    for header in range(table, table + size * count, size):
        kind, flags, offset, address, _, in_file, in_memory, _ = struct.unpack_from(
            "<IIQQQQQQ", image, header
        )
        if kind == 1:  # PT_LOAD
            content = image[offset : offset + in_file] + bytes(in_memory - in_file)
            before, after = address % PAGE, -(address + in_memory) % PAGE
            yield Region(address - before, bytes(before) + content + bytes(after), bool(flags & 2))


def _call(arguments: Sequence[_Argument]) -> Region:
    """Return the values of a call, and the descriptions of tensors that they point to."""
    values, tensors, extents = b"", b"", b""
    described = _CALL + 16 * len(arguments)
    shapes = described + 48 * len(arguments)
    for one in arguments:
        array = one.array
        code, bits = DTYPES[array.dtype.name].code, DTYPES[array.dtype.name].bits
        values += struct.pack("<iIQ", _TENSOR_POINTER, 0, described + len(tensors))
        tensors += struct.pack(
            "<QiiiBBHQQQ", one.start, 1, 0, array.ndim, code, bits, 1, shapes + len(extents), 0, 0
        )
        extents += struct.pack(f"<{array.ndim}q", *array.shape)
    whole = values + tensors + extents
    return Region(_CALL, whole + bytes(-len(whole) % PAGE))
