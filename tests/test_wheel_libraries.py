"""TVM's libraries, taken out of wheels."""

import zipfile

import pytest

from neocpu.foundation.errors import TargetError
from wheels.libraries import extract_libraries


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
