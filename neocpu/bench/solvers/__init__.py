"""The solvers of the layout search against each other."""
