"""The folder that is written, and when none is."""

import json
import os
import subprocess
import zipfile
from dataclasses import replace

import pytest

from neocpu.bundle import write_bundle as bundle_module
from neocpu.bundle.wheels import extract_libraries
from neocpu.bundle.write_bundle import NATIVE, download_command, write_bundle
from neocpu.cli.main import main
from neocpu.foundation.errors import ArtifactError, TargetError, UsageError
from neocpu.runtime.artifact_file.header import ARGUMENT_ALIGN, FORMAT, WEIGHT_ALIGN, WEIGHTS_PIECE
from neocpu.runtime.native import find_libraries

BUDGET = 8e6
"""Bytes of a bundle without its weights."""

# Fields of ours, and of TVM's own headers.
VALUE_FIELDS = [("kind", "type_index"), ("length", "zero_padding"), ("as", "v_int64")]
TENSOR_FIELDS = [
    *[("data", "data"), ("device_type", "device"), ("rank", "ndim"), ("code", "dtype")],
    *[("shape", "shape"), ("strides", "strides"), ("byte_offset", "byte_offset")],
]
OBJECT_FIELDS = [("kind", "type_index"), ("deleter", "deleter")]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_a_bundle_holds(linear, tmp_path):
    folder = tmp_path / "out"
    bundle = write_bundle(linear.path, folder)
    given = {path.name for path in NATIVE.iterdir()}
    added = {"linear.so", "libtvm_ffi.so", "libtvm_runtime.so", "versions.json"}
    assert set(names(folder)) == given | added
    assert {"neocpu.h", "src", "main.c", "Makefile", "LICENSE"} <= given
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
    assert json.loads((folder / "versions.json").read_text()) == {
        "machine": os.uname().machine,
        "apache-tvm": linear.header.tvm_version,
        "apache-tvm-ffi": linear.header.ffi_version,
    }
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


def test_only_a_bundle_is_replaced_and_only_when_told(linear, two_way, tmp_path):
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
    def fail(*_):
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


@pytest.mark.parametrize("name", ["libtvm_ffi.so", "versions.json", "neocpu_run", "src"])
def test_a_model_named_like_another_file(linear, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(linear.path.read_bytes())
    with pytest.raises(UsageError, match="rename it"):
        write_bundle(path, tmp_path / "out")


def test_libraries_of_another_machine(linear, tmp_path):
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[linear.header.machine]
    with pytest.raises(TargetError) as caught:
        write_bundle(linear.path, tmp_path / "out", replace(find_libraries(), machine=other))
    command = download_command(linear.header, "wheels")
    assert command in str(caught.value)
    assert f"--platform manylinux_2_28_{linear.header.machine} " in command
    assert f"apache-tvm=={linear.header.tvm_version} " in command


def test_libraries_of_another_version(linear, tmp_path):
    with pytest.raises(ArtifactError, match=r"apache-tvm-ffi .*, the runtime libraries are of 0.1"):
        write_bundle(linear.path, tmp_path / "out", replace(find_libraries(), ffi_version="0.1"))


def wheel(folder, name, member, machine="aarch64", content=b"library"):
    path = (
        folder / f"{name}-1.2.post3-py3-none-manylinux_2_27_{machine}.manylinux_2_28_{machine}.whl"
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return path


def test_libraries_out_of_wheels(tmp_path):
    wheels, into = tmp_path / "wheels", tmp_path / "into"
    wheels.mkdir()
    into.mkdir()
    with pytest.raises(TargetError, match="has 0 wheels of apache-tvm,"):
        extract_libraries(wheels, into)
    wheel(wheels, "apache_tvm", "tvm/lib/libtvm_runtime.so", content=b"runtime")
    path = wheel(wheels, "apache_tvm_ffi", "tvm_ffi/lib/libtvm_ffi.so", content=b"ffi")
    native = extract_libraries(wheels, into)
    assert (native.runtime.read_bytes(), native.ffi.read_bytes()) == (b"runtime", b"ffi")
    assert (native.tvm_version, native.ffi_version) == ("1.2.post3", "1.2.post3")
    assert native.machine == "aarch64"
    path.write_bytes(b"torn")
    with pytest.raises(TargetError, match="cannot read"):
        extract_libraries(wheels, into)
    path.unlink()
    wheel(wheels, "apache_tvm_ffi", "tvm_ffi/lib/libtvm_ffi.so", machine="x86_64")
    with pytest.raises(TargetError, match="for several machines"):
        extract_libraries(wheels, into)


def test_command_line(linear, tmp_path, capfd):
    folder = tmp_path / "out"
    assert main(["bundle", str(linear.path), "-o", str(folder)]) == 0
    assert "all but the weights" in capfd.readouterr().out
    assert main(["bundle", str(linear.path), "-o", str(folder)]) == 2
    assert main(["bundle", str(linear.path), "-o", str(folder), "--force", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["model"] == "linear.so"
    assert document["bytes"] == sum(file["bytes"] for file in document["files"])
    assert main(["bundle", str(tmp_path / "none.so"), "-o", str(tmp_path / "a")]) == 8
    assert main(["bundle", str(linear.path), "-o", "a", "--libraries", str(tmp_path)]) == 5
    assert "apache-tvm" in capfd.readouterr().err


def test_libraries_may_come_from_a_folder(linear, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_bundle(linear.path, first)
    arguments = ["bundle", str(linear.path), "-o", str(second), "--libraries", str(first)]
    assert main(arguments) == 0
    assert names(first) == names(second)


def check_c(source, *options):
    command = ["gcc", "-std=c11", f"-I{NATIVE}", *options, "-fsyntax-only", "-x", "c", "-"]
    subprocess.run(command, input=source, text=True, check=True)


def test_c_and_python_agree_on_the_format():
    check_c(
        '#include "src/header.h"\n'
        f'_Static_assert(NC_FORMAT == {FORMAT}, "format");\n'
        f'_Static_assert(NC_WEIGHTS_PIECE == {WEIGHTS_PIECE}, "pieces");\n'
        f'_Static_assert(NC_ALIGN == {WEIGHT_ALIGN}, "weights");\n'
        f'_Static_assert(NC_ARGUMENT_ALIGN == {ARGUMENT_ALIGN}, "arguments");\n'
    )


def test_the_layouts_are_those_of_the_interface_itself():
    include = find_libraries().ffi.parents[1] / "include"
    if not include.is_dir():
        pytest.skip("the runtime's wheel has no headers")
    fields = [
        *(f"nc_value, {ours}, TVMFFIAny, {theirs}" for ours, theirs in VALUE_FIELDS),
        *(f"nc_tensor, {ours}, DLTensor, {theirs}" for ours, theirs in TENSOR_FIELDS),
        *(f"object, {ours}, TVMFFIObject, {theirs}" for ours, theirs in OBJECT_FIELDS),
        "error_cell, message, TVMFFIErrorCell, message",
        "sequence_cell, size, TVMFFISeqCell, size",
    ]
    check_c(
        '#include "src/tvm.c"\n#include <tvm/ffi/c_api.h>\n'
        "#define SAME(a, b, c, d) _Static_assert(offsetof(a, b) == offsetof(c, d), #b);\n"
        + "\n".join(f"SAME({field})" for field in fields)
        + "\n#define EQUAL(a, b) _Static_assert((int)a == (int)b, #a);\n"
        + "EQUAL(RAW_STRING, kTVMFFIRawStr) EQUAL(TENSOR, kTVMFFITensor) EQUAL(ARRAY, kTVMFFIArray)"
        + " EQUAL(CPU, kDLCPU) EQUAL(sizeof(nc_tensor), sizeof(DLTensor))\n",
        f"-I{include}",
        "-D_GNU_SOURCE",
    )
