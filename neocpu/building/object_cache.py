"""Machine code of kernels, kept from one compilation to the next.

Each kernel is generated under one name (`SYMBOL`) and renamed when it is used, so networks share
kernels, and an artifact is the same to the last bit whether its code was found or generated.

The key of an entry is a digest of all that decides the code: the function's body or recipe
(`lowering.recipes`), the target, TVM with its LLVM, and our own sources, which in a checkout change
while the version does not.
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
"""The variable that names the folder; ``off`` turns the cache off."""
OFF: Final = "off"

LIMIT: Final = 1 << 30
"""Bytes of all entries: about a thousand networks."""

SYMBOL: Final = "kernel"
"""The name of every generated function."""

ORIGIN: Final = "neocpu.origin"
"""The attribute of a function that lists the names of the model's tensors it computes."""

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
"""Packages and modules whose sources decide a kernel's code and the facts stored with it."""

_FORM: Final = "4"
"""The version of the entries' format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    """The machine code of one function."""

    code: bytes  # object file, in which the function is called `SYMBOL`
    launches: tuple[int, ...]  # iterations of its parallel loops, in turn; 0 for unknown ones
    # The name, shape and element type of each parameter.
    parameters: tuple[tuple[str, tuple[int, ...], str], ...]
    attributes: dict[str, int | str]
    work: KernelWork  # arithmetic and memory accesses of its loops
    lacks: tuple[Shortcoming, ...] = ()

    def encode(self) -> bytes:
        work = [nest.to_json() for nest in self.work]
        known = [self.launches, self.parameters, self.attributes, work]
        head = json.dumps([*known, [each.to_json() for each in self.lacks]]).encode()
        return len(head).to_bytes(4, "little") + head + self.code

    @classmethod
    def decode(cls, data: bytes) -> KernelCode:
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
        parameters = tuple(
            (str(p.name), tuple(map(_extent, p.ty.shape)), str(p.ty.dtype)) for p in function.params
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
        buffers = [tirx.decl_buffer(shape, dtype, name) for name, shape, dtype in self.parameters]
        attributes = tvm.ir.make_node("ir.DictAttrs", **self.attributes)
        return tirx.PrimFunc(buffers, tirx.Evaluate(0), attrs=attributes)


def _extent(value: Any) -> int:
    """Return an extent, or 0 if calls choose it."""
    return int(value) if isinstance(value, tirx.IntImm) else 0


class ObjectCache:
    """One user's cache as one compilation sees it: an entry once found stays found."""

    def __init__(self, files: FileCache) -> None:
        self._files = files
        self._found: dict[str, KernelCode] = {}

    def find(self, key: str) -> KernelCode | None:
        if key not in self._found:
            data = self._files.get(_name(key))
            if data is None:
                return None
            self._found[key] = KernelCode.decode(data)
        return self._found[key]

    def outline(self, recipe: str) -> tirx.PrimFunc | None:
        """Return a function without a body if its code is in the cache, else None."""
        found = self.find(recipe)
        return None if found is None else found.outline()

    def keep(self, key: str, code: KernelCode) -> None:
        self._files.put(_name(key), code.encode())

    def kept(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the JSON value stored under a key, or make and store it."""
        name = _name(key)
        data = self._files.get(name)
        if data is None:
            data = json.dumps(make()).encode()
            self._files.put(name, data)
        return json.loads(data)

    def trim(self) -> None:
        self._files.trim()


def open_object_cache() -> ObjectCache | None:
    files = object_files()
    return None if files is None else ObjectCache(files)


def object_files() -> FileCache | None:
    """Return the files of this user's cache; None if it is turned off, or has no folder."""
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
    """Return a key that distinguishes a function's code from all other code of this version. The
    key of a function from `anonymous` is its recipe if it has one, else a digest of it.
    """
    attrs = function.attrs or {}
    if RECIPE in attrs:
        return str(attrs[RECIPE])
    text = f"{tvm.ir.save_json(function)} {target!r}"
    return hashlib.sha256(text.encode()).hexdigest()


def anonymous(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function without any names of its model, also in its parameters."""
    if RECIPE not in (function.attrs or {}):  # templates name their parameters themselves
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
    for library in _files("tvm", "lib/*.so"):  # too large to read; a new one has a new time
        status = library.stat()
        digest.update(f"{library.name} {status.st_size} {status.st_mtime_ns}".encode())
    for part in ("ir", "s_tir", "target", "tirx"):  # TVM's passes in Python, also by their times
        for source in _files("tvm", f"{part}/**/*.py"):
            status = source.stat()
            digest.update(f"{source} {status.st_size} {status.st_mtime_ns}".encode())
    for package in _GENERATING:
        for source in _files(package, "**/*.py"):
            digest.update(source.read_bytes())
    return digest.hexdigest()


def _files(package: str, pattern: str) -> list[Path]:
    spec = importlib.util.find_spec(package)  # not imported: some of these import this file
    assert spec is not None
    folders = spec.submodule_search_locations
    if folders is None:
        return [Path(spec.origin or "")]
    return sorted(path for folder in folders for path in Path(folder).glob(pattern))
