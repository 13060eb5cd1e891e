"""The text that ``neocpu compare`` prints for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from neocpu.foundation.console.terminal import echo, print_fields, print_table
from neocpu.foundation.units import plural
from neocpu.plan.text.columns import print_columns
from neocpu.verification.divergence.report import ComparedTensor, Divergence, Part, Where

_NODES: Final = 3  # number of an operator's nodes that a line of the table names
_FEW: Final = 30  # number of tensors up to which all are listed
_WRONG: Final = 10  # number of wrong tensors that are listed out of many


def show_divergence(found: Divergence, *, every: bool) -> None:
    """Print how errors grow and their first places; `every`: all tensors, not only telling ones."""
    broken = sum(not tensor.kept for tensor in found.tensors)
    last = found.tensors[-1]
    first = "none: every operator keeps its bound"
    if found.first is not None:
        first = f"'{found.first.name}' of {found.first.operator}, {broken} in all"
    echo(f"{found.artifact} compared with {found.other}")
    print_fields(
        [
            ("truth", found.source),
            ("inputs", found.inputs),
            ("tensors", f"{len(found.tensors)} compared, of {found.model_tensors}"),
            ("at the end", f"'{last.name}' errs by {last.error:.2g} of its norm"),
            ("first wrong", first),
        ]
    )
    echo()
    shown = found.tensors if every else tuple(_notable(found.tensors))
    columns: dict[str, Callable[[ComparedTensor], str]] = {
        "tensor": lambda tensor: tensor.name,
        "operator": lambda tensor: tensor.operator,
        "in": lambda tensor: tensor.precision,
        "computes": _nodes_text,
        "error": lambda tensor: f"{tensor.error:.1e}",
        "own error": lambda tensor: f"{tensor.own_error:.1e}",
        "may err": lambda tensor: f"{tensor.bound:.1e}",
        "": lambda tensor: "" if tensor.kept else "wrong",
    }
    print_columns(shown, columns, ("error", "own error", "may err"))
    if left := len(found.tensors) - len(shown):
        wrong = broken - sum(not tensor.kept for tensor in shown)
        which = f"{wrong} of them wrong" if wrong else "whose errors grew less"
        echo(f"and {plural(left, 'tensor')} between them, {which}: -v lists all")
    echo()
    print_table(
        ("own error, of what it may", "operators"),
        [(f"up to {10.0**power:g}", str(count)) for power, count in found.histogram if count],
        right=("operators",),
    )
    if found.first is not None and found.first.where is not None:
        echo()
        _show_where(found.first, found.first.where)


def _notable(tensors: Sequence[ComparedTensor]) -> Iterator[ComparedTensor]:
    """Yield tensors whose error has grown by a quarter, the first wrong ones, and the last one."""
    reached, wrong = 0.0, 0
    for number, tensor in enumerate(tensors, 1):
        wrong += not tensor.kept
        grown = tensor.error > 1.25 * reached
        named = not tensor.kept and wrong <= _WRONG
        if grown or named or number == len(tensors) or len(tensors) <= _FEW:
            reached = max(reached, tensor.error)
            yield tensor


def _nodes_text(tensor: ComparedTensor) -> str:
    names = ", ".join(tensor.nodes[:_NODES])
    more = len(tensor.nodes) - _NODES
    return f"{names} and {more} more" if more > 0 else names


def _show_where(tensor: ComparedTensor, where: Where) -> None:
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    echo(f"Where '{tensor.name}' ({shape}) errs")
    fields = [
        (f"axis {number}", _parts_text(parts))
        for number, parts in enumerate(where.axes)
        if len(parts) > 1
    ]
    elements = [(power, count) for power, count in where.elements if count]
    counted = ", ".join(f"{count} by up to 1e{power:+d}" for power, count in elements)
    print_fields([*fields, ("elements", f"{counted} of its root mean square")])


def _parts_text(parts: tuple[Part, ...]) -> str:
    """Return the parts of an axis with more than their share of the error, the largest first."""
    extent = parts[-1].end
    # If the error is everywhere, some parts still have a little more of it than others.
    large = [part for part in parts if part.share > 2 * (part.end - part.first) / extent]
    if not large:
        return f"all of {extent}"
    large.sort(key=lambda part: -part.share)
    return ", ".join(f"{_span(part)} {part.share:.0%}" for part in large) + f" of {extent}"


def _span(part: Part) -> str:
    return str(part.first) if part.end == part.first + 1 else f"{part.first} to {part.end - 1}"
