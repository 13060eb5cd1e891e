"""Bochs is a package of its own, and emulates what runs x86-64's programs."""

import needs


def pytest_collection_modifyitems(items):
    marks = (needs.machine("x86_64"), needs.package("bochscpu", "bochscpu-python"))
    for item in items:
        if "/tests/emulated/" in item.path.as_posix():
            for mark in (*marks, needs.programs("cc")):
                item.add_marker(mark)
