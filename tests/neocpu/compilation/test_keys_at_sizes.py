"""Arguments of kernels for sizes for which a network cannot be planned."""

from __future__ import annotations

from neocpu.compilation.keys_at_sizes import keys_at
from neocpu.schedules.vocabulary.traced_sizes import KernelKeys

SIZES = [(64, 96), (128, 64), (96, 160), (256, 224), (192, 128)]


def keys(height, width):
    """Return the arguments of two kernels: a convolution's that halves an image, and a product."""
    return KernelKeys(
        by_name={
            "conv": [("direct", (1, 16, height, width), (height // 2, (width + 1) // 2))],
            "product": [(height * width, 32)],
        }
    )


def test_arguments_follow_from_those_at_other_sizes():
    found = keys_at({sizes: keys(*sizes) for sizes in SIZES}, (32, 32))
    assert found is not None
    assert found.by_name == keys(32, 32).by_name


def test_arguments_without_a_formula_are_not_guessed():
    odd = {
        sizes: KernelKeys(by_name={"conv": [(sizes[0] ^ sizes[1] * 37 % 101,)]}) for sizes in SIZES
    }
    assert keys_at(odd, (32, 32)) is None


def test_other_kernels_have_no_arguments_in_common():
    fewer = KernelKeys(by_name={"conv": keys(64, 96).by_name["conv"]})
    without = KernelKeys(by_name={**keys(64, 96).by_name, "product": []})
    for other in (fewer, without):
        assert keys_at({SIZES[0]: keys(*SIZES[0]), SIZES[1]: other}, (32, 32)) is None
