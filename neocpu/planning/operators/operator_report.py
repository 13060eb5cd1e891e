"""What was decided of each operator, as a plan's report has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    tensors: frozenset[str]
    reads_integers: bool
    numerics: Numerics | None
    day: str = ""
    alternatives: tuple[Alternative, ...] = ()
    proof: SumBound | None = None


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
        name=op.name,
        kind=op.name.rpartition("_")[0],
        workload=op.describe(choice),
        flops=op.flops,
        scheme=choice.scheme,
        weight_bytes=choice.weight_bytes,
        in_layout=format_text(choice.in_format),
        out_layout=format_text(choice.out_format),
        precision=_precision(choice.in_format.dtype),
        seconds=choice.seconds,
        cost_source=choice.source,
        kernel=kernel,
        in_network=op.in_network(choice, costs),
        tensors=_tensors((op.result, *op.absorbed), renamed),
        reads_integers=DTYPES[choice.in_format.dtype].is_integer,
        numerics=op.numerics(choice),
        day=choice.day,
        alternatives=alternatives,
        proof=op.proof(choice),
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
        name=op.name,
        kind=op.name.rpartition("_")[0],
        workload=str(op.workload),
        flops=op.workload.flops,
        scheme=op.scheme(target, threads),
        weight_bytes=None,
        in_layout="NC",
        out_layout="NC",
        precision=op.precision,
        seconds=op.estimate(target, threads),
        cost_source=ESTIMATED,
        kernel=kernel,
        in_network=op.in_network(costs),
        tensors=_tensors((op.result, *op.absorbed), renamed),
        reads_integers=DTYPES[numerics.weights].is_integer,
        numerics=numerics if op.precision is Precision.INT8 else None,
    )
