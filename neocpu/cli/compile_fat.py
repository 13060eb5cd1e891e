"""``neocpu compile --fat``: one model for several CPUs, in one file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neocpu.cli.plan_text import error_text
from neocpu.cli.terminal import print_table
from neocpu.foundation.errors import TargetError, UsageError
from neocpu.foundation.progress import Progress, ProgressCallback
from neocpu.foundation.units import duration, size

if TYPE_CHECKING:
    from neocpu.compiled_module import CompiledModule
    from neocpu.schedules.vocabulary.target import CpuTarget

Reporter = Callable[["CompiledModule"], dict[str, Any]]


def compile_fat(
    model: str,
    names: Sequence[str],
    path: Path,
    on_progress: ProgressCallback,
    report: Reporter,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Compile a model for each of ``names`` and write all of it to ``path``.

    Parameters
    ----------
    names : sequence of str
        Targets, as `parse_target` takes them.
    report : callable
        What is said of one compiled module.
    settings
        Of `neocpu.compile`.

    Returns
    -------
    list of dict
        What ``report`` says of each variant, and its name and bytes.
    """
    targets = _targets(names, tuning=settings["tune_budget"] > 0)
    # Which takes longer than to find a name wrong.
    from neocpu.building.fat_file import combine_each
    from neocpu.compile_options import CompileOptions
    from neocpu.compiler import compile_each

    options = CompileOptions.parse(**settings)
    progress = [_of_variant(name, on_progress) for name in targets]
    with ExitStack() as stack:
        modules: dict[str, CompiledModule] = {}
        each = compile_each(model, [*targets.values()], options, progress.__getitem__)
        stack.callback(each.close)

        def compiled_parts() -> Generator[tuple[str, Path]]:
            for name, compiled in zip(targets, each, strict=True):
                modules[name] = compiled
                with compiled:
                    yield name, compiled.path

        parts = compiled_parts()
        stack.callback(parts.close)
        variants = combine_each(parts, path)
        return [
            {"name": variant.name, "bytes": variant.size, **report(modules[variant.name])}
            for variant in variants
        ]


def show_variants(variants: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of what `compile_fat` returned."""
    print_table(
        ("variant", "target", "size", "transforms", "predicted", "largest error"),
        [
            (
                variant["name"],
                variant["target"],
                size(variant["bytes"]),
                str(variant["transforms"]),
                duration(variant["predicted_us"] / 1e6),
                error_text(variant),
            )
            for variant in variants
        ],
        right=("size", "transforms", "predicted"),
    )


def _targets(names: Sequence[str], *, tuning: bool) -> dict[str, CpuTarget]:
    """Parse all targets and check what each needs, before minutes are spent on the first."""
    from neocpu.foundation.linker import find_linker
    from neocpu.schedules.vocabulary.target import missing_on_host, parse_target

    targets: dict[str, CpuTarget] = {}
    for name in names:
        target = parse_target(name)
        if (other := next((n for n, t in targets.items() if t == target), None)) is not None:
            raise UsageError(f"--fat: '{other}' and '{name}' are the same CPU; name it once")
        if tuning and missing_on_host(target.features):
            raise TargetError(
                f"--tune-budget measures on this machine, which cannot run '{name}': tune on such "
                "a one with `neocpu tune`, then compile with --db and without --tune-budget"
            )
        find_linker(target.machine)
        targets[name] = target
    return targets


def _of_variant(name: str, on_progress: ProgressCallback) -> ProgressCallback:
    def report(step: Progress) -> None:
        on_progress(Progress(f"{name}: {step.phase}", step.done, step.total, step.detail))

    return report
