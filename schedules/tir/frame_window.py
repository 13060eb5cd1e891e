"""The depth slices of a volume that lie under a window along its depth."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as T

from neocpu.schedules.vocabulary.frames import Frames


def taps_inside(frames: Frames, start: Any) -> tuple[Any, Any]:
    """Return the first tap of a window with a slice of the volume, and the number of such taps.

    `start` is the slice under the window's first tap, which may lie before the volume.
    """
    first = T.Bind(T.max((frames.dilation - 1 - start) // frames.dilation, 0))
    ahead = (frames.depth - start + frames.dilation - 1) // frames.dilation
    return first, T.Bind(T.max(T.min(ahead, frames.kernel) - first, 0))
