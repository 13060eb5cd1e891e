"""Arguments of a scheduled kernel in other shapes of as many elements."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.s_tir.stmt import SBlock, SBlockRealize
from tvm.tirx.buffer import buffer_data


def with_shapes(func: tirx.PrimFunc, shapes: Sequence[tuple[int, ...]]) -> tirx.PrimFunc:
    """Return a kernel whose arguments have these ``shapes``, and whose body reads them in its own.

    A map of indices would divide by extents, which costs where a kernel is for any size.
    """
    params, views = [], []
    for param, shape in zip(func.params, shapes, strict=True):
        if tuple(map(int, param.shape)) == tuple(shape):
            params.append(param)
            continue
        params.append(tirx.decl_buffer(shape, str(param.dtype), param.name))
        views.append(tirx.DeclBuffer(param, data=buffer_data(params[-1])))
    root = func.body.block
    block = SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        tirx.SeqStmt([*views, root.body]),
        root.init,
        root.alloc_buffers,
        root.match_buffers,
        root.annotations,
    )
    return tirx.PrimFunc(params, SBlockRealize([], True, block), func.ret_type, func.attrs)
