"""Comparing an artifact with its model, or with another artifact, tensor by tensor.

The artifact is run three times. In the second run, each compared tensor is replaced by its expected
value once it is made, so that each operator reads exact inputs and its error is its own. In the
third, these values are rounded differently, which shows how sensitive operators are to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from neocpu.foundation.arrays import Array, Arrays
from neocpu.foundation.errors import UsageError
from neocpu.foundation.progress import ProgressCallback, silent
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.model_identity import difference
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.plan.model_values import ModelValue
from neocpu.runtime.header import ArtifactHeader
from neocpu.verification.divergence.operators import Operators, made_after
from neocpu.verification.divergence.reference_tensors import (
    NodesBetween,
    expected_tensors,
    load_like,
    tensor_names,
)
from neocpu.verification.divergence.report import (
    DIRECT,
    SENSITIVITY,
    ComparedTensor,
    Divergence,
    bound_of,
    norm_error,
    where_of,
)
from neocpu.verification.divergence.watched_model import SeenRun, WatchedModel
from neocpu.verification.reference.comparison import REFERENCE, ROUNDING
from neocpu.verification.reference.oracles import Truth
from neocpu.verification.reference.row_matching import pair_rows
from neocpu.verification.reference.tolerance import tolerances

NUDGE: Final = 2.0**-22
"""Largest relative change of a number that stands for a different rounding: two units in the last
place."""


_ROUNDING: Final = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear", "Round")
"""Operators that rounding decides for: a value halfway between two steps may go either way."""


@dataclass(frozen=True, slots=True)
class ComparisonInputs:
    """Inputs that artifacts are run on: arrays by name, or None for random ones of a seed."""

    arrays: Arrays | None = None
    seed: int = 0

    def of(self, watched: WatchedModel) -> dict[str, Array]:
        """Return an artifact's inputs."""
        if self.arrays is not None:
            return dict(self.arrays)
        return random_inputs(watched.header.inputs, self.seed)

    def __str__(self) -> str:
        return f"random, seed {self.seed}" if self.arrays is None else "given"


def compare_with_model(
    model: str | os.PathLike[str],
    artifact: str | os.PathLike[str],
    inputs: ComparisonInputs,
    *,
    shapes: InputShapes = NO_SHAPES,
    threads: int | None = None,
    force: bool = False,
    on_progress: ProgressCallback = silent,
) -> Divergence:
    """Compare an artifact's tensors with those of the model that it was compiled from.

    ``model`` is a path, or a built-in network's name. Shapes select a plan of a set, and have the
    values that ``compile`` was given for inputs. Another model is a `UsageError` unless ``force``;
    nothing being able to run it is an `AccuracyError`. ``on_progress`` is called before a slow
    reference.
    """
    with WatchedModel(artifact, threads, shapes.by_name) as watched:
        loaded = load_like(model, watched.path, watched.header, shapes)
        if not force:
            _require_same_model(loaded.identities, os.fspath(model), watched)
        given = inputs.of(watched)
        known = tensor_names(loaded)
        names = {value.name for value in watched.values} & known
        free = watched.run(given)  # inputs that do not fit are found before the reference runs
        found = expected_tensors(loaded, names, given, on_progress)
        truth = _Truth.of(os.fspath(model), found, len(known))
        common = _common(watched, truth)
        nodes = NodesBetween(loaded.original.graph, {value.name for value in common}, known)
        return _diverging(watched, truth, common, given, free, inputs, nodes)


def compare_artifacts(
    other: str | os.PathLike[str],
    artifact: str | os.PathLike[str],
    inputs: ComparisonInputs,
    *,
    shapes: InputShapes = NO_SHAPES,
    threads: int | None = None,
    force: bool = False,
) -> Divergence:
    """Compare tensors of two artifacts of one model, or any if ``force``; shapes select plans."""
    chosen = shapes.by_name
    with (
        WatchedModel(other, threads, chosen) as right,
        WatchedModel(artifact, threads, chosen) as watched,
    ):
        _require_same_tensors(right, watched)
        if not force:
            _require_same_model(_identities(right.header), right.path, watched)
        given = inputs.of(watched)
        run = right.run(given)
        operators = Operators(right)
        bounds = {
            value.name: bound_of(value, run.tensors[value.name], operators.of(value).rounding)
            for value in right.values
            if value.name in run.tensors
        }
        expected = {**run.tensors, **run.outputs}
        names = {value.name for value in right.values} | expected.keys()
        truth = _Truth(right.path, right.path, expected, len(names), bounds)
        common = _common(watched, truth)
        return _diverging(watched, truth, common, given, watched.run(given), inputs, None)


def _identities(header: ArtifactHeader) -> tuple[str, ...]:
    plan = header.known_plan
    return () if plan is None else plan.models


def _require_same_model(models: Collection[str], name: str, watched: WatchedModel) -> None:
    if other := difference(models, _identities(watched.header)):
        raise UsageError(
            f"{watched.path} ({watched.header.name}) is not compiled from the model of {name}, "
            f"which has {other}: name the one that it was compiled from, or compare them anyway "
            "with --force"
        )


def _require_same_tensors(right: WatchedModel, watched: WatchedModel) -> None:
    sides = [(*each.header.inputs, *each.header.outputs) for each in (right, watched)]
    if [*map(str, sides[0])] != [*map(str, sides[1])]:
        raise UsageError(
            f"{right.path} ({right.header.summary}) and {watched.path} ({watched.header.summary}) "
            "are not compiled from one model"
        )


@dataclass(frozen=True, slots=True)
class _Truth:
    """The expected tensors, bounds on their own errors, and the number that the source has."""

    name: str
    source: str
    expected: Arrays
    count: int
    bounds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, model: str, found: Truth, count: int) -> _Truth:
        """Return the results of an oracle for a model with ``count`` tensors."""
        oracle = found.oracle
        if oracle.name == REFERENCE:
            return cls(model, oracle.name, found.outputs, count)
        bounds = dict.fromkeys(found.outputs, DIRECT)  # it computes in float32 itself
        return cls(model, f"{oracle.name} ({oracle.reason})", found.outputs, count, bounds)


def _common(watched: WatchedModel, truth: _Truth) -> list[ModelValue]:
    """Return the tensors that both sides have, all common outputs included, or raise."""
    header, counted = watched.header, _counted(watched.header)
    seen = [value for value in watched.values if value.name not in counted]
    names = {value.name for value in seen}
    outputs = (
        ModelValue(
            name=spec.name,
            calls=made_after(header, number),
            offset=0,
            dtype=spec.dtype,
            shape=spec.shape,
        )
        for spec, number in zip(header.outputs, header.returns, strict=False)
        if spec.name not in names
    )
    found = [
        value
        for value in (*seen, *outputs)
        if value.name in truth.expected
        and _fits(truth.expected[value.name].shape, value, value.name in counted)
    ]
    if not found:
        raise _nothing_common(watched, truth)
    return found


def _counted(header: ArtifactHeader) -> frozenset[str]:
    return frozenset(spec.name for spec in header.outputs if spec.bounded)


def _fits(shape: tuple[int, ...], value: ModelValue, counted: bool) -> bool:
    """Whether a tensor has the model's shape, or more rows: the most that a run may select."""
    if len(shape) != len(value.shape):
        return False
    larger = [
        axis for axis, (n, most) in enumerate(zip(shape, value.shape, strict=True)) if n != most
    ]
    if counted and larger not in ([], [0]):
        return False
    return len(larger) < 2 and all(shape[axis] < value.shape[axis] for axis in larger)


def _nothing_common(watched: WatchedModel, truth: _Truth) -> UsageError:
    return UsageError(
        f"{watched.path} ({watched.header.name}) and {truth.name} have no tensor in common that is "
        "made on these inputs: compare an artifact with the model that it was compiled from"
    )


def _diverging(
    watched: WatchedModel,
    truth: _Truth,
    common: Sequence[ModelValue],
    inputs: Arrays,
    free: SeenRun,
    source: ComparisonInputs,
    nodes: NodesBetween | None,
) -> Divergence:
    header, counted = watched.header, _counted(watched.header)
    expected = {value.name: truth.expected[value.name] for value in common}
    exact = {name: array for name, array in expected.items() if name not in counted}
    names = [[header.outputs[place].name for place in group] for group in header.row_groups]
    groups = [[name for name in group if name in expected] for group in names]
    rng = np.random.default_rng(source.seed)
    runs = (
        free,
        watched.run(inputs, exact),
        watched.run(_nudged(inputs, rng), _nudged(exact, rng)),
    )
    arrays = [rows_in_order(_recorded(run, counted, expected), expected, groups) for run in runs]
    tensors = tuple(_compared(watched, truth, common, arrays, nodes))
    if not tensors:
        raise _nothing_common(watched, truth)
    return Divergence(
        artifact=watched.path,
        other=truth.name,
        source=truth.source,
        inputs=str(source),
        tensors=tensors,
        model_tensors=truth.count,
    )


def _compared(
    watched: WatchedModel,
    truth: _Truth,
    common: Collection[ModelValue],
    runs: Sequence[Arrays],
    nodes: NodesBetween | None,
) -> Iterator[ComparedTensor]:
    operators = Operators(watched)
    seen = {value.calls - 1 for value in common}
    for value in common:
        name, expected = value.name, truth.expected[value.name]
        if any(name not in run for run in runs):
            continue  # it belongs to a branch that was not taken
        free, own, nudged = (run[name] for run in runs)
        operator = operators.of(value)
        between = () if nodes is None else nodes.of(name)
        bound = bound_of(value, expected, operator.rounding)
        if not value.scale and any(node.startswith(_ROUNDING) for node in between):
            bound = max(bound, ROUNDING)
        bound += truth.bounds.get(name, 0.0) + SENSITIVITY * norm_error(nudged, own)
        own_error = norm_error(own, expected)
        yield ComparedTensor(
            name=name,
            shape=expected.shape,
            operator=operator.name,
            kernel=operator.kernel,
            precision=operator.precision,
            nodes=between,
            error=norm_error(free, expected),
            own_error=own_error,
            bound=bound,
            where=None
            if own_error <= bound or own.shape != expected.shape
            else where_of(own, expected),
            before=operators.before(value, seen),
        )


def _recorded(run: SeenRun, counted: Collection[str], expected: Arrays) -> dict[str, Array]:
    """Return a run's outputs and tensors, cut to expected shapes except for ``counted`` ones."""
    rows = {name: run.outputs[name] for name in counted}
    tensors = {name: run.tensors[name] for name in expected if name in run.tensors}
    seen = {name: array[tuple(map(slice, expected[name].shape))] for name, array in tensors.items()}
    made = {name: array for name, array in seen.items() if array.shape == expected[name].shape}
    return {**run.outputs, **made, **rows}


def _nudged(arrays: Arrays, rng: np.random.Generator) -> dict[str, Array]:
    """Return arrays whose real numbers are rounded differently."""
    return {
        name: (array * (1 + rng.uniform(-NUDGE, NUDGE, array.shape))).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in arrays.items()
    }


def rows_in_order(actual: Arrays, expected: Arrays, groups: Sequence[Sequence[str]]) -> Arrays:
    """Return outputs of selected rows, in the expected order of these rows.

    Rows that rounding exchanges, or that only one side selects, count as right, as `pair_rows` of
    ``row_matching`` allows. Outputs of a group whose rows do not match keep their order.
    """
    ordered = dict(actual)
    for group in filter(None, groups):
        mine, theirs = ({name: side[name] for name in group} for side in (actual, expected))
        pairs = pair_rows(mine, theirs, {name: tolerances(right) for name, right in theirs.items()})
        for name, right in theirs.items() if pairs is not None else ():
            assert pairs is not None
            ordered[name] = right.astype(mine[name].dtype)
            ordered[name][pairs[1]] = mine[name][pairs[0]]
    return ordered
