"""The memory that pictures take, measured in a child process, against their bounds."""

import io
import json
import re
import struct
import subprocess
import sys

import pytest
from raw_pictures import black_png, tiff

from neocpu.runtime.pictures.picture_bounds import MAX_BYTES

Image = pytest.importorskip("PIL.Image")

BOUND = 96 << 20
"""A smaller bound than that of users, so that pictures near it are made soon."""
SLACK = 8 << 20
SCENE = """
import json, re, sys
from pathlib import Path
from neocpu.runtime.pictures import picture_files

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

picture_files.MAX_BYTES = int(sys.argv[1])
warm, *files = map(Path, sys.argv[2:])
for path in (warm, *files):
    data = path.read_bytes()
    Path("/proc/self/clear_refs").write_text("5")
    before, said = peak(), ""
    try:
        picture_files.read_sized(data, "RGB", (224, 224), "stretch")
    except ValueError as error:
        said = str(error)
    print(json.dumps([said, peak() - before]), flush=True)
    del data
"""


def measured(folder, files, bound=BOUND):
    """Return the outcome of each file, and its peak memory in bytes."""
    paths = []
    for number, data in enumerate([plain("PNG", 64), *files]):
        paths.append(folder / str(number))
        paths[-1].write_bytes(data)
    command = [sys.executable, "-W", "error", "-c", SCENE, str(bound), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


def plain(kind, side, mode="RGB", **options):
    stream = io.BytesIO()
    Image.new(mode, (side, side)).save(stream, kind, **options)
    return stream.getvalue()


def test_pictures_within_the_bound_take_no_more(tmp_path):
    files = {
        "png": black_png(4500, 4500),
        "png, of few bits": black_png(4000, 4000, 1, 0),
        "png, of 16 bits": black_png(2800, 2800, 16, 0),
        "png, of a palette": black_png(4000, 4000, 8, 3),
        "png, in one row": black_png(1 << 21, 1),
        "jpeg": plain("JPEG", 4500),
        "jpeg, progressive": plain("JPEG", 2900, progressive=True),
        "jpeg, cmyk": plain("JPEG", 2200, "CMYK", progressive=True),
        "webp": plain("WEBP", 2000),
        "webp, lossless": plain("WEBP", 1900, "RGBA", lossless=True),
        "bmp": plain("BMP", 2300),
        "gif": plain("GIF", 4000, "P"),
        "tiff": plain("TIFF", 3000),
        "tiff, in one strip": plain("TIFF", 2500, compression="tiff_lzw", tiffinfo={278: 2500}),
        "tiff, jpeg": plain("TIFF", 2200, compression="jpeg"),
    }
    found = dict(zip(files, measured(tmp_path, files.values()), strict=True))
    assert {name: said for name, (said, _) in found.items()} == dict.fromkeys(files, "")
    assert {name: peak for name, (_, peak) in found.items() if peak > BOUND + SLACK} == {}


def test_files_of_many_parts_are_refused_before_each_becomes_an_object(tmp_path):
    """Some files of 15 MB took a gigabyte, and minutes."""
    jpeg, gif = plain("JPEG", 8), plain("GIF", 8, "P")
    many, count = 1 << 20, 1 << 17
    place = gif.index(b",")  # of the first frame
    big = struct.pack("<2sHHHQQ", b"II", 43, 8, 0, 16, 1)
    files = {
        "strips": tiff(bytes(64), 1, many, (8,), 1, t273=(8,) * many, t278=1),
        "bits": tiff(bytes(64), 8, 8, (8,) * many, 1, t277=1),
        "tiff, of large places": big + struct.pack("<HHQQ", 273, 4, many, 40) + bytes(4 * many),
        "jpeg": jpeg[:2] + b"\xff\xfe\0\3a" * count + jpeg[2:],
        "jpeg, with what is none": jpeg[:20] + bytes(many) + jpeg[20:],
        "gif": gif[:place] + b"!\xfe\1a\0" * count + gif[place:],
    }
    found = dict(zip(files, measured(tmp_path, files.values()), strict=True))
    refused = "too many parts|tag (258|273) has 1048576 values"
    told = {name: said for name, (said, _) in found.items()}
    assert {name: said for name, said in told.items() if not re.search(refused, said)} == {}
    assert {name: peak for name, (_, peak) in found.items() if peak > SLACK} == {}


def test_small_files_that_claim_much_are_refused_before_anything_is_made(tmp_path):
    files = {
        "a column": black_png(1, 1 << 25),
        "some columns": black_png(5, 1 << 23),
        "a row": black_png(1 << 26, 1),
        "a square": black_png(12000, 12000),
        "more than Pillow warns of": black_png(11000, 10000, 1, 0),
        "more than Pillow takes": black_png(20000, 20000, 1, 0),
        "scans": plain("JPEG", 8000, progressive=True),
        "webp": plain("WEBP", 7000),
        "a tile": tiff(bytes(64), 8, 8, (8,), 1, t322=1 << 16, t323=1 << 14),
    }
    found = dict(zip(files, measured(tmp_path, files.values(), MAX_BYTES), strict=True))
    told = {name: said for name, (said, _) in found.items()}
    refused = "more pixels than Pillow|would take [0-9.]+ MB of memory, more than 536.9 MB"
    assert {name: said for name, said in told.items() if not re.search(refused, said)} == {}
    assert {name: peak for name, (_, peak) in found.items() if peak > SLACK} == {}
