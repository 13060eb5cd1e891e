"""The global search: a layout graph and the ways to solve it."""
