"""The signatures of a loaded model that takes ranges of extents."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import c_int64
from typing import Any

from neocpu.foundation.errors import UsageError
from neocpu.foundation.size_formulas import Size
from neocpu.runtime.binding import Handle, library
from neocpu.runtime.signatures import Signature
from neocpu.runtime.sized_signatures import SizedSignatures, Sizes


def sized_signatures(model: Handle, typical: Signature, sizes: Sequence[Any]) -> SizedSignatures:
    """Return all signatures of a model, given the typical one and the library's sizes.

    They do not keep the model, which is freed when a module is closed.
    """
    known = [
        Size(
            name=one.name.decode(),
            least=one.least,
            most=one.most,
            step=one.step,
            typical=one.typical,
        )
        for one in sizes
    ]
    specs = (*typical.inputs, *typical.outputs)
    kind = c_int64 * sum(len(spec.shape) for spec in specs)
    given = c_int64 * len(known)
    kept = weakref.ref(model)

    def extents(chosen: Sizes) -> Sequence[int]:
        found, model = kind(), kept()
        if model is None:
            raise UsageError("the module is closed: load the artifact again")
        library().neocpu_extents(model.address, given(*chosen), found)
        return list(found)

    return SizedSignatures(typical, known, [(one.input, one.axis) for one in sizes], extents)
