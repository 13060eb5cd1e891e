"""CPU targets from text or a mapping, and the target that this host is."""

from __future__ import annotations

import functools
import os
import shlex
from typing import Any

from neocpu.foundation.cpus import ALIASES, CACHES, DEFAULT_CACHES
from neocpu.foundation.errors import TargetError, did_you_mean
from neocpu.foundation.given_json import parse_json, shortened
from neocpu.foundation.host import data_caches
from neocpu.foundation.instruction_sets import (
    KNOWN_FEATURES,
    TILES,
    host_features,
    missing_features,
)
from neocpu.foundation.machine.cpu_identity import unmasked
from neocpu.schedules.vocabulary.llvm_features import demanded
from neocpu.schedules.vocabulary.target import ISA_FEATURES, MACHINES, TRIPLES, CpuTarget


def parse_target(text: str | dict[str, Any] | CpuTarget) -> CpuTarget:
    """Parse any spelling of a target: ``host``; ``llvm -mcpu=skylake-avx512 -mattr=+avx2``, also as
    a dict or its JSON; or only a CPU or a machine, such as ``neoverse-n1`` or ``rpi4``.

    Raises TargetError if an option, triple, CPU or feature is unknown.
    """
    if isinstance(text, CpuTarget):
        return text
    options = _options(text)
    kind = options.pop("kind", "llvm")
    if kind != "llvm":
        raise TargetError(
            f"target {kind!r} is not supported: use 'llvm -mcpu=…', 'host' or the name of a CPU"
            f"{_cpu_hint(str(kind))}"
        )
    triple = options.pop("mtriple", None)
    mcpu = options.pop("mcpu", None)
    mattr = options.pop("mattr", ())
    if options:
        name = next(iter(options))
        hint = did_you_mean(name, ("mtriple", "mcpu", "mattr"))
        raise TargetError(f"unknown target option -{name}; known: -mtriple -mcpu -mattr{hint}")
    machine = None if triple is None else _machine(str(triple))
    parts = mattr.split(",") if isinstance(mattr, str) else mattr
    if not isinstance(parts, list | tuple):
        raise TargetError(f"mattr must be a string or a list of strings, not {mattr!r}")
    switches = tuple(sorted({str(a) for a in parts if a}))
    if mcpu is None or mcpu in ("host", "native"):
        if machine not in (None, _host_machine()):
            raise TargetError(f"-mtriple={triple} is not this machine's: name its CPU with -mcpu")
        return _host_target(switches)
    cpu = ALIASES.get(str(mcpu), str(mcpu))
    machine = machine or _machine_of(cpu) or _host_machine()
    return _make(machine, cpu, switches, *CACHES.get(cpu, DEFAULT_CACHES))


def host_target() -> CpuTarget:
    """Return this machine's CPU, without features that a hypervisor hides, with its real caches."""
    return _host_target(())


def missing_on_host(target: CpuTarget) -> tuple[str, ...]:
    """Return the features that code for ``target`` demands and this host lacks."""
    asked = dict.fromkeys((*target.features, *target.demands))
    return missing_features(tuple(asked), host_features())


def _options(text: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(text, dict):
        return dict(text)
    if not isinstance(text, str):
        raise TargetError(f"a target is a string or a dict, not {text!r}; 'host' is this machine")
    text = text.strip()
    if text in ("", "host", "native"):
        return {}
    if text.startswith("{"):
        try:
            data = parse_json(text.encode())
        except (ValueError, RecursionError) as error:
            said = f"target is not valid JSON ({error}): {shortened(text)!r}"
            raise TargetError(said) from None
        return dict(data)
    if _machine_of(ALIASES.get(text, text)):
        return {"mcpu": text}
    options: dict[str, Any] = {}
    try:
        tokens = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r}: {str(error).lower()}; check its quotes") from None
    for index, token in enumerate(tokens):
        name, sep, value = token.partition("=")
        if index == 0 and not sep and not token.startswith("-"):
            options["kind"] = token
        elif sep and token.startswith("-"):
            options[name.lstrip("-")] = value
        else:
            raise TargetError(f"target option {token!r} is not of the form -name=value")
    return options


def _cpu_hint(name: str) -> str:
    if other := _machine_of(name):
        return f"; it needs -mtriple={TRIPLES[other]}"
    known = (*ALIASES, *_cpus("x86_64"), *_cpus("aarch64"))
    return did_you_mean(name, known) or "; 'neocpu doctor' prints this host's"


def _machine(triple: str) -> str:
    """Return the architecture of a triple that means Linux with the GNU C library."""
    first, *rest = triple.split("-")
    machine = MACHINES.get(first)
    if machine is None:
        raise TargetError(f"target triple {triple!r}: only x86_64 and aarch64 are supported")
    system = [part for part in rest if part not in ("unknown", "pc", "none")]
    if system not in ([], ["linux"], ["linux", "gnu"]):
        raise TargetError(
            f"target triple {triple!r}: artifacts are ELF files for Linux with the GNU C library, "
            f"not for {'-'.join(system)}: use -mtriple={TRIPLES[machine]}"
        )
    return machine


def _machine_of(cpu: str) -> str | None:
    machines = sorted(TRIPLES, key=lambda machine: machine != _host_machine())
    return next((machine for machine in machines if cpu in _cpus(machine)), None)


def _host_machine() -> str:
    return MACHINES.get(os.uname().machine, "x86_64")


@functools.cache
def _host_target(mattr: tuple[str, ...]) -> CpuTarget:
    import tvm.target.codegen as llvm

    machine, mcpu = _host_machine(), str(llvm.llvm_get_system_cpu())
    if "amx-tile" not in _make(machine, mcpu, (), *DEFAULT_CACHES).features:
        mcpu = unmasked(mcpu, amx="amx-tile" in host_features())
    caches = _host_caches() or CACHES.get(mcpu, DEFAULT_CACHES)
    full = _make(machine, mcpu, (), *caches)
    hidden = {f"-{name}" for name in missing_on_host(full) if name in KNOWN_FEATURES}
    return _make(machine, mcpu, tuple(sorted(hidden | set(mattr))), *caches)


def _host_caches() -> tuple[int, int, int] | None:
    sizes = {1: 0, 2: 0, 3: 0}
    for cache in data_caches():
        if cache is None or not cache.sharers:
            return None
        if cache.level in sizes:
            sizes[cache.level] = cache.size // (cache.sharers if cache.level == 3 else 1)
    return (sizes[1], sizes[2], sizes[3]) if sizes[1] and sizes[2] else None


@functools.cache
def _cpus(machine: str) -> tuple[str, ...]:
    import tvm
    import tvm.target.codegen as llvm

    base = tvm.target.Target({"kind": "llvm", "mtriple": TRIPLES[machine]})
    return tuple(str(name) for name in llvm.llvm_get_cpu_archlist(base))


@functools.lru_cache(maxsize=64)
def _make(machine: str, mcpu: str, mattr: tuple[str, ...], l1d: int, l2: int, l3: int) -> CpuTarget:
    import tvm
    import tvm.target.codegen as llvm

    triple = TRIPLES[machine]
    if mcpu not in _cpus(machine):
        raise TargetError(f"unknown -mcpu={mcpu} for {triple}{_cpu_hint(mcpu)}")
    for switch in mattr:
        if switch[:1] not in "+-" or len(switch) < 2:
            raise TargetError(f"-mattr={switch}: a feature must start with + or -, as in +avx2")
        if switch[1:] not in KNOWN_FEATURES:
            hint = did_you_mean(switch[1:], KNOWN_FEATURES)
            raise TargetError(f"-mattr={switch}: unknown feature{hint}")
    options: dict[str, Any] = {"kind": "llvm", "mtriple": triple, "mcpu": mcpu}
    if mattr:
        options["mattr"] = list(mattr)
    every = {str(name) for name in llvm.llvm_get_cpu_features(tvm.target.Target(options))}
    if machine == "x86_64" and "64bit" not in every:
        raise TargetError(
            f"-mcpu={mcpu} is a 32-bit CPU, and code is made for 64-bit ones: name one of these; "
            "-mcpu=x86-64 runs on all of them"
        )
    # For schedules, tiles multiply bytes and bfloat16, as on every CPU that has any.
    tiles = TILES if TILES <= every else frozenset()
    features = tuple(sorted(every - TILES & ISA_FEATURES | tiles & ISA_FEATURES))
    demands = demanded(machine, every)
    return CpuTarget(
        triple=triple,
        mcpu=mcpu,
        mattr=mattr,
        features=features,
        l1d=l1d,
        l2=l2,
        l3=l3,
        demands=demands,
    )
