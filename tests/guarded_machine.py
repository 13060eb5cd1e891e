"""TVM's own virtual machine, made to run its kernels between inaccessible pages if it shall."""

from __future__ import annotations

import ctypes
from typing import Any

import tvm
from tvm import relax

from neocpu.runtime.ffi import Object, runtime
from neocpu.runtime.guarding.guard import Guard
from neocpu.runtime.guarding.guarded_workspaces import workspaces
from neocpu.runtime.session import is_guarded


def legalized_machine(module: tvm.IRModule) -> relax.VirtualMachine:
    """Return a virtual machine that runs a module's operators as TVM defines them.

    What they compute is the subject, not their code: LLVM optimises nothing, in half the time.
    """
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    return virtual_machine(tvm.compile(relax.transform.LegalizeOps()(module), target))


def virtual_machine(executable: Any) -> relax.VirtualMachine:
    """Return a virtual machine, guarded as sessions are where the environment says so.

    Its kernels' workspaces are not: there is no library to attach them to.
    """
    machine = relax.VirtualMachine(executable, tvm.cpu())
    if is_guarded():
        library = runtime()
        handle = machine.module.__chandle__()
        ctypes.CDLL(str(library.libraries.ffi)).TVMFFIObjectIncRef(ctypes.c_void_p(handle))
        instrument = library.raw_callback(Guard(library, (), workspaces()))
        library.member(Object(library, handle), "set_instrument")(instrument)
        machine.instrument = instrument  # which must live as long
    return machine
