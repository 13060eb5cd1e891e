"""What charts have in common: how they look, what stands below them, and their files."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neocpu.bench.results.machine import MachineInfo
from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSTALL_HINT: Final = "pip install 'neocpu[bench]'"

# Without a date or version in it, equal results give equal files.
_METADATA: Final[Mapping[str, dict[str, None]]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# Okabe and Ito's palette, which people with any colour vision can tell apart.
COLORS: Final = ("#D55E00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00")
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
STYLE: Final[dict[str, Any]] = {
    "svg.hashsalt": "neocpu",
    # Text stays text: it can be searched and read aloud.
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def check_suffix(path: Path) -> None:
    """Check that a chart's file name says which format it shall have.

    Raises
    ------
    UsageError
        If its suffix is none of the known ones.
    """
    kind = path.suffix.lstrip(".").lower()
    if kind not in _METADATA:
        known = ", ".join(f".{name}" for name in _METADATA)
        hint = did_you_mean(kind, _METADATA)
        raise UsageError(f"cannot draw {path}: its suffix must be one of {known}{hint}")


def available() -> bool:
    """Return whether matplotlib is installed, without importing it."""
    return importlib.util.find_spec("matplotlib") is not None


def caption(machine: MachineInfo, threads: Sequence[int]) -> str:
    """Return the line below a chart: where and when it was measured."""
    counts = ", ".join(map(str, threads))
    return f"{machine.cpu}, threads: {counts}, float32, {machine.date[:10]}"


def draw_legend(figure: Figure, axes: Axes, columns: int) -> None:
    """Draw the legend of ``axes`` above all of the figure, each label once."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))  # several lines may be of one kind
    figure.legend(
        once.values(), once.keys(), loc="outside upper center", ncols=columns, frameon=False
    )


def save(figure: Figure, path: Path, note: str) -> None:
    """Write a figure with a caption."""
    figure.supxlabel(note, fontsize=7, color="0.35")
    kind = path.suffix.lstrip(".").lower()
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150, metadata=dict(_METADATA[kind]))
    data = buffer.getvalue()
    with replacing(path, len(data)) as file:
        file.write(data)
