"""What was decided of each operator, as a plan's report has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm.ir import Var

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.dtypes import DTYPES
from neocpu.planning.alternatives import Alternative
from neocpu.planning.choice import ESTIMATED, Choice
from neocpu.planning.operators.dense_op import DenseOp
from neocpu.planning.operators.layout_op import LayoutOp
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.operators.product_op import ProductOp
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.accuracy import SumBound
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import Scheme

MICRO = 1e6


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """What was decided of one operator.

    Attributes
    ----------
    name, kind : str
        Such as ``conv2d_7`` and ``conv2d``.
    workload : str
        What it computes.
    flops : int
        Floating-point operations of the direct algorithm.
    scheme : Scheme or None
        Of a convolution.
    weight_bytes : int or None
        Packed; None of dense layers, whose weights no plan changes.
    in_layout, out_layout : str
    precision : str
        What it computes with: ``fp32``, ``int8`` or ``bf16``.
    seconds : float
        What the plan takes it to cost.
    cost_source : str
        Where that is from.
    kernel : str or None
        The function that computes it; None if fusion is yet to decide.
    in_network : NetworkTime or None
        What it takes in a run; None if its loops are to tell.
    reads_integers : bool
        Whether its weights or its data are integers.
    numerics : Numerics or None
        Of a convolution: element types of all that it reads, adds up and stores.
    day : str
        When what the cost is from was measured; empty of estimates.
    proof : SumBound or None
        Why it loses nothing of integers, where that needs a proof.
    alternatives : tuple of Alternative
        The next best ways to run it.
    tensors : frozenset of str
        What it makes and what it absorbed, as the model calls them, as far as its names are left.
    """

    name: str
    kind: str
    workload: str
    flops: int
    scheme: Scheme | None
    weight_bytes: int | None
    in_layout: str
    out_layout: str
    precision: str
    seconds: float
    cost_source: str
    kernel: str | None
    in_network: NetworkTime | None
    tensors: frozenset[str] = frozenset()
    reads_integers: bool = False
    numerics: Numerics | None = None
    day: str = ""
    alternatives: tuple[Alternative, ...] = ()
    proof: SumBound | None = None

    def to_json(self, takes: float | None, total: float) -> dict[str, Any]:
        """JSON form; costs are in microseconds.

        Parameters
        ----------
        takes : float or None
            Seconds of its kernel in a run; None if it has none of its own.
        total : float
            Seconds of the run.
        """
        numerics = self.numerics
        bytes_ = {} if self.weight_bytes is None else {"weight_bytes": self.weight_bytes}
        return {
            "name": self.name,
            "kind": self.kind,
            "workload": self.workload,
            "flops": self.flops,
            "scheme": None if self.scheme is None else self.scheme.to_json(),
            **bytes_,
            "in_layout": self.in_layout,
            "out_layout": self.out_layout,
            "precision": self.precision,
            **({} if numerics is None or numerics.is_uniform else numerics.to_json()),
            **({} if self.proof is None else {"proof": self.proof.to_json()}),
            "cost_us": self.seconds * MICRO,
            "cost_source": self.cost_source,
            **({"cost_day": self.day} if self.day else {}),
            "kernel": self.kernel,
            "predicted_us": None if takes is None else takes * MICRO,
            "share": None if takes is None else takes / total,
            "alternatives": [_alternative(one) for one in self.alternatives],
        }


def _alternative(one: Alternative) -> dict[str, Any]:
    """Return the JSON form; costs are in microseconds, to the nanosecond: there are many."""
    choice = one.choice
    return {
        **({} if choice.scheme is None else {"scheme": choice.scheme.to_json()}),
        "in_layout": format_text(choice.in_format),
        "out_layout": format_text(choice.out_format),
        "cost_us": round(choice.seconds * MICRO, 3),
        "cost_source": choice.source,
        "transforms_us": round(one.transforms * MICRO, 3),
        "weights_us": round(one.weights * MICRO, 3),
        "more_us": round(one.more * MICRO, 3),
    }


def report_of_op(
    op: LayoutOp,
    choice: Choice,
    costs: NetworkCosts,
    kernel: str | None,
    renamed: Mapping[str, str],
    alternatives: tuple[Alternative, ...] = (),
) -> OperatorReport:
    """Describe an operator as a plan has it, and the kernel that it became.

    Parameters
    ----------
    renamed : mapping of str to str
        What the model calls tensors, by the names of those variables that have others.
    """
    return OperatorReport(
        op.name,
        op.name.rpartition("_")[0],
        op.describe(choice),
        op.flops,
        choice.scheme,
        choice.weight_bytes,
        format_text(choice.in_format),
        format_text(choice.out_format),
        _precision(choice.in_format.dtype),
        choice.seconds,
        choice.source,
        kernel,
        op.in_network(choice, costs),
        _tensors((op.result, *op.absorbed), renamed),
        DTYPES[choice.in_format.dtype].is_integer,
        op.numerics(choice),
        choice.day,
        alternatives,
        op.proof(choice),
    )


def _tensors(made: Iterable[Var], renamed: Mapping[str, str]) -> frozenset[str]:
    return frozenset(renamed.get(name, name) for name in (str(var.name) for var in made))


def _precision(dtype: str) -> Precision:
    """Return what an operator computes with that reads such elements."""
    if dtype == BFLOAT16:
        return Precision.BF16
    return Precision.INT8 if DTYPES[dtype].is_integer else Precision.FP32


def format_text(form: Format) -> str:
    """Return the layout, and the element type where it is another than float32."""
    return str(form.layout if form.dtype == "float32" else form)


def report_of_layer(
    op: DenseOp | ProductOp, costs: NetworkCosts, kernel: str | None, renamed: Mapping[str, str]
) -> OperatorReport:
    """Describe an operator on matrices, of which the search has nothing to choose."""
    numerics, target, threads = op.workload.numerics, costs.plan, costs.threads
    return OperatorReport(
        op.name,
        op.name.rpartition("_")[0],
        str(op.workload),
        op.workload.flops,
        op.scheme(target, threads),
        None,
        "NC",
        "NC",
        op.precision,
        op.estimate(target, threads),
        ESTIMATED,
        kernel,
        op.in_network(costs),
        _tensors((op.result, *op.absorbed), renamed),
        DTYPES[numerics.weights].is_integer,
        numerics if op.precision is Precision.INT8 else None,
    )
