"""Read what an artifact file holds, for any machine, without loading or running any of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from ctypes import byref, c_uint64
from dataclasses import dataclass
from typing import Final

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.runtime.binding import Contents, Handle, encoded_path, library, made_by
from neocpu.runtime.header import ArtifactHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One artifact of a file, at a place in bytes.

    `name` is empty if the file holds nothing else. `code_bytes` are those before its weights.
    `obstacle` is the reason that this host cannot run it; None if it can.
    """

    name: str
    offset: int
    size: int
    code_bytes: int
    weight_bytes: int
    header: ArtifactHeader
    obstacle: str | None


class ArtifactFile:
    """An open file, checked except for its weights, and closed with the last reference to it.

    `fd` is a read-only descriptor of the very file that was checked; the one at `path` may since
    have been replaced. `loadable` is the variant that `neocpu.load` takes; None if this host can
    run none. Raises ArtifactError: the file is missing, truncated, foreign, damaged, or of another
    format version.
    """

    __slots__ = ("_handle", "fd", "loadable", "path", "variants")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        core = library()
        address = made_by(core.neocpu_inspect, encoded_path(path))
        self._handle = Handle(address, core.neocpu_contents_free)
        contents = Contents.from_address(address)
        self.path: Final = os.fspath(path)
        self.fd: Final[int] = contents.file
        self.variants: Final = tuple(
            Variant(
                name=one.name.decode(),
                offset=one.offset,
                size=one.size,
                code_bytes=one.code_size,
                weight_bytes=one.weights_size,
                header=ArtifactHeader.from_json(json.loads(one.metadata)),
                obstacle=None if one.obstacle is None else one.obstacle.decode(),
            )
            for one in contents.variants[: contents.count]
        )
        self.loadable: Final = (*self.variants, None)[contents.loadable]

    def variant(self, name: str) -> Variant:
        """Return the variant with a name. Raises UsageError: there is none."""
        names = [each.name for each in self.variants]
        if names == [""]:
            raise UsageError(f"{self.path} has no variants: it is compiled for one CPU")
        if name not in names:
            hint = did_you_mean(name, names)
            raise UsageError(f"{self.path} has no variant '{name}', only {', '.join(names)}{hint}")
        return self.variants[names.index(name)]

    def check_weights(self, on_piece: Callable[[int], None] | None = None) -> None:
        """Check the weights of all variants, at the speed of memory.

        ``on_piece`` is called after every few megabytes with the bytes checked so far, and may
        raise to give up. Raises ArtifactError: the weights are not those that were written.
        """
        checked, before = c_uint64(), 0
        for position, variant in enumerate(self.variants):
            done = -1
            while done < variant.weight_bytes:
                library().neocpu_check_weights(self._handle.address, position, byref(checked))
                done = checked.value
                if on_piece is not None:
                    on_piece(before + done)
            before += done


def read_header(path: str | os.PathLike[str], variant: str | None = None) -> ArtifactHeader:
    """Read the header of an artifact, for any machine, without loading its code.

    ``variant`` is by default the one that `neocpu.load` takes, or the first one if this host can
    run none. Raises ArtifactError as `ArtifactFile` does, and UsageError: there is no such variant.
    """
    file = ArtifactFile(path)
    chosen = file.loadable or file.variants[0] if variant is None else file.variant(variant)
    return chosen.header
