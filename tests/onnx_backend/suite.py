"""ONNX's backend test suite, run through neocpu: its tests, and their results."""

from __future__ import annotations

import os
import tempfile
import unittest
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from onnx.backend.base import BackendRep
from onnx.backend.test import BackendTest

from neocpu.foundation.errors import NeoCPUError
from neocpu.onnx_backend import NeoCPUBackend, PreparedModel

Ending = Literal["passed", "refused", "listed", "wrong", "crashed"]

_UNROUNDED = (
    "expects the positions of a length that is not whole; the standard's text, PyTorch and ONNX "
    "Runtime take the whole length of the output"
)
LISTED = {
    "test_maxunpool_export_with_output_shape": (
        "counts elements of another shape than that of the output; PyTorch and ONNX Runtime count "
        "those of the output"
    ),
    "test_resize_downsample_scales_cubic_align_corners": _UNROUNDED,
    "test_resize_downsample_scales_linear_align_corners": _UNROUNDED,
}
"""Tests whose expected values neocpu does not return, with the reason."""


@dataclass(frozen=True, slots=True)
class Result:
    """The ending of a test, and the reason if it did not pass."""

    ending: Ending
    reason: str = ""


class Broken(Exception):
    """An error of neocpu that is no refusal: a bug."""


class Watched(BackendRep):
    """A prepared model whose bugs cannot be taken for wrong outputs."""

    def __init__(self, model: PreparedModel) -> None:
        self._model = model

    def run(self, inputs: Any, **kwargs: Any) -> Any:
        try:
            return self._model.run(inputs, **kwargs)
        except NeoCPUError:
            raise
        except Exception as error:
            raise Broken(f"{type(error).__name__}: {error}") from error


class CheapBackend(NeoCPUBackend):
    """The backend on one thread, without verification, because the suite checks results."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Any:
        options = {"threads": 1, "verify": False, "only_databases": True}
        return Watched(super().prepare(model, device, **options))


@cache
def suite() -> dict[str, tuple[str, unittest.TestCase]]:
    """Return ONNX's tests on the CPU by name, each with its method and its class."""
    os.environ.setdefault("ONNX_MODELS", tempfile.mkdtemp(prefix="onnx-models-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero
        classes = BackendTest(CheapBackend).test_cases
    found = {}
    for kind, case in classes.items():
        for method in unittest.defaultTestLoader.getTestCaseNames(case):
            if method.endswith("_cpu"):
                name = method.removesuffix("_cpu")
                assert name not in found, (name, kind)
                found[name] = (method, case(method))
    return found


def run(name: str) -> Result:
    """Run a test here."""
    method, case = suite()[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(case, method)()
    except NeoCPUError as error:
        return Result("refused", str(error))
    except (AssertionError, TypeError) as error:
        if name in LISTED:
            return Result("listed", LISTED[name])
        return Result("wrong", " ".join(str(error).split())[:300])
    except Exception as error:
        return Result("crashed", f"{error}"[:300])
    return Result("passed")
