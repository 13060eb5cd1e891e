"""How everything is computed: the words it is described in, the kernels, and what they take."""
