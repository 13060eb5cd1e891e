"""The C program computes the same as Python, bit for bit."""

import os
import re
import shutil
import subprocess
from dataclasses import replace

import needs
import numpy as np
import pytest

import neocpu
from neocpu.building.link import write_artifact
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.bundle.write_bundle import write_bundle
from tests.neocpu.conftest import _build, _header
from tests.neocpu.runtime.bundle.conftest import build

LOADER = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[os.uname().machine]


def save(folder, arrays):
    paths = [folder / f"x{i}.npy" for i in range(len(arrays))]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return paths


def outputs(run, folder, model, arrays, count):
    """Run the program on arrays; return its outputs."""
    written = [folder / f"y{i}.npy" for i in range(count)]
    options = [word for path in written for word in ("-o", path)]
    done = run(model, *save(folder, arrays), *options)
    assert done.returncode == 0, done.stderr
    return [np.load(path) for path in written]


@pytest.mark.parametrize("name", ["linear", "two_way"])
def test_outputs_are_those_of_python(run, tmp_path, name, request):
    toy = request.getfixturevalue(name)
    for seed in range(2):
        arrays = toy.inputs(seed)
        with neocpu.load(toy.path) as module:
            expected = module.run(dict(zip((s.name for s in module.inputs), arrays, strict=True)))
        found = outputs(run, tmp_path, toy.path, arrays, len(expected))
        for array, value in zip(found, expected.values(), strict=True):
            assert array.dtype == value.dtype
            np.testing.assert_array_equal(array, value)


def test_bfloat16_is_its_bits(run, narrow, tmp_path):
    (x,) = narrow.inputs()
    (found,) = outputs(run, tmp_path, narrow.path, [x.view(np.uint16)], 1)
    np.testing.assert_array_equal(found.view(x.dtype), narrow.reference(x)[0])
    done = run(narrow.path, *save(tmp_path, [x.astype(np.float32)]))
    assert done.returncode == 2
    assert "convert it with x.astype(ml_dtypes.bfloat16).view('uint16')" in done.stderr


@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_only_the_rows_that_count_are_written(run, counted, tmp_path, count):
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    more, total = outputs(run, tmp_path, counted, [x, np.array([count])], 2)
    np.testing.assert_array_equal(more, x[:count] + 1)
    assert more.shape == (count, 2)
    np.testing.assert_array_equal(total, x.sum(0))


def test_an_output_that_the_model_goes_on_with(run, tmp_path):
    """The output may also have another shape, as a view in place."""
    from tvm import relax

    def body(bb, x):
        y = bb.emit(relax.op.nn.relu(x))
        viewed = bb.emit(relax.op.exp(bb.emit(relax.op.reshape(y, (6, 4)))))
        again = bb.emit(relax.op.negative(y))
        return bb.emit(relax.Tuple([y, viewed, again]))

    specs = [TensorSpec(name, "float32", shape) for name, shape in (("x", (4, 6)), ("v", (6, 4)))]
    header = _header("views", specs[:1], [replace(specs[0], name="y"), specs[1], specs[0]])
    path = tmp_path / "views.so"
    write_artifact(_build([("x", (4, 6))], body), [], header, path)
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    y, viewed, again = outputs(run, tmp_path, path, [x], 3)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_allclose(viewed, np.exp(y.reshape(6, 4)), rtol=1e-6)
    np.testing.assert_array_equal(again, -y)


def test_repeat_and_threads(run, linear):
    done = run(linear.path, "--threads", 1, "--repeat", 5)
    assert done.returncode == 0
    assert "threads  1" in done.stdout
    assert "of 5 runs" in done.stdout
    assert "output   y float32[4,33], from 0 to" in done.stdout


def test_the_folder_may_be_moved(built, linear, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(built.folder, moved)
    command = [moved / "neocpu_run", "linear.so"]
    done = subprocess.run(command, cwd=moved, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_c_library_alone_is_linked(built, linear):
    for linked in (built.folder / "neocpu_run", linear.path):
        listing = subprocess.run(["readelf", "-d", linked], check=True, capture_output=True)
        needed = set(re.findall(r"Shared library: \[(.*)\]", listing.stdout.decode()))
        assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", LOADER}


def test_a_static_program_needs_nothing_else(linear, tmp_path):
    folder = tmp_path / "static"
    write_bundle(linear.path, folder, static=True)
    program = build(folder).folder / "neocpu_run"
    listing = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True)
    assert "NEEDED" not in listing.stdout
    arrays = linear.inputs()
    (path,) = save(tmp_path, arrays)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(program, alone)
    shutil.copy(path, alone)
    command = ["/neocpu_run", "/x0.npy", "-o", "/y.npy", "--threads", "2"]
    # An empty root: no libraries, no /proc, no devices.
    root = (lambda: os.chroot(alone)) if os.geteuid() == 0 else None
    where = "" if root else str(alone)
    done = subprocess.run(
        [where + word if word.startswith("/") else word for word in command],
        env={},
        capture_output=True,
        text=True,
        preexec_fn=root,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with neocpu.load(linear.path) as module:
        np.testing.assert_array_equal(np.load(alone / "y.npy"), module(arrays))
    done = subprocess.run([program, "--help"], env={}, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("usage: neocpu_run [INPUT.npy]")


def test_cpp_includes_the_header(built, linear):
    done = built.run(built.compile("consumer.cc"), linear.path)
    assert (done.returncode, done.stdout) == (0, "linear 4 1\n")


@needs.programs("cmake")
@needs.everything()
def test_cmake_builds_it_too(built, linear, tmp_path):
    command = ["cmake", "-S", built.folder, "-B", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path, "-j2"], check=True, capture_output=True)
    command = [tmp_path / "neocpu_run", linear.path]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_wrong_inputs(run, linear, tmp_path):
    (x,) = linear.inputs()
    wrong = {
        "takes shape (4, 64), the file holds (64, 4)": x.reshape(64, 4),
        "takes shape (4, 64), the file holds (256,)": x.reshape(-1),
        "x.astype('<f4')": x.astype(">f4"),
        "takes float32, the file holds dtype '<f8': convert": x.astype("f8"),
        "np.ascontiguousarray": np.asfortranarray(x),
    }
    for message, array in wrong.items():
        done = run(linear.path, *save(tmp_path, [array]), "--threads", 1)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


def test_wrong_files(run, linear, tmp_path):
    (path,) = save(tmp_path, linear.inputs())
    content = path.read_bytes()
    for wrong in (b"", b"\x93NUMPY", content[:40], content[:-1], b"PK" + content[2:]):
        path.write_bytes(wrong)
        done = run(linear.path, path, "--threads", 1)
        assert done.returncode == 2
        assert "not a .npy file" in done.stderr or "truncated" in done.stderr
    assert "No such file" in run(linear.path, tmp_path / "none.npy").stderr
    path.write_bytes(content)
    done = run(linear.path, path, "-o", tmp_path / "none" / "y.npy")
    assert (done.returncode, "No such file" in done.stderr) == (2, True)
    os.mkfifo(tmp_path / "pipe")
    done = run(linear.path, path, "-o", tmp_path / "pipe")
    assert (done.returncode, "nobody reads this pipe" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "words",
    [[], ["--what"], ["m.so", "--threads"], ["m.so", "--threads", "x"], ["m.so", "--repeat", "0"]],
)
def test_wrong_command_lines(run, words):
    assert run(*words).returncode == 2


def test_numbers_of_files_and_threads(run, linear, two_way, tmp_path):
    (path,) = save(tmp_path, linear.inputs())
    assert "the model takes 2 inputs, got 1 files" in run(two_way.path, path).stderr
    assert run(two_way.path, path).returncode == 2
    assert run(linear.path, path, "-o", "a.npy", "-o", "b.npy").returncode == 2
    assert "threads must be from 1 to" in run(linear.path, "--threads", 10**6).stderr


def test_help(run):
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: neocpu_run MODEL.so")


@pytest.mark.parametrize("kind", ["pipe", "folder", "/dev/zero"])
def test_inputs_are_files(run, linear, tmp_path, kind):
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    done = run(linear.path, path)
    assert done.returncode == 2
    assert f"{path}: it is not a file" in done.stderr
