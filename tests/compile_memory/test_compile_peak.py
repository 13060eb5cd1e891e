"""A compilation holds at most 2.2 forms of a model's weights, and 300 MB besides."""

from __future__ import annotations

import compile_peak
import needs
import pytest

from neocpu.frontend.models import MODELS

#: Most weights in few layers; batch norms folded into many.
FIRST = ("vgg19", "resnet50")


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [*FIRST, *needs.repeated((n for n in MODELS if n not in FIRST), MODELS.keys())]
)
def test_a_compilation_takes_little_more_than_two_forms_of_the_weights(network: str) -> None:
    found = compile_peak.measure(network)
    assert found.peak <= found.bound, found
