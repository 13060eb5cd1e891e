"""What a compilation gives: an artifact that is not exported yet."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from neocpu.building.kernel_report import KernelReport
from neocpu.building.kernel_table import CompiledKernel
from neocpu.building.link import replace_header
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
    """A compiled model: an artifact in a temporary folder until it is exported.

    Attributes
    ----------
    header : ArtifactHeader
    decided : Decisions
        The compiler's decisions; of a set of shapes, for the first of them.
    predicted : tuple of KernelReport
        Predicted times of its kernels, in the compiler's own types.
    plan : Plan
        The plan as the artifact stores it.
    kernels : tuple of CompiledKernel
        Its code.
    origins : tuple of WeightOrigin or None
        Of a part of a set, what the first of its weights were packed of.
    verification : Comparison or None
        Against the independent reference; None if it was not asked for or cannot run here, as
        ``plan.unchecked`` says.
    seconds : dict of str to float
        How long each phase took.
    tuned : TuneReport or None
        What was measured for it; None if nothing was to be.
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
        """The artifact, until `close`."""
        return Path(self._folder.name) / "module.so"

    @property
    def integers(self) -> tuple[CalibratedLayer, ...]:
        """The layers in integers of a float32 model that was compiled with calibration data."""
        return () if (found := self.plan.calibration) is None else found.layers

    def amend(self, plan: Plan) -> None:
        """Write into the artifact what became known of its plan once it had run."""
        self.header = replace_header(self.path, self.header.with_plan(plan))

    def module(self, threads: int | None = None) -> Module:
        """Load the artifact into this process."""
        return load(self.path, threads)

    def export(self, path: str | os.PathLike[str]) -> ArtifactHeader:
        """Write the artifact to ``path``: all of it appears there or nothing does.

        Raises
        ------
        UsageError, ArtifactError
            If the folder is missing or read-only, or the disk is full.
        """
        with (
            open(self.path, "rb") as source,
            replacing(Path(path), self.path.stat().st_size, executable=True) as file,
        ):
            shutil.copyfileobj(source, file, 1 << 22)
        return self.header

    def hand_over(self, path: str | os.PathLike[str]) -> ArtifactHeader:
        """Write the artifact to ``path`` as `export` does; nothing is left here to load or export.

        It is moved there if that is possible.
        """
        if not move(self.path, Path(path)):
            self.export(path)
        self.close()
        return self.header

    def close(self) -> None:
        """Delete the temporary artifact; what was exported stays."""
        self._folder.cleanup()

    def __repr__(self) -> str:
        return f"<neocpu.CompiledModule {self.header.summary}>"
