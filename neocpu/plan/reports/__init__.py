"""Decisions of the compiler, and the plan that an artifact stores of them."""
