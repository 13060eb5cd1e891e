"""The shortcomings of kernels, their cost and their reasons, as ``neocpu explain`` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from neocpu.foundation.console.terminal import echo, print_table
from neocpu.foundation.units import plural

if TYPE_CHECKING:
    from neocpu.plan.plan import Plan

SMALL: Final = 0.005
"""Share of a run below which a shortcoming is only counted, and not listed."""
UNKNOWN: Final = "no reason is known: please report this model"


def show_lacks(plan: Plan) -> None:
    """Print a line for each shortcoming of a kernel that costs enough, and count the others."""
    total = plan.predicted_us
    found = [(kernel.name, lack) for kernel in plan.kernels for lack in kernel.lacks]
    shown = [(name, lack) for name, lack in found if lack.cost_us >= SMALL * total]
    if not found:
        return
    echo()
    if shown:
        print_table(
            ("kernel that is not as it should be", "what it lacks", "of the run", "µs", "why"),
            [
                (
                    name,
                    str(lack),
                    f"{lack.cost_us / total:.1%}",
                    f"{lack.cost_us:.1f}",
                    lack.reason or UNKNOWN,
                )
                for name, lack in sorted(shown, key=lambda each: -each[1].cost_us)
            ],
            right=("of the run", "µs"),
        )
    if small := len(found) - len(shown):
        rest = sum(lack.cost_us for _, lack in found if lack.cost_us < SMALL * total)
        echo(
            f"{plural(small, 'shortcoming')} of kernels below {SMALL:.1%} of the run each, "
            f"{rest:.1f} µs in total."
        )
