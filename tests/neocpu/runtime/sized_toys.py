"""Fabricated signatures of modules that take ranges of extents."""

from collections.abc import Callable, Sequence

from neocpu.foundation.size_formulas import Size
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.signatures import Signature
from neocpu.runtime.sized_signatures import SizedSignatures

Shapes = Callable[..., Sequence[tuple[int, ...]]]

HEIGHT = Size(name="h", least=64, most=1024, step=8, typical=256)
WIDTH = Size(name="w", least=64, most=1024, step=8, typical=320)


def sized(
    sizes: Sequence[Size], axes: Sequence[tuple[int, int]], inputs: Shapes, outputs: Shapes
) -> SizedSignatures:
    """Return signatures whose shapes are functions of sizes."""

    def specs(names: str, shapes: Shapes, values: Sequence[int]) -> tuple[TensorSpec, ...]:
        pairs = zip(names, shapes(*values), strict=False)
        return tuple(TensorSpec(name, "float32", shape) for name, shape in pairs)

    def extents(values: Sequence[int]) -> list[int]:
        asked.append(tuple(values))
        return [each for shape in (*inputs(*values), *outputs(*values)) for each in shape]

    asked: list[tuple[int, ...]] = []
    typical = tuple(size.typical for size in sizes)
    one = Signature(specs("xm", inputs, typical), specs("yz", outputs, typical), 0)
    made = SizedSignatures(one, sizes, axes, extents)
    made.asked = asked  # type: ignore[attr-defined]
    return made


def picture() -> SizedSignatures:
    """Return those of a network with a mask of half the height and of its own number of columns."""
    return sized(
        (HEIGHT, WIDTH),
        ((0, 2), (0, 3)),
        lambda h, w: ((1, 3, h, w), (1, h // 2)),
        lambda h, w: ((1, 8, h // 8, w // 8),),
    )
