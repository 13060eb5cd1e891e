"""An x86-64 CPU in a process of its own: bare memory, and one program that runs to its end.

Bochs executes it, by the package ``bochscpu-python``. `execute` starts the process, which has one
CPU because Bochs has only one.
"""

from __future__ import annotations

import ctypes
import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tile_unit import TileError, TileUnit, length

PAGE: Final = 4096

#: Where Bochs numbers them in its list of CPUs: an Intel Core i7-7800X, a Core i7-1065G7 (VNNI), a
#: Xeon w9-3475X (VNNI, AVX-VNNI, BF16) and a Core Ultra 5 245K (AVX-VNNI, and no AVX-512).
SKYLAKE_X, ICE_LAKE, SAPPHIRE_RAPIDS, ARROW_LAKE = 26, 28, 30, 31

_UNDEFINED: Final = 6
_FAULTS: Final = {
    _UNDEFINED: "an instruction that this CPU lacks",
    13: "a fault",
    14: "a page fault",
}
# OSFXSR, OSXMMEXCPT and OSXSAVE of CR4; what an operating system sets in XCR0 for AVX-512.
_CR4_VECTORS, _XCR0_VECTORS = 1 << 9 | 1 << 10 | 1 << 18, 0xE7
_MXCSR, _MXCSR_MASK = 0x1F80, 0xFFFF
_PAGE_TABLES, _FIRST_FRAME = 0x100000, 0x10000000


class EmulationError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Region:
    """Whole pages of memory; what lies around them cannot be accessed."""

    address: int
    content: bytes
    is_writable: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """The contents of memory, and addresses of the first instruction and of the stack's end.

    The C function at the entry has two ``arguments`` at most and ends with HLT. With ``has_tiles``
    it uses AMX, which this build of Bochs lacks.
    """

    cpu: int
    memory: tuple[Region, ...]
    entry: int
    stack: int
    arguments: tuple[int, ...]
    has_tiles: bool = False


def execute(program: Program, results: Sequence[Region], folder: Path) -> list[bytes]:
    """Run a program and return what it left in the regions ``results`` of its memory.

    Temporary files stay in ``folder``. An `EmulationError` says why and at which address it did not
    run to its end.
    """
    asked, answer = folder / "asked", folder / "answer"
    asked.write_bytes(pickle.dumps((program, tuple(results), _missing_names(folder))))
    command = [sys.executable, "-c", "import emulated_cpu; emulated_cpu.serve()", asked, answer]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    if done.returncode:
        raise EmulationError(done.stderr.strip().splitlines()[-1])
    found: list[bytes] = pickle.loads(answer.read_bytes())
    return found


def _missing_names(folder: Path) -> Path | None:
    """Return a library of the functions of newer C libraries that Bochs is linked with, if any."""
    if hasattr(ctypes.CDLL(None), "__isoc23_sscanf"):
        return None
    library = folder / "libc_names.so"
    source = Path(__file__).with_name("libc_names.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def serve() -> None:
    """Run a program in this process; its arguments name the files of request and answer."""
    asked, answer = map(Path, sys.argv[1:])
    program, results, names = pickle.loads(asked.read_bytes())
    if names:
        ctypes.CDLL(str(names), mode=ctypes.RTLD_GLOBAL)
    _load_bochs()
    try:
        answer.write_bytes(pickle.dumps(_run(program, results)))
    except EmulationError as error:
        sys.exit(str(error))


def _load_bochs() -> None:
    """Load Bochs's library by its path.

    The wheel for Python 3.12 and newer calls the library as if it were for 3.12 alone, so that 3.13
    would not find it.
    """
    package = importlib.util.find_spec("bochscpu")
    assert package is not None
    assert package.submodule_search_locations is not None
    (library,) = Path(package.submodule_search_locations[0]).glob("_bochscpu*.so")
    spec = importlib.util.spec_from_file_location("bochscpu._bochscpu", library)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])


def _run(program: Program, results: Sequence[Region]) -> list[bytes]:
    import bochscpu  # type: ignore[import-not-found]
    import bochscpu.cpu
    import bochscpu.memory as memory

    _choose_cpu(program.cpu)
    session = bochscpu.Session()
    tables, pages, frame = memory.PageMapLevel4Table(), {}, _FIRST_FRAME
    for region in program.memory:
        assert region.address % PAGE == len(region.content) % PAGE == 0, hex(region.address)
        for at in range(0, len(region.content), PAGE):
            pages[region.address + at] = memory.allocate_host_page()
            ctypes.memmove(pages[region.address + at], region.content[at : at + PAGE], PAGE)
            memory.page_insert(frame, pages[region.address + at])
            tables.insert(region.address + at, frame, int(region.is_writable))
            frame += PAGE
    for page, table in tables.commit(_PAGE_TABLES):
        memory.page_insert(table, page)
    session.cpu.state = _state(program)
    _until_halted(session, TileUnit(*_memory(pages)) if program.has_tiles else None)
    if status := session.cpu.state.rax & 0xFFFFFFFF:
        raise EmulationError(f"the program returned {status}")
    return [
        b"".join(
            ctypes.string_at(pages[region.address + at], PAGE)
            for at in range(0, len(region.content), PAGE)
        )
        for region in results
    ]


def _choose_cpu(number: int) -> None:
    from bochscpu import _bochscpu

    bochs = ctypes.CDLL(_bochscpu.__file__)
    bochs.sim_get_param_enum.restype = ctypes.c_void_p
    model = ctypes.c_void_p(bochs.sim_get_param_enum(b"cpu.model"))
    bochs._ZN14bx_param_num_c3setEl(model, ctypes.c_long(number))  # bx_param_num_c::set(long)


def _state(program: Program) -> Any:
    """Return the CPU as an operating system leaves it to a program, but for its privileges."""
    import bochscpu

    state = bochscpu.State()
    bochscpu.cpu.set_long_mode(state)
    state.cr3, state.cr4 = _PAGE_TABLES, state.cr4 | _CR4_VECTORS
    state.xcr0, state.mxcsr, state.mxcsr_mask = _XCR0_VECTORS, _MXCSR, _MXCSR_MASK
    state.rip, state.rsp, state.rflags = program.entry, program.stack, 2
    for register, value in zip(("rdi", "rsi"), program.arguments, strict=False):
        setattr(state, register, value)
    code, data = bochscpu.Segment(), bochscpu.Segment()
    for segment, selector, attributes in ((code, 0x08, 0x209B), (data, 0x10, 0xC93)):
        segment.present, segment.selector, segment.attr = True, selector, attributes
        segment.base, segment.limit = 0, 0xFFFFFFFF
    state.cs = code
    state.ds = state.es = state.fs = state.gs = state.ss = data
    return state


def _memory(
    pages: Mapping[int, int],
) -> tuple[Callable[[int, int], bytes], Callable[[int, bytes], None]]:
    """Return functions that read and write the program's memory."""

    def places(address: int, size: int) -> Iterator[tuple[int, int]]:
        while size > 0:
            at = address % PAGE
            if address - at not in pages:
                raise TileError(f"no memory at {address:#x}")
            part = min(size, PAGE - at)
            yield pages[address - at] + at, part
            address, size = address + part, size - part

    def read(address: int, size: int) -> bytes:
        return b"".join(ctypes.string_at(place, part) for place, part in places(address, size))

    def write(address: int, content: bytes) -> None:
        done = 0
        for place, part in places(address, len(content)):
            ctypes.memmove(place, content[done : done + part], part)
            done += part

    return read, write


def _until_halted(session: Any, tiles: TileUnit | None) -> None:
    import bochscpu

    faults: list[str] = []
    undefined: list[int] = []

    def fault(session: Any, _: int, vector: int, code: int) -> None:
        cpu = session.cpu
        if vector == _UNDEFINED and tiles is not None:
            undefined.append(cpu.rip)
        else:
            where = f", address {cpu.cr2:#x}" if vector == 14 else ""
            faults.append(f"{_FAULTS.get(vector, 'a fault')} ({vector}) before {cpu.rip:#x}{where}")
        session.stop()

    def absent(frame: int) -> None:
        faults.append(f"no memory at {frame:#x}")

    hook = bochscpu.Hook()
    hook.exception, hook.hlt = fault, lambda session, _: session.stop()
    session.missing_page_handler = absent
    session.run([hook])
    while undefined and not faults:
        assert tiles is not None
        _do(session, tiles, undefined.pop())
        session.run([hook])
    if not faults and tiles is not None and tiles.is_configured:
        faults.append("tiles were left configured")
    if faults:
        raise EmulationError(faults[0])


def _do(session: Any, tiles: TileUnit, end: int) -> None:
    """Execute the instruction that ends at an address, and continue after it."""
    state = session.cpu.state
    for size in (5, 6, 7, 10, 9):
        try:
            code = tiles.read(end - size, size) + bytes(16)
        except TileError:
            continue
        if length(code) == size:
            break
    else:
        raise EmulationError(f"{_FAULTS[_UNDEFINED]} before {end:#x}")
    try:
        tiles.step(code, lambda name: int(getattr(state, name)))
    except TileError as error:
        raise EmulationError(f"{error} (before {end:#x})") from None
    state.rip = end
    session.cpu.state = state
