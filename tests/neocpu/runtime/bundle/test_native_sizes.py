"""Models whose calls choose sizes, in C: threads, streams, jobs, memory, and files of any size."""

import needs
import numpy as np
import pytest
from sized_artifact import HEIGHT, WIDTH, inputs_of, reference


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("built", 10_000),
        ("sanitized", 1000),
        pytest.param("watched", 1000, marks=needs.everything()),
    ],
)
def test_sizes_of_threads_streams_and_jobs(request, kind, calls, sized):
    bundle = request.getfixturevalue(kind)
    done = bundle.run(bundle.compile("sizes.c"), sized, calls)
    assert done.returncode == 0, done.stdout + done.stderr
    *sizes, memory = done.stdout.splitlines()
    assert sizes == [
        f"{size.name} {size.least} {size.most} {size.step} {size.typical} 0 {axis}"
        for axis, size in enumerate((HEIGHT, WIDTH), 2)
    ]
    if kind == "built":
        early, late, grown = map(int, memory.split())
        assert late == early
        assert grown < 64  # kB, of stacks


@pytest.mark.parametrize(("height", "width"), [(8, 5), (64, 48), (2, 2), (34, 7)])
def test_files_of_any_size(run, sized, tmp_path, height, width):
    inputs = inputs_of(height, width)
    words = []
    for name, array in zip("xm", inputs, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
        words.append(tmp_path / f"{name}.npy")
    outputs = [tmp_path / "pooled.npy", tmp_path / "sums.npy"]
    done = run(sized, *words, "-o", outputs[0], "-o", outputs[1])
    assert done.returncode == 0, done.stderr
    assert "  size     h 2..64 in steps of 2\n  size     w 2..48\n" in done.stdout
    for path, expected in zip(outputs, reference(*inputs), strict=True):
        np.testing.assert_allclose(np.load(path), expected, rtol=1e-4, atol=1e-4)


def test_zeros_are_of_the_typical_sizes(run, sized):
    done = run(sized, "--repeat", 2)
    assert done.returncode == 0, done.stderr
    assert "output   pooled float32[1,2,4,2], from 0 to 0" in done.stdout


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (
            ((1, 2, 7, 5), (1, 3)),
            "size 'h' of model 'sized' is 7, and it takes 2..64 in steps",
        ),
        (
            ((1, 2, 8, 49), (1, 4)),
            "size 'w' of model 'sized' is 49, and it takes 2..48: the",
        ),
        (((2, 8, 5), (1, 4)), "input 'x' has 4 axes, the file holds 3"),
        (((1, 2, 8, 5), (1, 5)), "input 'm' takes shape (1, 4), the file holds (1, 5)"),
        (((1, 3, 8, 5), (1, 4)), "input 'x' takes shape (1, 2, 8, 5), the file holds (1, 3, 8, 5)"),
    ],
)
def test_files_of_wrong_sizes(run, sized, tmp_path, shapes, said):
    for name, shape in zip("xm", shapes, strict=True):
        np.save(tmp_path / f"{name}.npy", np.zeros(shape, np.float32))
    done = run(sized, tmp_path / "x.npy", tmp_path / "m.npy")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
