"""One kernel for any size, made of the kernels for a few sizes.

A template emits the same loop nest for most heights and widths; only integers in it differ, such as
extents, strides and bounds. `generalise` compares the kernels for several sizes and replaces these
integers by variables, the extents. Other numbers that are integers become casts, and reciprocals of
integers, as of averages, quotients. A call gets the extents as the shape of an additional first
argument, from which TVM takes them once; that argument has no data.

Kernels are compared in their JSON form, since only there every node lists its parts.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import tvm
import tvm_ffi
from tvm import tirx
from tvm_ffi.serialization import from_json_graph_str

EXTENTS: Final = "extents"
"""The name of the additional argument."""

_INTEGER, _FLOAT, _VARIABLE = "ir.IntImm", "ir.FloatImm", "ir.Var"
_TYPE, _CAST, _QUOTIENT = "ir.PrimType", "prim.Cast", "prim.Div"
_TEXT, _ARRAY = "ffi.String", "ffi.Array"
# The largest integer up to which float32 has all integers, and with them exact reciprocals' bases.
_LARGEST: Final = 1 << 24
# Types of fields that contain numbers and not numbers of nodes; shapes, which list numbers.
_PLAIN: Final = ("int", "float", "bool")
_LISTS_OF_NUMBERS: Final = ("ffi.Shape",)
_LOOP_KIND: Final = ("tirx.For", "kind")
# Parts that must be constants: a vector's lanes are its type.
_CONSTANT: Final = {("prim.Ramp", "lanes"), ("prim.Broadcast", "lanes")}

# What keeps a loop, an index or a store within a tensor.
_BOUNDS: Final = frozenset(f"prim.{kind}" for kind in ("LT", "LE", "GT", "GE", "Min", "Max"))

_Numbers: TypeAlias = tuple[int, ...]
Structure: TypeAlias = tuple[int, int, int, int]


class NotGeneralError(Exception):
    """Kernels for different sizes differ in more than integers; says where."""


class FewError(NotGeneralError):
    """Too few kernels have the most general form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedKernel:
    """A kernel for any size.

    - `func`: the kernel, whose first argument has the extents as its shape, if there are any.
    - `extents`: each extent's values, one for each of the kernels that it was made of.
    - `alike`: the positions of these kernels among those that were compared.
    """

    func: tirx.PrimFunc
    extents: tuple[_Numbers, ...]
    alike: tuple[int, ...]


class KernelTree:
    """A kernel, read once for all comparisons."""

    def __init__(self, func: tirx.PrimFunc) -> None:
        self.func = func
        self.document = _Document(_parts(func))
        self.structure = self.document.structure()


def generalise(kernels: Sequence[KernelTree], fewest: int, *, settles: bool = False) -> SizedKernel:
    """Return a kernel that equals, given their extents, those of ``kernels`` that are most general.

    Where a size is a multiple of a register tile, templates and TVM leave out the bounds of the
    last tile. Kernels with all bounds hold there too. All other kernels that a template emits alike
    are reached by other extents. Raises NotGeneralError if fewer than
    ``fewest`` are alike among the most general ones, or if they differ in more than integers.
    `settles`: take the most general form that ``fewest`` have, though a few have another one.
    """
    alike = _most_general(kernels, fewest if settles else 1)
    if len(alike) < fewest:
        raise FewError(f"{len(alike)} of {len(kernels)} have its most general form")
    merged = _Merged([kernels[number].document for number in alike])
    if not merged.extents:
        return SizedKernel(func=kernels[alike[0]].func, extents=(), alike=alike)
    params, body, ret_type, attrs, extents = from_json_graph_str(merged.text())
    shape = [tirx.decl_buffer(list(extents), "uint8", EXTENTS)]
    func = tirx.PrimFunc([*shape, *params], body, ret_type, attrs)
    return SizedKernel(func=func, extents=tuple(merged.extents), alike=alike)


def _most_general(kernels: Sequence[KernelTree], fewest: int) -> tuple[int, ...]:
    """Return the positions of the kernels with the most bounds, then the most parts, then the most
    within bounds, that are equal but for integers; of forms that at least ``fewest`` have, if there
    are any. TVM takes common factors out of bounds.
    """
    groups: dict[Structure, list[int]] = {}
    for number, kernel in enumerate(kernels):
        groups.setdefault(kernel.structure, []).append(number)
    enough = [each for each, alike in groups.items() if len(alike) >= fewest]
    return tuple(groups[max(enough or groups)])


def _parts(func: tirx.PrimFunc) -> Any:
    """Return a kernel without its type, which repeats the shapes of its parameters."""
    return tvm_ffi.convert([func.params, func.body, func.ret_type, func.attrs])


class _Document:
    """The nodes of an object."""

    def __init__(self, value: Any) -> None:
        found = json.loads(tvm.ir.save_json(value))
        self.nodes: list[dict[str, Any]] = found["nodes"]
        self.root: int = found["root_index"]
        self.metadata: Any = found.get("metadata")

    def structure(self) -> Structure:
        """Return the numbers of bounds, of parts and of these within bounds, and a hash.

        The hash is that of everything but integers and which variable is which. Integers do not
        count: one stands where a loop of one turn has no variable. Parts that several nodes share
        count for each.
        """
        nodes = self.nodes
        known: list[Structure | None] = [None] * len(nodes)
        waiting = [self.root]
        while waiting:
            number = waiting[-1]
            if known[number] is not None:
                waiting.pop()
                continue
            node = nodes[number]
            kind, data = node["type"], node.get("data")
            if kind in (_INTEGER, _FLOAT):
                known[number] = (0, int(kind == _FLOAT), 0, hash(kind))
                continue
            parts = _numbers_in(kind, data)
            found = [known[part] for part in parts]
            if None in found:
                waiting += [part for part, each in zip(parts, found, strict=True) if each is None]
                continue
            bounds, size, within = int(kind in _BOUNDS), 1, 0
            hashes: list[Any] = [kind if parts else (kind, repr(data))]
            for each in found:
                assert each is not None
                bounds, size, within = bounds + each[0], size + each[1], within + each[2]
                hashes.append(each[3])
            within = size if kind in _BOUNDS else within
            known[number] = bounds, size, within, hash(tuple(hashes))
        result = known[self.root]
        assert result is not None
        return result


class _Merged:
    """The document that several documents have in common.

    A node of it stands for one node of each. Integers that differ become variables, one for each
    tuple of values.
    """

    def __init__(self, documents: Sequence[_Document]) -> None:
        self._documents = documents
        self._nodes: list[dict[str, Any]] = []
        self._known: dict[_Numbers, int] = {}
        self._variables: dict[tuple[_Numbers, int], int] = {}
        self.extents: list[_Numbers] = []
        self._whole: int | None = None  # the type of integers of 32 bits
        roots = tuple(document.root for document in documents)
        self._visit(roots)
        first = self._nodes[self._known[roots]]
        listed = self._add({"type": _ARRAY, "data": list(self._variables.values())})
        self._root = self._add({"type": _ARRAY, "data": [*first["data"], listed]})

    def text(self) -> str:
        """Return the document in JSON."""
        document = {"root_index": self._root, "nodes": self._nodes}
        if self._documents[0].metadata is not None:
            document["metadata"] = self._documents[0].metadata
        return json.dumps(document)

    def _add(self, node: dict[str, Any]) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _visit(self, root: _Numbers) -> None:
        """Merge nodes after their parts. There is no recursion: kernels may be nested deeply."""
        waiting = [root]
        while waiting:
            key = waiting[-1]
            if key in self._known:
                waiting.pop()
                continue
            parts = self._parts_of(key)
            missing = [part for part in parts if part not in self._known]
            if missing:
                waiting += missing
                continue
            self._known[key] = self._merge(key)
            waiting.pop()

    def _found(self, key: _Numbers) -> list[dict[str, Any]]:
        return [doc.nodes[number] for doc, number in zip(self._documents, key, strict=True)]

    def _parts_of(self, key: _Numbers) -> list[_Numbers]:
        nodes = self._found(key)
        if self._value(nodes) is not None:
            return [tuple(node["data"]["ty"] for node in nodes)]
        return [number for _, number in self._pairs(nodes) if number is not None]

    def _value(self, nodes: list[dict[str, Any]]) -> _Numbers | None:
        """Return the values of an integer that differs; None if it does not, or is none."""
        if all(node["type"] == _FLOAT for node in nodes):
            return _bases_of([node["data"]["value"] for node in nodes])
        if any(node["type"] != _INTEGER for node in nodes):
            return None
        values = tuple(
            int(document.nodes[node["data"]["value"]]["data"])
            for document, node in zip(self._documents, nodes, strict=True)
        )
        return values if len(set(values)) > 1 else None

    def _pairs(self, nodes: list[dict[str, Any]]) -> list[tuple[Any, _Numbers | None]]:
        """Return the fields of nodes, each with the numbers of their nodes; None for others."""
        kinds = {node["type"] for node in nodes}
        if len(kinds) > 1:
            raise NotGeneralError(f"there are {' and '.join(sorted(kinds))}")
        kind = kinds.pop()
        data: list[Any] = [node.get("data") for node in nodes]
        first = data[0]
        if isinstance(first, dict):
            if any(each.keys() != first.keys() for each in data):
                raise NotGeneralError(f"{kind} has other fields")
            numbered = set(_numbered_fields(kind, first))
            return [
                (name, tuple(each[name] for each in data) if name in numbered else None)
                for name in first
            ]
        if isinstance(first, list) and kind not in _LISTS_OF_NUMBERS:
            if len({len(each) for each in data}) > 1:
                raise NotGeneralError(f"{kind} has {' or '.join(str(len(e)) for e in data)} parts")
            return [(place, numbers) for place, numbers in enumerate(zip(*data, strict=True))]
        return []

    def _merge(self, key: _Numbers) -> int:
        nodes = self._found(key)
        values = self._value(nodes)
        if values is not None:
            kind = self._known[tuple(node["data"]["ty"] for node in nodes)]
            if nodes[0]["type"] == _FLOAT:
                found = [node["data"]["value"] for node in nodes]
                return self._number(values, kind, nodes[0], is_quotient=found != [*values])
            return self._variable(values, kind)
        first = nodes[0]
        pairs = self._pairs(nodes)
        data: Any = first.get("data")
        if not pairs:
            if any(node.get("data") != data for node in nodes):
                raise NotGeneralError(f"{first['type']} differs: {data!r}")
            return self._add(first)
        merged = data.copy()
        for name, numbers in pairs:
            if numbers is not None:
                merged[name] = self._known[numbers]
                self._require_constant(first["type"], name, merged[name])
            elif (first["type"], name) == _LOOP_KIND:
                merged[name] = _loop_kind({node["data"][name] for node in nodes})
            elif any(node["data"][name] != data[name] for node in nodes):
                raise NotGeneralError(f"{first['type']}.{name} differs")
        return self._add({**first, "data": merged})

    def _require_constant(self, kind: str, name: Any, number: int) -> None:
        if (kind, name) in _CONSTANT and number in self._variables.values():
            raise NotGeneralError(f"{kind}.{name} differs")

    def _number(
        self, values: _Numbers, kind: int, like: dict[str, Any], *, is_quotient: bool
    ) -> int:
        """Return ``values``, or ``1 / values``, in the type of another number."""
        nothing = self._add({"type": "None"})
        if self._whole is None:
            self._whole = self._add({"type": _TYPE, "data": {"span": nothing, "dtype": "int32"}})
        base = self._variable(values, self._whole)
        cast = {"type": _CAST, "data": {"span": nothing, "ty": kind, "value": base}}
        if not is_quotient:
            return self._add(cast)
        one = {**like, "data": {"span": nothing, "ty": kind, "value": 1.0}}
        parts = {"span": nothing, "ty": kind, "a": self._add(one), "b": self._add(cast)}
        return self._add({"type": _QUOTIENT, "data": parts})

    def _variable(self, values: _Numbers, kind: int) -> int:
        """Return the variable of these values, of an integer type."""
        known = self._variables.get((values, kind))
        if known is None:
            name = self._add({"type": _TEXT, "data": f"e{len(self.extents)}"})
            nothing = self._add({"type": "None"})
            known = self._add(
                {"type": _VARIABLE, "data": {"span": nothing, "ty": kind, "name": name}}
            )
            self._variables[values, kind] = known
            self.extents.append(values)
        return known


def _loop_kind(kinds: set[int]) -> int:
    """Return the kind of loops that are parallel only where that is worth it."""
    serial, parallel = int(tirx.ForKind.SERIAL), int(tirx.ForKind.PARALLEL)
    if len(kinds) > 1 and not kinds <= {serial, parallel}:
        raise NotGeneralError("a loop is of several kinds")
    return max(kinds)


def _bases_of(values: Sequence[float]) -> _Numbers | None:
    """Return the integers that these are, or whose reciprocals they are; None if they are equal, or
    neither.
    """
    if len(set(values)) == 1 or min(values) <= 0 or not max(values) < _LARGEST:
        return None
    if all(value == int(value) for value in values):
        return tuple(map(int, values))
    found = tuple(max(1, round(1 / value)) for value in values)
    exact = all(base < _LARGEST and 1 / base == v for base, v in zip(found, values, strict=True))
    return found if exact else None


def _numbers_in(kind: str, data: Any) -> list[int]:
    """Return the numbers of a node's parts."""
    if isinstance(data, dict):
        return [data[name] for name in _numbered_fields(kind, data)]
    return data if isinstance(data, list) and kind not in _LISTS_OF_NUMBERS else []


def _numbered_fields(kind: str, data: Mapping[str, Any]) -> list[str]:
    plain = _plain_fields(kind)
    return [name for name, each in data.items() if type(each) is int and name not in plain]


@functools.cache
def _plain_fields(kind: str) -> frozenset[str]:
    """Return the names of fields that contain values themselves, of a class and its bases."""
    info = tvm_ffi.core._lookup_or_register_type_info_from_type_key(kind)
    found = set()
    while info is not None:
        found |= {
            field.name
            for field in info.fields or ()
            if json.loads(field.metadata["type_schema"])["type"] in _PLAIN
        }
        info = info.parent_type_info
    return frozenset(found)
