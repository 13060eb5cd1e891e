"""Keys of workloads: hashes of their JSON form."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar


class Keyed:
    """Base of workloads: what their JSON form says is all there is to them."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        raise AssertionError("abstract")

    def key(self) -> str:
        """Content hash that names this workload, in the tuning database too."""
        return content_hash(self.to_json())


def content_hash(data: Any) -> str:
    """Return a 16-digit hash of JSON-serialisable ``data``, independent of key order."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
