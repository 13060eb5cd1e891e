"""Find packages that neocpu needs and that are missing or have the wrong version."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from types import TracebackType
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT: Final = "neocpu"

_GENCODE: Final = re.compile(
    r"loading ([\w.-]+)\S*: gencode (\d+)([\w.-]*) runtime ([\w.-]+)\.(?= |$)"
)
"""The message of protobuf when it is older than the code it should run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A package that another one needs in a version that is not installed."""

    by: str
    package: str
    wanted: str  # the versions that fit, such as ``>=6.31.1``; empty if any does
    found: str | None  # the version that is installed

    def __str__(self) -> str:
        found = "it is not installed" if self.found is None else f"{self.found} is installed"
        return f"{self.by} needs {self.package}{self.wanted}, and {found}"


def find_misfits() -> list[Misfit]:
    """Return the misfits among all packages that neocpu needs, directly or not."""
    found = []
    waiting, seen = [PROJECT], {PROJECT}
    while waiting:
        by = _installed(waiting.pop())
        if by is None:
            continue
        for asked in _requirements(by):
            name = canonicalize_name(asked.name)
            other = _installed(name)
            if other is None or not asked.specifier.contains(other.version, prereleases=True):
                version = None if other is None else other.version
                title = f"{by.name} {by.version}"
                wanted = str(asked.specifier)
                found.append(Misfit(by=title, package=name, wanted=wanted, found=version))
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return found


def explain(error: BaseException) -> str | None:
    """Return in a line how packages that do not fit caused an error, and the fix; else None."""
    module = _imported(error)
    if module is None and isinstance(error, MemoryError | OSError):
        return None
    found = find_misfits()
    if (outdated := _outdated_protobuf(error)) is not None:
        found = [outdated, *(misfit for misfit in found if misfit.package != outdated.package)]
    if found:
        why = mended(found)
        return why if module is not None else f"{_first_line(error)}; most likely because {why}"
    return None if module is None else _broken(module, error)


def _broken(module: str, error: BaseException) -> str | None:
    """Return that an installed package of the right version cannot be imported; None if unknown."""
    names = {*metadata.packages_distributions().get(module, [])}
    if len(names) != 1:
        return None
    (name,) = names
    version = metadata.version(name)
    reinstall = f"pip install --force-reinstall --no-deps {name}=={version}"
    return f"{name} {version} cannot be imported ({_first_line(error)}): {reinstall}"


def mended(misfits: Iterable[Misfit]) -> str:
    """Return the misfits, the command that fixes them, and the packages that it would break."""
    found = [*misfits]
    wanted: dict[str, SpecifierSet] = {}
    for misfit in found:
        wanted[misfit.package] = wanted.get(misfit.package, SpecifierSet()) & misfit.wanted
    packages = shlex.join(f"{name}{versions}" for name, versions in wanted.items())
    text = f"{'; '.join(dict.fromkeys(map(str, found)))}: pip install {packages}"
    others = " and ".join(_opposed(wanted))
    return f"{text}, in another environment than {others}" if others else text


def _opposed(wanted: dict[str, SpecifierSet]) -> Iterator[str]:
    """Yield the installed packages that need older versions than the wanted ones."""
    for dist in metadata.distributions():
        for asked in _requirements(dist):
            versions = wanted.get(canonicalize_name(asked.name), SpecifierSet())
            least = [
                Version(each.version.removesuffix(".*"))
                for each in versions
                if each.operator in (">=", "==", "~=")
            ]
            most = [each for each in asked.specifier if each.operator in ("<", "<=", "==", "~=")]
            if least and any(not each.contains(max(least)) for each in most):
                yield f"{dist.name} {dist.version}, which needs {asked.name}{asked.specifier}"


def _requirements(dist: metadata.Distribution) -> Iterator[Requirement]:
    for line in dist.requires or ():
        try:
            asked = Requirement(line)
        except InvalidRequirement:  # an old package
            continue
        if asked.marker is None or asked.marker.evaluate({"extra": ""}):
            yield asked


def _installed(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _imported(error: BaseException) -> str | None:
    """Return the package whose import an exception ended, if it is not one of ours."""
    if isinstance(error, ImportError) and error.name is not None:
        module: str | None = error.name
    else:
        module = _executed(error.__traceback__)
    top = (module or "").partition(".")[0]
    return None if top in ("", PROJECT, "__main__") else top


def _executed(trace: TracebackType | None) -> str | None:
    """Return the innermost module in a traceback that was being imported."""
    found = None
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "<module>":
            found = trace.tb_frame.f_globals.get("__name__")
        trace = trace.tb_next
    return found


def _outdated_protobuf(error: BaseException) -> Misfit | None:
    """Return the misfit if protobuf reports that it is older than a package's generated code.

    protobuf runs code of its own major version and of the one before.
    """
    match = _GENCODE.search(str(error))
    if match is None:
        return None
    module, major, rest, found = match.groups()
    wanted = f">={major}{rest},<{int(major) + 2}"  # it runs code of the major version before too
    by = _installed(module)
    title = module if by is None else f"{by.name} {by.version}"
    return Misfit(by=title, package="protobuf", wanted=wanted, found=found)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join((type(error).__name__, *lines[:1]))
