"""What a compilation gives: an artifact that is not exported yet."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from neocpu.building.kernel_table import CompiledKernel
from neocpu.building.link import replace_header
from neocpu.foundation.closing import Closing
from neocpu.foundation.files import move, replacing
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.plan.reports.plan_report import PlanReport
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
    report : PlanReport
        What was decided and why; of a set of shapes, for the first of them.
    plan : dict
        Its JSON form, which ``neocpu explain --json`` prints.
    kernels : tuple of CompiledKernel
        Its code.
    origins : tuple of WeightOrigin or None
        Of a part of a set, what the first of its weights were packed of.
    verification : Comparison or None
        Against the independent reference; None if it was not asked for or cannot run here, as
        ``plan["unchecked"]`` says.
    seconds : dict of str to float
        How long each phase took.
    tuned : TuneReport or None
        What was measured for it; None if nothing was to be.
    """

    _instead = "export it to a file, and neocpu.load() that in each process"

    def __init__(
        self,
        header: ArtifactHeader,
        report: PlanReport,
        kernels: tuple[CompiledKernel, ...] = (),
        origins: tuple[WeightOrigin | None, ...] = (),
    ) -> None:
        self.header, self.report = header, report
        self.kernels, self.origins = kernels, origins
        self.verification: Comparison | None = None
        self.seconds: dict[str, float] = {}
        self.tuned: TuneReport | None = None
        self._folder = TemporaryFolder("compiled")

    @property
    def plan(self) -> dict[str, Any]:
        """What was decided and why, as the artifact has it."""
        return self.header.plan

    @property
    def path(self) -> Path:
        """The artifact, until `close`."""
        return Path(self._folder.name) / "module.so"

    @property
    def integers(self) -> list[dict[str, Any]]:
        """Of a float32 model compiled with calibration data: its layers in integers.

        What each saves, and what it adds to the outputs' noise.
        """
        return [] if (found := self.plan["calibration"]) is None else list(found["layers"])

    def amend(self, report: PlanReport) -> None:
        """Write into the artifact what became known of its plan once it had run."""
        self.report = report
        self.header = replace_header(self.path, replace(self.header, plan=report.to_json()))

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
