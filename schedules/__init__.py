"""How everything is computed: the words it is described in, the kernels, and what they take."""

from neocpu.foundation.pinned_packages import refuse_other_versions

# Before any kernel's module imports TVM: with another foreign function interface it crashes.
refuse_other_versions()
