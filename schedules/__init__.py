"""Kernels, the types that describe them, and estimates of the time they take."""

from neocpu.foundation.pinned_packages import refuse_other_versions

# This must precede TVM's import by any kernel: with another foreign function interface TVM crashes.
refuse_other_versions()
