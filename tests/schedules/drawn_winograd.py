"""Random convolutions for Winograd's algorithm in integers, with random schemes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from conv_workloads import conv_workload

from neocpu.schedules.convolutions.winograd.domain import domain_of
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def drawn_case(
    rng: random.Random, numerics: Sequence[Numerics], tiles: Sequence[int]
) -> tuple[Conv2dWorkload, WinogradScheme, int]:
    """Draw a convolution, a scheme and threads; sizes rarely divide each other."""
    lanes = 16
    image, padding = ([rng.randint(1, 15) for _ in range(2)], [rng.randint(0, 4) for _ in range(4)])
    image = [max(size, 3 - sum(padding[axis::2])) for axis, size in enumerate(image)]
    workload = conv_workload(
        rng.randint(1, 3),
        rng.choice([16, 17, 31, 64, 97, 131]),
        *image,
        rng.randint(16, 70),
        (3, 3),
        padding=tuple(padding),
        numerics=rng.choice(numerics),
    )
    scheme = WinogradScheme(
        lanes * rng.randint(1, 4),
        lanes * rng.randint(1, 4),
        reg_n=rng.randint(1, 7),
        tile=rng.choice(tiles),
        reg_oc=lanes * rng.randint(1, 4),
        strip=rng.randint(1, 5),
        oc_split=rng.random() < 0.5,
    )
    domain = domain_of(workload)
    if scheme.oc_split and domain.edge_tiles(scheme.tile, workload):
        scheme = replace(scheme, edge_tiles=rng.random() < 0.7)
    if scheme.oc_split and domain.is_exact:
        scheme = replace(scheme, on_the_fly=rng.random() < 0.5)
    return workload, scheme, rng.randint(1, 3)
