"""The public functions `compile` and `tune`, which check their arguments."""

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
from neocpu.frontend.shapes.size_ranges import Typical
from neocpu.schedules.vocabulary.accuracy import parse_accuracy
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.search.measuring.rpc_tracker import parse_fleet
from neocpu.search.tuner import TuneReport


def compile(
    model: ModelLike,
    *,
    target: str | dict[str, Any] | CpuTarget = "host",
    goal: words.Goal = "latency",
    threads: int | None = None,
    shapes: Shapes | None = None,
    typical: Typical | None = None,
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

    The artifact lies in a temporary folder. `CompiledModule.export` writes it to a file, and
    `neocpu.load` opens that file.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or str
        The model, or the name of a built-in one such as ``resnet50``.
    target : str, dict or CpuTarget
        The CPU to compile for, in any form that `parse_target` accepts; by default this machine's.
    goal : str
        ``latency`` minimises the time of one call on all threads. ``throughput`` maximises the
        calls a second: as many calls at once as there are threads, each on one thread. Load such an
        artifact with ``neocpu.load(path, streams="auto")``.
    threads : int, optional
        The number of threads that the plan is made for; by default the number of CPUs that this
        process may use.
    shapes : mapping, or sequence of mappings, optional
        A mapping from names to shapes or numbers. A shape, such as ``(1, 3, 224, 224)``, is the
        complete shape of an input. A number is either the extent of a named dynamic dimension or
        the value of an input that becomes a constant, as in ``{"sr": 16000}``. A sequence of
        mappings is a set of shapes: the artifact has a plan for each of them, and stores the
        weights that they share once. Python's ranges in a mapping, as in ``{"x": (1, 3, range(32,
        2049, 32), range(32, 2049, 32))}``, are sizes: the artifact has one plan, which takes all.
    typical : mapping or sequence, optional
        The sizes of the ranges in ``shapes`` that the plan is made for, as in ``{"x": (1, 3, 736,
        1280)}`` or ``{"h": 736}``. A shape alone is that of the first input with ranges. By
        default, it is the size that is nearest to the geometric middle of its range.
    batch : int, optional
        The number of images in each call. It is the first extent of every input that ``shapes``
        does not name and whose first dimension is dynamic or, if none is dynamic, 1. A model of one
        image is changed to take several. It computes the same for each image, and its results are
        checked against the original model.
    databases : sequence of path
        Tuning databases to read in addition to the shipped ones and the user's own. New
        measurements are written to the last one.
    only_databases : bool
        Whether to read only ``databases``. If there are none, the plan relies on estimates alone.
    tune_budget : float or str
        The time to spend on measuring workloads that no database has: seconds, or text such as
        ``"60s"``, ``"10m"`` or ``"1h"``. By default nothing is measured.
    opt : str
        The level of layout optimisation: ``nchw``, ``conv-layout``, ``uniform`` or ``global``, as
        in Table 3 of the paper.
    algorithms : sequence of str, optional
        The only convolution templates to use, as in ``("direct", "depthwise")``; by default all.
    accuracy : str
        ``default`` allows a norm-wise error of the outputs of 1e-4. ``strict`` allows 5e-6 and
        excludes Winograd's and Strassen's convolutions, because they err more than direct summation
        in float32. See `neocpu.schedules.vocabulary.accuracy`.
    precision : str
        ``auto`` computes each operator of a quantised model in integers where that makes the
        network faster, and a float32 model in float32. ``int8`` does the same, but refuses a
        float32 model: `compile_calibrated` quantises one with data. ``fp32`` computes nothing in
        integers. The results of a quantised model are the same with all three. ``bf16`` lets
        convolutions, dense layers and attention multiply bfloat16 and add in float32 where that is
        faster. Outputs err more then: `neocpu.schedules.vocabulary.accuracy.BFLOAT16` bounds their
        errors instead of ``accuracy``.
    max_error : float, optional
        The largest norm-wise error of the outputs of a float32 model, such as 1e-2. With ``auto``
        or ``bf16``, the model is compiled as with ``bf16``. If its outputs then err more, the
        layers that save the least time return to float32. The error is measured on random inputs,
        so this host must be able to run the code, and ``verify`` must be true.
    small : bool
        Whether to compute in integers, or with ``bf16`` in bfloat16, wherever the CPU can, even if
        that is slower. Weights are smallest then.
    max_weights : int, optional
        The limit on the packed weights, in bytes. The plan is the fastest one found within it, and
        its gap says how far it may be from the best one. Without a limit, Winograd's transformed
        weights may take up to nine times the space of the model's own; the weights of a quantised
        network are kept to 45 % of their size in float32 if any plan can keep that.
    pack_at_load : bool
        Whether the file of a set of shapes has each weight in one packing, and loading makes the
        other packings that its plans need. If false, the file has all packings: it is larger and
        loads faster.
    solver : str
        The solver of the layout search. ``auto`` is exact if ``search_seconds`` are enough;
        otherwise it returns the best plan found and how far it may be from the best one. ``exact``
        takes as long as it needs. ``dp`` and ``pbqp`` are the paper's methods.
    search_seconds : float, optional
        The time limit of ``auto`` and ``dp``, in seconds; 10 by default.
    verify : bool
        Whether to compare the outputs with those of the reference and enforce the bound on their
        errors, if this host can run the code.
    processing : Processing
        The steps that the artifact performs before and after the model: see `Processing.parse`.
    disable_rules : sequence of str
        The names of graph rules to leave out, such as ``("fold-scale",)``: to measure what a rule
        gains, or to work around a wrong one. docs/passes.md lists them.
    on_progress : callable, optional
        A function that is called with a `Progress` for each step.

    Returns
    -------
    CompiledModule
        The artifact, with the compiler's decisions and the result of verification.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError, AccuracyError
    """
    cpu = _linkable(target)
    options = CompileOptions.parse(
        goal=goal,
        threads=threads,
        shapes=shapes,
        typical=typical,
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
    """Measure the schemes of all convolutions of ``models`` that no database has.

    It also measures how fast feature maps are transformed and joined, one workload for each class
    and size. All models are tuned jointly, each to near its own optimum.

    Parameters
    ----------
    models : sequence
        The models, in any form that `compile` accepts.
    target, threads, shapes, batch
        See `compile`.
    accuracy : str
        The accuracy that `compile` will be called with. ``strict`` measures only the schemes that
        it allows.
    database : path, optional
        The file to write measurements to; by default the user's own database.
    only_database : bool
        Whether to read only ``database``, and neither the shipped ones nor the user's own.
    strategy : str
        ``xgb`` ranks schemes by a learned cost model, measures the best few and learns from them,
        until little is left to gain. ``grid`` is the paper's exhaustive search, best estimates
        first. ``random`` measures schemes at random. ``analytic`` measures nothing, so ``target``
        may be any CPU.
    seed : int
        The seed of the search. Equal seeds and measurements give equal searches.
    budget : float or str, optional
        The time limit: seconds, or text such as ``"10m"``; no limit by default.
    trials : int, optional
        The largest number of measurements; no limit by default.
    tracker : str, optional
        ``HOST:PORT`` of a TVM RPC tracker. Its servers then measure instead of this machine.
        ``target`` and ``threads`` describe these servers.
    key : str, optional
        The name under which the servers are registered at the tracker.
    parallel : int, optional
        The largest number of servers to use at once; by default all.
    on_progress : callable, optional
        A function that is called with a `Progress` for each step.
    on_interrupt : callable, optional
        A function that is called with the report so far if Ctrl-C ends the search.

    Returns
    -------
    TuneReport
        The result of the search.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError
    """
    if isinstance(models, str | bytes) or not isinstance(models, Sequence):
        raise ArgumentTypeError(
            f"models must be a sequence such as [model], got {type(models).__name__}"
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
        title = str(model) if isinstance(model, str | os.PathLike) else ""
        report(Progress("import", number, len(models), title))
        networks.append(workloads_of(read_network(model, given), cpu))
    return tune_networks(
        networks,
        cpu,
        threads,
        store,
        chosen,
        limit,
        report,
        measuring,
        level.admission,
        on_interrupt,
    )


def _linkable(target: str | dict[str, Any] | CpuTarget) -> CpuTarget:
    """Parse a target, and check now that a linker exists, not after minutes of tuning."""
    cpu = parse_target(target)
    find_linker(cpu.machine)
    return cpu
