"""The header of an artifact, from the forms of its model."""

from __future__ import annotations

from importlib.metadata import version

from neocpu.compilation.model_forms import Planned
from neocpu.plan.plan import Plan
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules.vocabulary.target import CpuTarget


def header_of(planned: Planned, plan: Plan, target: CpuTarget) -> ArtifactHeader:
    """Return the header of a model whose code is complete."""
    loaded, decided, rows = planned.loaded, planned.decided, planned.rows
    return ArtifactHeader(
        name=loaded.name,
        neocpu_version=version("neocpu"),
        tvm_version=version("apache-tvm"),
        ffi_version=version("apache-tvm-ffi"),
        target=str(target),
        machine=target.machine,
        isa_features=target.demands,
        threads=decided.threads,
        streams=decided.streams,
        inputs=loaded.inputs,
        outputs=loaded.outputs,
        row_counts=loaded.row_counts,
        row_function=rows.function,
        rows_mixed=rows.mixed,
        numbered=rows.numbered,
        stored_plan=plan.to_json(),
    )
