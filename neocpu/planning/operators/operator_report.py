"""The decisions of a plan for each operator, as its report has them."""

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
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReport:
    name: str  # such as ``conv2d_7``, of kind ``conv2d``
    kind: str
    workload: str  # description of what it computes
    flops: int  # floating-point operations of the direct algorithm
    scheme: Scheme | None
    weight_bytes: int | None  # None for dense layers, whose weights no plan changes
    in_layout: str
    out_layout: str
    precision: str  # numbers that it computes with: ``fp32``, ``int8`` or ``bf16``
    seconds: float  # in the plan
    cost_source: str
    kernel: str | None  # function that computes it; None before fusion has decided that
    in_network: NetworkTime | None  # None if it is estimated from the kernel's loops
    tensors: frozenset[str]  # names in the model of those it makes or absorbed
    reads_integers: bool  # whether its weights or its data are integers
    numerics: Numerics | None  # element types that it reads, adds up and stores, with a scheme
    day: str = ""  # day of the measurement that the cost is from; empty for estimates
    alternatives: tuple[Alternative, ...] = ()  # the next best ways to run it
    proof: SumBound | None = None  # proof that its integer sums are exact, if that needs a proof


def report_of_op(
    op: LayoutOp,
    choice: Choice,
    costs: NetworkCosts,
    kernel: str | None,
    renamed: Mapping[str, str],
    alternatives: tuple[Alternative, ...] = (),
) -> OperatorReport:
    """Describe an operator of a plan, and the kernel that it became. `renamed` has the model's
    names of tensors, by the names of variables that differ from these.
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
    if dtype == BFLOAT16:
        return Precision.BF16
    return Precision.INT8 if DTYPES[dtype].is_integer else Precision.FP32


def format_text(form: Format) -> str:
    """Return the layout, with the element type if that is not float32."""
    return str(form.layout if form.dtype == "float32" else form)


def report_of_layer(
    op: DenseOp | ProductOp, costs: NetworkCosts, kernel: str | None, renamed: Mapping[str, str]
) -> OperatorReport:
    """Describe an operator on matrices, for which the search has nothing to choose."""
    numerics, target, threads = op.workload.numerics, costs.plan, costs.threads
    scheme = op.scheme(target, threads)
    return OperatorReport(
        name=op.name,
        kind=op.name.rpartition("_")[0],
        workload=str(op.workload),
        flops=op.workload.flops,
        scheme=scheme,
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
        numerics=None if scheme is None else numerics,
    )
