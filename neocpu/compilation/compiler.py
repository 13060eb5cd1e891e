"""The public functions, which check what they are given."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neocpu.compilation.compile_each import compile_each
from neocpu.compilation.compile_options import CompileOptions, Member, parse_budget, parse_threads
from neocpu.compilation.compile_within import compile_within, is_in_float32, limited
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.network_tuning import (
    make_strategy,
    measurer_for,
    open_store,
    tune_networks,
    workloads_of,
)
from neocpu.compilation.read_model import ModelLike, read_network
from neocpu.foundation import option_words as words
from neocpu.foundation.errors import ArgumentTypeError
from neocpu.foundation.linker import find_linker
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.frontend.processing.processing import NO_PROCESSING, Processing
from neocpu.frontend.shapes.input_shapes import Given, InputShapes
from neocpu.frontend.shapes.requested_shapes import Shapes
from neocpu.schedules.vocabulary.accuracy import parse_accuracy
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.search.measuring.fleet import parse_fleet
from neocpu.search.tuner import TuneReport


def compile(
    model: ModelLike,
    *,
    target: str | dict[str, Any] | CpuTarget = "host",
    goal: words.Goal = "latency",
    threads: int | None = None,
    shapes: Shapes | None = None,
    batch: int | None = None,
    databases: Sequence[str | os.PathLike[str]] = (),
    only_databases: bool = False,
    tune_budget: float | str = 0.0,
    opt: words.Opt = "global",
    algorithms: Sequence[str] | None = None,
    accuracy: words.AccuracyName = "default",
    precision: words.PrecisionName = "auto",
    max_error: float | None = None,
    small: bool = False,
    max_weights: int | None = None,
    pack_at_load: bool = True,
    solver: words.Solver = "auto",
    search_seconds: float | None = None,
    verify: bool = True,
    processing: Processing = NO_PROCESSING,
    disable_rules: Sequence[str] = (),
    on_progress: ProgressCallback | None = None,
) -> CompiledModule:
    """Compile an ONNX model for one CPU.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or str
        The model, or the name of a built-in one such as ``resnet50``.
    target : str, dict or CpuTarget
        Any spelling `parse_target` knows.
    goal : str
        ``latency``: one call takes the least time on all threads. ``throughput``: calls of one
        thread each, made at once on all of them, which `neocpu.load` does with ``streams="auto"``.
    threads : int, optional
        Threads the plan is made for; by default the CPUs this process may use.
    shapes : mapping, or sequence of mappings, optional
        Complete shapes of inputs with dynamic dimensions; or a number: the extent of a named
        dimension, or the value of an input that is constant from then on, as in ``{"sr": 16000}``.
        Several such mappings are a set of shapes: the artifact has a plan for each of them, and
        weights that they share once.
    batch : int, optional
        Images of each call: the first extent of every input that ``shapes`` does not name and
        whose first dimension is dynamic or, if none is, 1. A model of one image is changed to take
        several: what it computes of each stays the same, and is checked against the model as given.
    databases : sequence of path
        Tuning databases besides the shipped and the user's own; the last one is written to.
    only_databases : bool
        Use the records of ``databases`` alone; without any, the plan is made of estimates.
    tune_budget : float or str
        Time to spend on measuring what no database knows: seconds, or text such as ``"60s"``,
        ``"10m"`` or ``"1h"``.
    opt : str
        ``nchw``, ``conv-layout``, ``uniform`` or ``global`` (paper Table 3).
    algorithms : sequence of str, optional
        Restrict the convolution templates, as in ``("direct", "depthwise")``.
    accuracy : str
        ``default``: outputs err at most 1e-4, norm-wise; ``strict``: at most 5e-6, and convolutions
        that err more than direct float32 summation, Winograd's and Strassen's, are excluded. See
        `neocpu.schedules.vocabulary.accuracy`.
    precision : str
        ``auto`` and ``int8`` compute each operator of a quantised model in integers where that is
        faster in the network, ``fp32`` nowhere; the results are the same. A float32 model is
        computed in float32 by ``auto`` and ``fp32``, and refused by ``int8``: `compile_calibrated`
        quantises it by data. ``bf16`` has convolutions and dense layers read bfloat16 and add up
        in float32 where that is faster: outputs err by that, and are held to
        `neocpu.schedules.vocabulary.accuracy.BFLOAT16`.
    max_error : float, optional
        What outputs of a float32 model may err, norm-wise, as in 1e-2: with ``auto`` it is computed
        as with ``bf16``, as far as that stays within; layers that save little go back to float32.
        Measured on random inputs, so that this host has to be able to run the code.
    small : bool
        Compute in integers, or with ``bf16`` in bfloat16, wherever the CPU can, faster or not:
        weights take the least space.
    max_weights : int, optional
        Bytes that the packed weights may take: the plan is the fastest one found within them, and
        its gap says how far it may be from the best one. Winograd's transformed weights are up to
        nine times as many as the model's.
    pack_at_load : bool
        Of a set of shapes, whose plans may read weights in several packings: store each weight
        once, and have the others made when the artifact is loaded. Else all are in the file.
    solver : str
        Of the layout search: ``auto`` (exact within ``search_seconds``, else the best plan found,
        and how far that may be from the best one), ``exact`` (however long it takes), or the
        paper's ``dp`` or ``pbqp``.
    search_seconds : float, optional
        Time limit of ``auto`` and ``dp``; 10 by default.
    verify : bool
        Run the result against the reference, if this host can run it, and hold it to ``accuracy``.
    processing : Processing
        What the artifact does before and after the model: `Processing.parse`.
    disable_rules : sequence of str
        Names of rules that are not applied to the graph, such as ``("fold-scale",)``: to see what
        they bring, or to go on where one is wrong. docs/passes.md lists them.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError, AccuracyError
    """
    cpu = _linkable(target)
    options = CompileOptions.parse(
        goal=goal,
        threads=threads,
        shapes=shapes,
        batch=batch,
        databases=databases,
        only_databases=only_databases,
        tune_budget=tune_budget,
        opt=opt,
        algorithms=algorithms,
        accuracy=accuracy,
        precision=precision,
        small=small,
        max_weights=max_weights,
        pack_at_load=pack_at_load,
        solver=solver,
        search_seconds=search_seconds,
        verify=verify,
        processing=processing,
        disable_rules=disable_rules,
    )
    if max_error is not None:
        options = limited(options, max_error)
        if is_in_float32(model, options):
            return compile_within(model, cpu, options, on_progress or silent)
    member = Member(cpu, options.plan.precision)
    (compiled,) = compile_each(model, [member], options, lambda _: on_progress or silent)
    return compiled


def tune(
    models: Sequence[ModelLike],
    *,
    target: str | dict[str, Any] | CpuTarget = "host",
    threads: int | None = None,
    shapes: Mapping[str, Given] | None = None,
    batch: int | None = None,
    accuracy: words.AccuracyName = "default",
    database: str | os.PathLike[str] | None = None,
    only_database: bool = False,
    strategy: words.StrategyName = "xgb",
    seed: int = 0,
    budget: float | str | None = None,
    trials: int | None = None,
    tracker: str | None = None,
    key: str | None = None,
    parallel: int | None = None,
    on_progress: ProgressCallback | None = None,
    on_interrupt: Callable[[TuneReport], None] = lambda report: None,
) -> TuneReport:
    """Measure the schemes of all convolutions of ``models`` that no database knows.

    And how fast feature maps are transformed and joined, one workload for each class and size. All
    models are tuned together, each to near its own optimum.

    Parameters
    ----------
    models : sequence
        As `compile` takes them.
    target, threads, shapes, batch
        As in `compile`.
    accuracy : str
        ``strict``: measure only what `compile` may choose with that.
    database : path, optional
        Where the measurements go; by default the user's own database.
    only_database : bool
        Know nothing but what ``database`` holds.
    strategy : str
        ``xgb`` (a learned cost model ranks, the best few are measured, it learns; ends when little
        is left to gain), ``grid`` (the paper's exhaustive search, best estimates first), ``random``
        or ``analytic`` (measures nothing, so ``target`` may be any CPU).
    seed : int
        Equal seeds and measurements give equal searches.
    budget : float or str, optional
        Seconds, or text such as ``"10m"``; no limit by default.
    trials : int, optional
        Measurements; no limit by default.
    tracker : str, optional
        ``HOST:PORT`` of a TVM RPC tracker: measure on its servers instead of on this machine, for
        their ``target`` and with ``threads`` threads there.
    key : str, optional
        What those servers are registered under.
    parallel : int, optional
        Servers to use at once; by default all.
    on_interrupt : callable, optional
        Called with what was tried until then, if Ctrl-C ends the measuring.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError
    """
    if isinstance(models, str | bytes) or not isinstance(models, Sequence):
        raise ArgumentTypeError(
            f"models must be a sequence, as [model], got {type(models).__name__}"
        )
    report = on_progress or silent
    cpu = parse_target(target)
    threads = parse_threads(threads)
    level = parse_accuracy(accuracy)
    named = [] if database is None else [database]
    store = open_store(named, only=only_database, writing=True)
    chosen = make_strategy(strategy, cpu, threads, store, seed)
    measuring = measurer_for(chosen, cpu, threads, parse_fleet(tracker, key, parallel))
    limit = parse_budget(budget, trials)
    given = InputShapes.parse(shapes, batch)
    networks = []
    for number, model in enumerate(models):
        report(Progress("import", number, len(models), str(model) if _is_path(model) else ""))
        networks.append(workloads_of(read_network(model, given), cpu))
    admission = level.admission
    return tune_networks(
        *(networks, cpu, threads, store, chosen, limit, report, measuring, admission, on_interrupt)
    )


def _is_path(model: ModelLike) -> bool:
    return isinstance(model, str | os.PathLike)


def _linkable(target: str | dict[str, Any] | CpuTarget) -> CpuTarget:
    """Return the CPU, having found a linker: its absence is not told after minutes of tuning."""
    cpu = parse_target(target)
    find_linker(cpu.machine)
    return cpu
