"""Where the pixels of a padding by reflection come from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def reflected(extent: int, before: int, behind: int) -> npt.NDArray[np.int64]:
    """Return the positions along an axis that a reflection at its ends' centres repeats.

    Parameters
    ----------
    extent : int
        Of the axis. A single element is all there is.
    before, behind : int
        Positions to add at either end, as many as one likes: what is reflected is reflected again.

    Returns
    -------
    array of int64
        ``before + extent + behind`` positions from 0 to ``extent - 1``.
    """
    last = extent - 1
    places = np.arange(-before, extent + behind) + last
    return np.abs(places % max(1, 2 * last) - last)
