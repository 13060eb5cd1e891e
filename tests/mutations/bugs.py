"""The bugs to plant, by part of the project."""

from __future__ import annotations

from tests.mutations import bugs_in_compiler, bugs_in_kernels, bugs_in_runtime, bugs_in_search

BUGS = (*bugs_in_kernels.BUGS, *bugs_in_compiler.BUGS, *bugs_in_search.BUGS, *bugs_in_runtime.BUGS)
