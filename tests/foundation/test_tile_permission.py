"""Every process asks for permission to use tiles; a refusal is a missing feature."""

import subprocess
import sys

import needs

from neocpu.foundation.instruction_sets import TILES, host_features, tiles_permitted

#: A filter of system calls that lets arch_prctl (158) fail with EPERM.
REFUSING = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
def instruction(code, k, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, k)
program = (
    instruction(0x20, 0)                # the system call's number
    + instruction(0x15, 158, 0, 1)
    + instruction(0x06, 0x00050001)     # SECCOMP_RET_ERRNO, EPERM
    + instruction(0x06, 0x7FFF0000)     # SECCOMP_RET_ALLOW
)
buffer = ctypes.create_string_buffer(program)
header = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0                                   # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.create_string_buffer(header), 0, 0) == 0  # PR_SET_SECCOMP
assert libc.syscall(158, 0x1022, 0) == -1 and ctypes.get_errno() == 1
"""
ASKING = """
from neocpu.foundation.instruction_sets import TILES, host_features
print(sorted(TILES & host_features()))
"""


def answer(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs.machine("x86_64")
def test_no_tiles_are_used_if_the_system_refuses_them():
    assert answer(REFUSING + ASKING) == "[]"


def test_a_program_that_is_executed_asks_for_itself():
    assert answer(ASKING) == str(sorted(TILES & host_features()))


def test_the_tile_feature_needs_permission():
    assert tiles_permitted() or not TILES & host_features()
