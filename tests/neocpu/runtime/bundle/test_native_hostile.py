"""Names and arrays from anybody: the C program neither prints nor trusts any unchecked."""

from dataclasses import replace

import numpy as np
from hostile_arrays import BAD

from neocpu.building.link import write_artifact

NASTY = "a\x1b[2J\x9b31m\u202eb\u2069\r\nneocpu_run: error: forged\x7f\u2028é🙂"
HARMLESS = {"another key"}
"""Defects that the C program ignores."""


def test_names_are_escaped(run, linear, tmp_path):
    path = tmp_path / "net.so"
    header = replace(
        linear.header,
        name=NASTY,
        target=NASTY,
        inputs=(replace(linear.header.inputs[0], name=NASTY),),
        outputs=(replace(linear.header.outputs[0], name=NASTY),),
    )
    write_artifact(linear.built, linear.weights, header, path)
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    assert done.stdout.count("é🙂") == 4
    assert r"a\x1b[2J\xc2\x9b31m\xe2\x80\xaeb" in done.stdout
    np.save(tmp_path / "x.npy", linear.inputs()[0][:, 1:])
    for wrong in (tmp_path / "x.npy", tmp_path / NASTY.replace("/", "")):
        done = run(path, wrong)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert done.stderr[:-1].isprintable()


def test_bad_arrays(run, linear, tmp_path):
    path = tmp_path / "x.npy"
    for name in BAD.keys() - HARMLESS:
        path.write_bytes(BAD[name])
        done = run(linear.path, path, "--threads", 1)
        assert done.returncode == 2, f"{name}: {done.stderr}"
        assert done.stderr.count("\n") == 1, name
