"""The result of a compilation: an artifact that is not exported yet."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from neocpu.building.kernel_report import KernelReport
from neocpu.building.link import write_outcome
from neocpu.building.program import CompiledKernel
from neocpu.foundation.closing import Closing
from neocpu.foundation.files import move, replacing
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.plan.outcome import CalibratedLayer
from neocpu.plan.plan import Plan
from neocpu.plan.reports.decisions import Decisions
from neocpu.planning.weight_origin import WeightOrigin
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.module import Module, load
from neocpu.runtime.unpicklable import Unpicklable
from neocpu.search.tuner import TuneReport
from neocpu.verification.reference.comparison import Comparison


class CompiledModule(Unpicklable, Closing):
    """A compiled model: an artifact in a temporary folder, until it is closed.

    Attributes
    ----------
    header : ArtifactHeader
        The artifact's header.
    decided : Decisions
        The compiler's decisions; for a set of shapes, those for the first one.
    predicted : tuple of KernelReport
        Predicted times of the kernels, in the compiler's own types.
    plan : Plan
        The plan as the artifact stores it.
    kernels : tuple of CompiledKernel
        The code of the kernels.
    origins : tuple of WeightOrigin or None
        Sources of the artifact's first weights, if it is one part of a set of shapes.
    verification : Comparison or None
        The comparison with the independent reference. It is None if it was not requested or the
        code cannot run here; ``plan.unchecked`` has the reason.
    seconds : dict of str to float
        The duration of each phase.
    tuned : TuneReport or None
        The result of tuning; None if no tuning was requested.
    """

    _instead = "export it to a file, and neocpu.load() that in each process"

    def __init__(
        self,
        header: ArtifactHeader,
        decided: Decisions,
        predicted: tuple[KernelReport, ...] = (),
        kernels: tuple[CompiledKernel, ...] = (),
        origins: tuple[WeightOrigin | None, ...] = (),
    ) -> None:
        self.header, self.decided = header, decided
        self.predicted, self.kernels, self.origins = predicted, kernels, origins
        self.verification: Comparison | None = None
        self.seconds: dict[str, float] = {}
        self.tuned: TuneReport | None = None
        self._folder = TemporaryFolder("compiled")

    @property
    def plan(self) -> Plan:
        """The plan as the artifact stores it."""
        return self.header.plan

    @property
    def path(self) -> Path:
        """The path of the temporary artifact, which `close` deletes."""
        return Path(self._folder.name) / "module.so"

    @property
    def integers(self) -> tuple[CalibratedLayer, ...]:
        """The layers that calibration data moved from float32 to integers."""
        return () if (found := self.plan.calibration) is None else found.layers

    def add_outcome(self, header: ArtifactHeader) -> None:
        """Add the results of its runs to the artifact: whatever ``header`` has beyond its own."""
        write_outcome(self.path, header)
        self.header = header

    def module(self, threads: int | None = None) -> Module:
        """Load the artifact into this process."""
        return load(self.path, threads)

    def export(self, path: str | os.PathLike[str]) -> ArtifactHeader:
        """Write the artifact to ``path``. If that fails, no part of it appears there.

        Raises
        ------
        UsageError, ArtifactError
            The folder is missing or read-only, or the disk is full.
        """
        with (
            open(self.path, "rb") as source,
            replacing(Path(path), self.path.stat().st_size, executable=True) as file,
        ):
            shutil.copyfileobj(source, file, 1 << 22)
        return self.header

    def hand_over(self, path: str | os.PathLike[str]) -> ArtifactHeader:
        """Write the artifact to ``path`` as `export` does, and close this module.

        The file is moved if possible, and copied otherwise.
        """
        if not move(self.path, Path(path)):
            self.export(path)
        self.close()
        return self.header

    def close(self) -> None:
        """Delete the temporary artifact. Exported files stay."""
        self._folder.cleanup()

    def __repr__(self) -> str:
        return f"<neocpu.CompiledModule {self.header.summary}>"
