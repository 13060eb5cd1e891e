"""Keys of workloads: hashes of their JSON form."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar

from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.json_codec import JsonObject, fields_to_json
from neocpu.schedules.vocabulary.frames import MAX_EXTENT
from neocpu.schedules.vocabulary.numerics import UnknownTypeError


class Keyed:
    """Base class of workloads, which are fully described by their JSON form."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_json(self) -> JsonObject:
        """Return the JSON form: ``kind`` and the fields; those of numerics are among them."""
        found: JsonObject = {"kind": self.kind}
        for name, value in fields_to_json(self).items():
            found |= value if name == "numerics" else {name: value}
        return found

    def key(self) -> str:
        """Return the content hash that names this workload, in the tuning database too."""
        return content_hash(self.to_json())


def content_hash(data: Any) -> str:
    """Return a 16-digit hash of JSON-serialisable ``data``, independent of key order."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def is_dtype(name: Any) -> bool:
    """Return whether a value of a workload's JSON form is an element type.

    Raises UnknownTypeError if it is a name that no element type has.
    """
    if isinstance(name, str) and name not in DTYPES:
        raise UnknownTypeError(f"unknown element type {name!r}")
    return isinstance(name, str)


def are_sizes(*values: Any) -> bool:
    """Return whether all values are extents of tensors: integers from 1 to `MAX_EXTENT`."""
    return all(type(value) is int and 0 < value <= MAX_EXTENT for value in values)
