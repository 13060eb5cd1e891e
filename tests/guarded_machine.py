"""TVM's own virtual machine, whose kernels run between inaccessible pages on request."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from neocpu.building.legalizations import LEGALIZATIONS
from neocpu.runtime.guarding import is_guarded
from neocpu.runtime.guarding.guard import GuardError, under_the_name
from neocpu.runtime.guarding.guarded_memory import EDGES, Edge, guarded

_NO_OP, _SKIP_RUN = 0, 1  # VMInstrumentReturnKind


def legalized_machine(module: tvm.IRModule) -> relax.VirtualMachine:
    """Return a virtual machine that runs a module's operators as they are defined.

    Tests of results need no fast code: LLVM optimises nothing, in half the time.
    """
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    return virtual_machine(tvm.compile(relax.transform.LegalizeOps(LEGALIZATIONS)(module), target))


def virtual_machine(executable: Any) -> relax.VirtualMachine:
    """Return a virtual machine, guarded as models are where the environment says so.

    Its kernels' workspaces are not.
    """
    machine = relax.VirtualMachine(executable, tvm.cpu())
    if is_guarded():
        machine.set_instrument(_run_guarded)
    return machine


def _run_guarded(function: Any, name: str, before: bool, _: Any, *arguments: Any) -> int:
    """Run a kernel twice on guarded copies of its tensors; write back what it wrote."""
    if not before or not isinstance(function, tvm_ffi.Function) or name.startswith("vm.builtin"):
        return _NO_OP
    tensors = [one for one in arguments if isinstance(one, tvm.runtime.Tensor)]
    held = [one.numpy() for one in tensors]
    first, second = (_run(function, name, arguments, edge) for edge in EDGES)
    for tensor, array, one, other in zip(tensors, held, first, second, strict=True):
        if one.tobytes() != other.tobytes():
            raise GuardError(f"kernel {name} reads beside its arguments or what it never wrote")
        if one.tobytes() != array.tobytes():
            tensor.copyfrom(one)
    return _SKIP_RUN


def _run(
    function: Any, name: str, arguments: tuple[Any, ...], edge: Edge
) -> list[np.ndarray[Any, Any]]:
    """Run a kernel on guarded copies, and return these."""
    memories, arrays, given = [], [], []
    for argument in arguments:
        if isinstance(argument, tvm.runtime.Tensor):
            array = argument.numpy()
            if array.nbytes:
                memories.append(guarded(array, edge))
                array = memories[-1].array(array.shape, array.dtype)
                argument = tvm.runtime.from_dlpack(array)
            arrays.append(array)
        given.append(argument)
    under_the_name(f"kernel {name}, at the {edge} of its tensors", lambda: function(*given))()
    if strays := [stray for memory in memories if (stray := memory.stray_write())]:
        raise GuardError(f"kernel {name} wrote {', '.join(strays)} of an argument")
    return arrays
