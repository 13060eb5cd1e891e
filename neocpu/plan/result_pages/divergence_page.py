"""The page of a comparison of an artifact with its model: growth and places of the errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from neocpu.plan.result_pages import parts

Row: TypeAlias = Mapping[str, Any]

COLUMNS = (
    parts.Column("number", "count"),
    parts.Column("operator", "name"),
    parts.Column("makes"),
    parts.Column("computes", "text", True),
    parts.Column("in", "text", True),
    parts.Column("error", "error"),
    parts.Column("own error", "error"),
    parts.Column("may err", "error"),
    parts.Column("of what it may", "times"),
    parts.Column("verdict"),
)


def divergence_page(report: Row) -> str:
    """Return the page, as HTML, of a JSON document of ``neocpu compare --json``."""
    title = f"{report['artifact']} compared with {report['other']}"
    return parts.result_page(title, divergence_sections(report))


def divergence_sections(report: Row) -> tuple[parts.Section, ...]:
    tensors, first = report["tensors"], report["first"]
    rows = tuple(_row(number, tensor) for number, tensor in enumerate(tensors))
    where = [] if first is None or first["where"] is None else list(_where(first))
    return (
        parts.Section(
            "Growth",
            "How errors grow, operator by operator",
            (parts.Tiles(_tiles(report)), _growth(tensors), _facts(report)),
            "The line is the error of each tensor in a normal run. The dots are the error of its "
            "operator alone, on exact inputs. The dashed line is the bound of that error.",
        ),
        parts.Section(
            "Operators",
            "Every operator",
            (parts.Table(columns=COLUMNS, rows=rows, sort=0, down=False),),
        ),
        parts.Section("Where", "Where the errors are", (_histogram(report), *where)),
    )


def _tiles(report: Row) -> tuple[parts.Tile, ...]:
    tensors, first = report["tensors"], report["first"]
    worst = max((one["error"] for one in tensors if one["error"] is not None), default=None)
    infinite = any(one["error"] is None for one in tensors)
    name = "none" if first is None else first["operator"]
    return (
        parts.Tile(name, "text", "is the first operator that errs more than it may"),
        parts.Tile(report["broken"], "count", "operators err more than they may"),
        parts.Tile(len(tensors), "count", f"tensors compared, of {report['model_tensors']}"),
        parts.Tile("infinite" if infinite else worst, "error", "is the largest error of a tensor"),
    )


def _facts(report: Row) -> parts.Facts:
    pairs = [
        ("artifact", report["artifact"]),
        ("compared with", report["other"]),
        ("what is right", report["source"]),
        ("inputs", report["inputs"]),
    ]
    if (first := report["first"]) is not None:
        made = f" ({', '.join(first['nodes'])})" if first["nodes"] else ""
        pairs.append(("first wrong", f"{first['operator']} makes {first['name']}{made}"))
    return parts.Facts(tuple(pairs))


def _growth(tensors: Sequence[Row]) -> parts.Chart:
    return parts.Chart(
        title="Errors, norm-wise",
        across="tensors as they are made",
        up="error",
        unit="error",
        along=tuple(map(float, range(len(tensors)))),
        lines=(
            parts.Line("error", tuple(one["error"] for one in tensors)),
            parts.Line("own error", tuple(one["own_error"] for one in tensors), "dots"),
            parts.Line("may err", tuple(one["bound"] for one in tensors), "limit"),
        ),
        names=tuple(
            f"{number}, {one['operator']}: {one['name']}" for number, one in enumerate(tensors)
        ),
        log_y=True,
    )


def _row(number: int, tensor: Row) -> tuple[parts.Cell, ...]:
    own, bound = tensor["own_error"], tensor["bound"]
    return (
        number,
        tensor["operator"],
        tensor["name"],
        ", ".join(tensor["nodes"]),
        tensor["precision"],
        *(_error(tensor[key]) for key in ("error", "own_error", "bound")),
        own / bound if own is not None and bound else None,
        "" if tensor["kept"] else "wrong",
    )


def _error(value: float | None) -> parts.Cell:
    return "infinite" if value is None else value


def _histogram(report: Row) -> parts.Bars:
    counts = report["histogram"]
    names = [f"up to {each['up_to']:g}" for each in counts]
    if names:
        names[-1] = f"more than {counts[-2]['up_to']:g}" if len(counts) > 1 else names[-1]
    bars = zip(names, (float(each["operators"]) for each in counts), strict=True)
    return parts.Bars("Own errors as parts of what they may be, operators", "count", tuple(bars))


def _where(first: Row) -> Iterator[parts.Part]:
    shape = "x".join(map(str, first["shape"]))
    for number, axis in enumerate(first["where"]["axes"]):
        if len(axis) > 1:
            spans = ((_span(part), part["share"]) for part in axis)
            title = f"{first['name']} ({shape}): share of the error along axis {number}"
            yield parts.Bars(title, "share", tuple(spans))
    counted = (
        (f"by up to {each['up_to']:.0e} of its root mean square", float(each["count"]))
        for each in first["where"]["elements"]
        if each["count"]
    )
    yield parts.Bars("Elements that err", "count", tuple(counted))


def _span(part: Row) -> str:
    last = part["end"] - 1
    return str(last) if last == part["first"] else f"{part['first']} to {last}"
