"""The folder of a bundle, and the cases in which none is written."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import tvm_ffi

from neocpu import core
from neocpu.building.link import WEIGHTS_PIECE
from neocpu.cli.main import main
from neocpu.foundation.errors import ArtifactError, UsageError
from neocpu.frontend.shapes.requested_shapes import MAX_SIGNATURES
from neocpu.frontend.shapes.size_ranges import MAX_SIZES
from neocpu.runtime.bundle import write_bundle as bundle_module
from neocpu.runtime.bundle.write_bundle import NATIVE, write_bundle
from neocpu.runtime.header import (
    ARGUMENT_ALIGN,
    FORMAT,
    MAX_RANK,
    MAX_SPECS,
    MAX_THREADS,
    PACKING_FORMAT,
    SET_FORMAT,
    SIZED_FORMAT,
    WEIGHT_ALIGN,
)

BUDGET = 4e5
LICENCE = Path(__file__).parents[4] / "LICENSE"
"""Bytes of a bundle without its weights."""

# Fields of ours, and of TVM's own headers.
VALUE_FIELDS = [("kind", "type_index"), ("padding", "zero_padding"), ("as", "v_int64")]
TENSOR_FIELDS = [
    *[("data", "data"), ("device_type", "device"), ("rank", "ndim"), ("code", "dtype")],
    *[("shape", "shape"), ("strides", "strides"), ("byte_offset", "byte_offset")],
]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_a_bundle_holds(linear, tmp_path):
    folder = tmp_path / "out"
    bundle = write_bundle(linear.path, folder)
    given = {path.name for path in NATIVE.iterdir()} | {
        *("neocpu.h", "neocpu_run.c", "embedded.S", "src", "LICENSE")
    }
    assert set(names(folder)) == given | {"linear.so"}
    assert {"README.txt", "CMakeLists.txt", "Makefile"} <= given
    assert (folder / "LICENSE").read_bytes() == LICENCE.read_bytes()
    assert (folder / "linear.so").read_bytes() == linear.path.read_bytes()
    listed = {file.path: file.size for file in bundle.files}
    assert listed == {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert bundle.size == sum(listed.values())
    assert bundle.weight_bytes >= sum(weight.nbytes for weight in linear.weights)
    assert bundle.size - bundle.weight_bytes < BUDGET
    assert "./neocpu_run linear.so x0.npy -o y.npy" in (folder / "README.txt").read_text()
    assert folder.stat().st_mode & 0o005 == 0o005 & ~umask()
    assert names(tmp_path) == ["out"]


def umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def test_an_empty_folder_is_filled(linear, tmp_path):
    write_bundle(linear.path, tmp_path)
    assert (tmp_path / "neocpu.h").exists()


def test_only_a_bundle_is_replaced_and_only_on_request(linear, two_way, tmp_path):
    folder = tmp_path / "out"
    write_bundle(linear.path, folder)
    with pytest.raises(UsageError, match="--force"):
        write_bundle(two_way.path, folder)
    assert (folder / "linear.so").exists()
    write_bundle(two_way.path, folder, replace=True)
    assert (folder / "two_way.so").exists()
    assert not (folder / "linear.so").exists()
    precious = tmp_path / "home"
    precious.mkdir()
    (precious / "thesis.txt").touch()
    with pytest.raises(UsageError, match="is not a bundle"):
        write_bundle(linear.path, precious, replace=True)
    assert names(precious) == ["thesis.txt"]
    assert names(tmp_path) == ["home", "out"]


def test_nothing_is_left_when_writing_fails(linear, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle_module, "_fill", fail)
    with pytest.raises(ArtifactError, match="No space left"):
        write_bundle(linear.path, tmp_path / "out")
    assert names(tmp_path) == []


def test_a_folder_in_no_folder(linear, tmp_path):
    with pytest.raises(UsageError, match="there is no folder"):
        write_bundle(linear.path, tmp_path / "none" / "out")


def test_damaged_weights_are_not_shipped(linear, tmp_path):
    path = tmp_path / "bad.so"
    data = bytearray(linear.path.read_bytes())
    data[data.index(linear.weights[0].tobytes()[:64])] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="the weights are damaged"):
        write_bundle(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "rename it") for name in ("neocpu_run.c", "Makefile", "neocpu_run", "src")),
        *(
            (name, "makefiles cannot spell")
            for name in ("two words.so", "a'b.so", "a$(b).so", "a#b.so")
        ),
    ],
)
def test_a_name_that_the_bundle_cannot_have(linear, tmp_path, name, message):
    path = tmp_path / name
    path.write_bytes(linear.path.read_bytes())
    with pytest.raises(UsageError, match=message):
        write_bundle(path, tmp_path / "out")


def test_command_line(linear, tmp_path, capfd):
    folder = tmp_path / "out"
    assert main(["bundle", str(linear.path), "-o", str(folder)]) == 0
    assert "all but the weights" in capfd.readouterr().out
    assert main(["bundle", str(linear.path), "-o", str(folder)]) == 2
    assert main(["bundle", str(linear.path), "-o", str(folder), "--force", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["model"] == "linear.so"
    assert document["machines"] == [os.uname().machine]
    assert document["bytes"] == sum(file["bytes"] for file in document["files"])
    assert main(["bundle", str(tmp_path / "none.so"), "-o", str(tmp_path / "a")]) == 8


def check_c(source, *options):
    command = ["gcc", "-std=c11", f"-I{core.ROOT}", *options, "-fsyntax-only", "-x", "c", "-"]
    subprocess.run(command, input=source, text=True, check=True)


def test_c_and_python_agree_on_the_format():
    check_c(
        '#include "src/header.c"\n#include "src/checksum.h"\n'
        '#include "src/fields.c"\n#include "src/program_fields.c"\n'
        f'_Static_assert(NC_FORMAT == {FORMAT}, "format");\n'
        f'_Static_assert(NC_SET_FORMAT == {SET_FORMAT}, "format of a set");\n'
        f'_Static_assert(NC_PACKING_FORMAT == {PACKING_FORMAT}, "format of one that packs");\n'
        f'_Static_assert(MAX_PROGRAMS == {MAX_SIGNATURES}, "signatures");\n'
        f'_Static_assert(NC_CHECKED == {WEIGHTS_PIECE}, "pieces");\n'
        f'_Static_assert(NC_ALIGN == {WEIGHT_ALIGN}, "weights");\n'
        f'_Static_assert(NC_ARGUMENT_ALIGN == {ARGUMENT_ALIGN}, "arguments");\n'
        f'_Static_assert(MAX_SPECS == {MAX_SPECS}, "tensors");\n'
        f'_Static_assert(NC_MAX_RANK == {MAX_RANK}, "rank");\n'
        f'_Static_assert(NC_SIZED_FORMAT == {SIZED_FORMAT}, "format of sizes");\n'
        f'_Static_assert(NC_MAX_SIZES == {MAX_SIZES}, "sizes");\n'
        f'_Static_assert(MAX_THREADS == {MAX_THREADS}, "threads");\n',
        "-D_GNU_SOURCE",
    )


def test_the_layouts_are_those_of_the_interface_itself():
    include = tvm_ffi.libinfo.include_paths()
    fields = [
        *(f"nc_value, {ours}, TVMFFIAny, {theirs}" for ours, theirs in VALUE_FIELDS),
        *(f"nc_tensor, {ours}, DLTensor, {theirs}" for ours, theirs in TENSOR_FIELDS),
    ]
    check_c(
        '#include "src/program.c"\n#include <tvm/ffi/c_api.h>\n'
        "#define SAME(a, b, c, d) _Static_assert(offsetof(a, b) == offsetof(c, d), #b);\n"
        + "\n".join(f"SAME({field})" for field in fields)
        + "\n#define EQUAL(a, b) _Static_assert((int)a == (int)b, #a);\n"
        + "EQUAL(NC_TENSOR, kTVMFFIDLTensorPtr) EQUAL(sizeof(nc_value), sizeof(TVMFFIAny))"
        + " EQUAL(sizeof(nc_tensor), sizeof(DLTensor))\n",
        *(f"-I{path}" for path in include),
        "-D_GNU_SOURCE",
    )
