"""A C program runs the branch that the data select, and no other."""

import neocpu
from tests.neocpu.frontend.control_flow.control_flow_models import BRANCHES, parsed


def test_the_other_branch_is_not_run(built, tmp_path):
    path = tmp_path / "model.so"
    neocpu.compile(parsed(BRANCHES), verify=False).export(path)
    done = built.run(built.compile("branches.c"), path)
    assert done.returncode == 0, done.stderr
    then, other, calls = map(int, done.stdout.split())
    assert then + other == calls
    assert then > 0
    assert other > 0
