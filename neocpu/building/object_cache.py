"""Machine code of kernels, kept from one compilation to the next.

A kernel's name, and which tensors of a model it makes, change none of its code: each is generated
under one name (`SYMBOL`), and given its own when it is taken. So networks share what they have in
common, and an artifact is the same to the last bit whether its code was found or generated.

What is kept is found by a digest of all that decides it: what the function computes, or what it is
made by (`passes.recipes`), the target, and everything that generates code: TVM with its LLVM, and
our own sources, read and not believed by their version, for in a checkout they change without one.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.target import codegen

from neocpu.foundation.file_cache import FileCache
from neocpu.lowering.recipes import RECIPE
from neocpu.schedules.estimates.kernel_work import KernelWork, LoopWork
from neocpu.schedules.estimates.shortcomings import Shortcoming
from neocpu.schedules.vocabulary.target import CpuTarget

FOLDER_VARIABLE: Final = "NEOCPU_CACHE_DIR"
"""Names the folder; ``off`` has nothing kept."""
OFF: Final = "off"

LIMIT: Final = 1 << 30
"""Bytes of all that is kept: about a thousand networks."""

SYMBOL: Final = "kernel"
"""Name of every function whose code is generated."""

ORIGIN: Final = "neocpu.origin"
"""Attribute of a function: names of the model's tensors that it computes."""

_GENERATING: Final = (
    "neocpu.foundation",
    "neocpu.schedules",
    "neocpu.tuning_db",
    "neocpu.compilation.network_tuning",
    "neocpu.ir",
    "neocpu.planning",
    "neocpu.graph",
    "neocpu.lowering",
    "neocpu.building",
)
"""Packages and modules whose sources decide what code a kernel becomes, and what is known of it."""

_FORM: Final = "3"
"""Changes where entries are written otherwise than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    """The machine code of one function.

    Attributes
    ----------
    code : bytes
        An object file, in which the function is called `SYMBOL`.
    launches : tuple of int
        The iterations of its parallel loops, in turn; 0 for unknown ones.
    parameters : tuple of (str, tuple of int, str)
        Name, shape and element type of each.
    attributes : dict of str to int or str
        What else is known of it.
    work : tuple of LoopWork
        What its loops compute and touch.
    lacks : tuple of Shortcoming
        What is not as it should be.
    """

    code: bytes
    launches: tuple[int, ...]
    parameters: tuple[tuple[str, tuple[int, ...], str], ...]
    attributes: dict[str, int | str]
    work: KernelWork
    lacks: tuple[Shortcoming, ...] = ()

    def encode(self) -> bytes:
        """Return it as bytes."""
        work = [nest.to_json() for nest in self.work]
        known = [self.launches, self.parameters, self.attributes, work]
        head = json.dumps([*known, [each.to_json() for each in self.lacks]]).encode()
        return len(head).to_bytes(4, "little") + head + self.code

    @classmethod
    def decode(cls, data: bytes) -> KernelCode:
        """Return what `encode` made bytes of."""
        end = 4 + int.from_bytes(data[:4], "little")
        launches, parameters, attributes, work, lacks = json.loads(data[4:end])
        shaped = tuple((name, tuple(shape), dtype) for name, shape, dtype in parameters)
        nests = tuple(map(LoopWork.of_json, work))
        found = tuple(map(Shortcoming.of_json, lacks))
        return cls(
            code=data[end:],
            launches=tuple(launches),
            parameters=shaped,
            attributes=attributes,
            work=nests,
            lacks=found,
        )

    @classmethod
    def of(
        cls,
        function: tirx.PrimFunc,
        code: bytes,
        launches: Sequence[int],
        work: KernelWork,
        lacks: tuple[Shortcoming, ...] = (),
    ) -> KernelCode:
        """Return the code of a function, with what is known of that."""
        parameters = tuple(
            (str(p.name), tuple(int(n) for n in p.ty.shape), str(p.ty.dtype))
            for p in function.params
        )
        attributes = {
            str(name): str(value) if isinstance(value, str) else int(value)
            for name, value in (function.attrs or {}).items()
            if name != "global_symbol" and isinstance(value, str | int)
        }
        return cls(
            code=code,
            launches=tuple(launches),
            parameters=parameters,
            attributes=attributes,
            work=work,
            lacks=lacks,
        )

    def outline(self) -> tirx.PrimFunc:
        """Return the function without its body."""
        buffers = [tirx.decl_buffer(shape, dtype, name) for name, shape, dtype in self.parameters]
        attributes = tvm.ir.make_node("ir.DictAttrs", **self.attributes)
        return tirx.PrimFunc(buffers, tirx.Evaluate(0), attrs=attributes)


class ObjectCache:
    """What is kept of one user, as one compilation sees it: what it has found it keeps finding."""

    def __init__(self, files: FileCache) -> None:
        self._files = files
        self._found: dict[str, KernelCode] = {}

    def find(self, key: str) -> KernelCode | None:
        """Return what is kept under a key of `key_of`."""
        if key not in self._found:
            data = self._files.get(_name(key))
            if data is None:
                return None
            self._found[key] = KernelCode.decode(data)
        return self._found[key]

    def outline(self, recipe: str) -> tirx.PrimFunc | None:
        """Return a function without a body, of which there is code; None if there is none."""
        found = self.find(recipe)
        return None if found is None else found.outline()

    def keep(self, key: str, code: KernelCode) -> None:
        """Keep the code of a function for the next time."""
        self._files.put(_name(key), code.encode())

    def kept(self, subject: str, make: Callable[[], Any]) -> Any:
        """Return what is kept of anything else, as JSON, or make and keep it."""
        name = _name(subject)
        data = self._files.get(name)
        if data is None:
            data = json.dumps(make()).encode()
            self._files.put(name, data)
        return json.loads(data)

    def trim(self) -> None:
        """Delete what was used longest ago, if there is too much."""
        self._files.trim()


def open_object_cache() -> ObjectCache | None:
    """Return this user's cache; None if it is turned off, or there is no place for it."""
    files = object_files()
    return None if files is None else ObjectCache(files)


def object_files() -> FileCache | None:
    """Return where machine code is kept; None if it is not."""
    named = os.environ.get(FOLDER_VARIABLE, "")
    if named == OFF:
        return None
    if named:
        return FileCache(Path(named) / "objects", LIMIT)
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # this user has no home
        return None
    return FileCache(base / "neocpu" / "objects", LIMIT) if base.is_absolute() else None


def key_of(function: tirx.PrimFunc, target: CpuTarget) -> str:
    """Return what tells a function's code from all other code of this version.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        As `anonymous` has it: by its recipe if it has one, else by all that it is.
    """
    attrs = function.attrs or {}
    if RECIPE in attrs:
        return str(attrs[RECIPE])
    text = f"{tvm.ir.save_json(function)} {target!r}"
    return hashlib.sha256(text.encode()).hexdigest()


def anonymous(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function that does not tell what model it is of, nor do its parameters' names."""
    if RECIPE not in (function.attrs or {}):  # templates name them
        named = {param: Var(f"p{number}", param.ty) for number, param in enumerate(function.params)}
        body = tvm_ffi.structural_map(function.body, (Var, lambda var: named.get(var, var)))
        params = list(named.values())
        function = tirx.PrimFunc(params, body, function.ret_type, function.attrs, function.span)
    return function.without_attr(ORIGIN).with_attr("global_symbol", SYMBOL)


def _name(key: str) -> str:
    return f"{_generator()} {key}"


@functools.cache
def _generator() -> str:
    """Return a digest of everything that decides what code a function becomes."""
    versions = [version(name) for name in ("neocpu", "apache-tvm", "apache-tvm-ffi")]
    digest = hashlib.sha256(repr((_FORM, versions, codegen.llvm_version_major())).encode())
    for library in _files("tvm", "lib/*.so"):  # too large to be read; a new one has a new time
        status = library.stat()
        digest.update(f"{library.name} {status.st_size} {status.st_mtime_ns}".encode())
    for part in ("ir", "s_tir", "target", "tirx"):  # its passes in Python, by their times too
        for source in _files("tvm", f"{part}/**/*.py"):
            status = source.stat()
            digest.update(f"{source} {status.st_size} {status.st_mtime_ns}".encode())
    for package in _GENERATING:
        for source in _files(package, "**/*.py"):
            digest.update(source.read_bytes())
    return digest.hexdigest()


def _files(package: str, pattern: str) -> list[Path]:
    spec = importlib.util.find_spec(package)  # found, not imported: some of these import this file
    assert spec is not None
    folders = spec.submodule_search_locations
    if folders is None:
        return [Path(spec.origin or "")]
    return sorted(path for folder in folders for path in Path(folder).glob(pattern))
