"""The forms that a model has between the steps of `neocpu.pipeline`.

Most contain all of the model's weights. Each step releases the form that it replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray

from neocpu.building.pipeline import Building
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.ir.array_digests import ArrayDigests
from neocpu.ir.row_analysis.proof import Rows
from neocpu.lowering.values import StoredValue
from neocpu.plan.reports.decisions import Decisions
from neocpu.planning.network import Network
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.planning.weight_origin import WeightOrigin
from neocpu.schedules.vocabulary.accuracy import Admission
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.scheme import Scheme

PlanKey: TypeAlias = tuple[tuple[Format, Format, Scheme | None], ...]
"""The layouts and the scheme of each operator. Plans with equal keys are the same."""


def plan_key(plan: LayoutPlan) -> PlanKey:
    """Return the key of a plan."""
    return tuple((each.in_format, each.out_format, each.scheme) for each in plan.choices)


class Source:
    """A model's program and operators, which contain the weights until the last plan takes them.

    Parameters
    ----------
    mod : tvm.IRModule
        The simplified program.
    network : Network
        Its operators.
    uses : int
        Number of plans that will take them.
    fired : mapping of str to int
        Number of times that each rule simplified the program.
    rows : Rows
        Result of the proof that the program computes the rows of a batch independently.
    digests : ArrayDigests
        Digests of the weights.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        network: Network,
        uses: int,
        fired: Mapping[str, int],
        rows: Rows,
        digests: ArrayDigests,
    ) -> None:
        self.digests = digests
        self.fired = fired
        self.rows = rows
        self._mod: tvm.IRModule | None = mod
        self._network: Network | None = network
        self._uses = uses

    @property
    def network(self) -> Network:
        """The operators, before the last plan takes them."""
        assert self._network is not None
        return self._network

    def take(self) -> tuple[tvm.IRModule, Network, ArrayDigests]:
        """Return the program, its operators and the digests. The last call releases them."""
        mod, network, digests = self._mod, self.network, self.digests
        assert mod is not None
        self._uses -= 1
        if self._uses == 0:
            self._mod = self._network = None
            self.digests = ArrayDigests()
        return mod, network, digests


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A model and its program as the importer made it.

    Attributes
    ----------
    loaded : LoadedModel
        The model without its graphs, except the original if a reference will run it.
    mods : list of tvm.IRModule
        The program; empty once it is being simplified.
    """

    loaded: LoadedModel
    mods: list[tvm.IRModule]


@dataclass(frozen=True, slots=True, eq=False)
class Simplified:
    """A model from which plans are made.

    Attributes
    ----------
    loaded : LoadedModel
        The model without its graphs, except the original if a reference will run it.
    source : Source
        Its simplified program.
    """

    loaded: LoadedModel
    source: Source


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Planned:
    """A model rewritten by a plan.

    Attributes
    ----------
    loaded : LoadedModel
        The model.
    key : tuple
        The plan's `plan_key`.
    mod : tvm.IRModule
        The rewritten program.
    weights : list of array
        Packed weights; empty once the artifact has them.
    decided : Decisions
        The decisions about the model.
    values : tuple of StoredValue
        The model's tensors that exist in the rewritten program.
    origins : tuple of WeightOrigin or None
        Sources of the packed weights, if the model belongs to a set of shapes; else empty.
    rows : Rows
        Result of the proof that the program computes the rows of a batch independently.
    """

    loaded: LoadedModel
    key: PlanKey
    mod: tvm.IRModule
    weights: list[NDArray[np.generic]]
    decided: Decisions
    values: tuple[StoredValue, ...]
    origins: tuple[WeightOrigin | None, ...]
    rows: Rows

    @property
    def names(self) -> frozenset[str]:
        """Names of the variables that hold the model's tensors."""
        return frozenset(value.variable for value in self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Generating:
    """A planned model whose code is being generated by child processes.

    Attributes
    ----------
    planned : Planned
        The model.
    building : Building
        The code generation.
    """

    planned: Planned
    building: Building


@dataclass(frozen=True, slots=True)
class Attempt:
    """An artifact of one plan, not verified yet.

    Attributes
    ----------
    key : tuple
        The plan's `plan_key`.
    compiled : CompiledModule
        The artifact.
    """

    key: PlanKey
    compiled: CompiledModule

    @property
    def admission(self) -> Admission:
        """The set of kernels that the plan could choose from."""
        return self.compiled.decided.admission
