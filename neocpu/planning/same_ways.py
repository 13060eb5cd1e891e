"""Dense layers and products of a network, computed as they are for another size of its inputs.

What is fastest depends on the number of rows. One plan for all sizes computes as is fastest for the
typical ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neocpu.foundation.errors import UnsupportedError
from neocpu.planning.network import Network
from neocpu.planning.operators.dense_forms_op import in_same_form
from neocpu.planning.operators.dense_op import DenseOp
from neocpu.planning.operators.product_op import ProductOp
from neocpu.schedules.vocabulary.target import CpuTarget


def in_same_ways(
    network: Network, plain: Network, agreed: Network, target: CpuTarget, threads: int
) -> Network:
    """Return ``network`` with dense layers and products in the ways of ``agreed``.

    `plain`: the network before ways were chosen. Raises UnsupportedError: it has other layers.
    """
    _check([op.name for op in plain.dense], agreed.dense)
    _check([op.name for op in plain.products], agreed.products)
    dense = tuple(
        in_same_form(op, known, target, threads)
        for op, known in zip(plain.dense, agreed.dense, strict=True)
    )
    products = tuple(
        op.as_computed_by(known) for op, known in zip(plain.products, agreed.products, strict=True)
    )
    return replace(network, dense=dense, products=products)


def _check(names: Sequence[str], agreed: Sequence[DenseOp | ProductOp]) -> None:
    known = [op.name for op in agreed]
    if [*names] != known:
        odd = ", ".join(sorted({*names} ^ {*known})) or "another order"
        raise UnsupportedError(
            f"the network has other matrix products at some sizes ({odd}): leave these sizes out, "
            "or give a single shape"
        )
