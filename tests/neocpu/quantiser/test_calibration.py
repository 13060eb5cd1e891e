"""Calibration data of every kind, and faults in them."""

from __future__ import annotations

import multiprocessing
import resource
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.quantiser import stored_arrays
from neocpu.quantiser.calibration import read_samples
from neocpu.quantiser.pictures import Preprocessing, read_picture

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
IMAGE = TensorSpec("image", "float32", (1, 3, 8, 12))
TWO = (IMAGE, TensorSpec("size", "float32", (1, 2)))
PLAIN = Preprocessing(mean=(0.0,), std=(1.0,))
RNG = np.random.default_rng(0)


def read(source, specs=(IMAGE,), limit=100, pictures=PLAIN):
    return read_samples(source, specs, limit, pictures)


def picture(path: Path, size=(30, 20), colour=(255, 0, 51)):
    Image.new("RGB", size, colour).save(path)


@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox"])
def test_pictures_are_scaled_and_normalised(tmp_path, fit):
    picture(tmp_path / "a.png")
    how = Preprocessing(fit, (0.5, 0.25, 0.0), (0.5, 1.0, 2.0))
    found = read_picture(tmp_path / "a.png", IMAGE, how)
    assert found.shape == IMAGE.shape
    assert found.dtype == np.float32
    middle = found[0, :, 4, 6]
    np.testing.assert_allclose(middle, [(1 - 0.5) / 0.5, -0.25, 0.1], atol=1e-6)


def test_a_letterbox_is_grey_beside_the_picture(tmp_path):
    picture(tmp_path / "a.png", (10, 10))
    found = read_picture(tmp_path / "a.png", IMAGE, Preprocessing("letterbox", (0.0,), (1.0,)))
    np.testing.assert_allclose(found[0, :, 4, 0], 114 / 255, atol=1e-6)
    np.testing.assert_allclose(found[0, :, 4, 6], [1, 0, 0.2], atol=1e-6)


def test_blue_first_channels_last_and_grey(tmp_path):
    picture(tmp_path / "a.png")
    bgr = read_picture(tmp_path / "a.png", IMAGE, Preprocessing(mean=(0.0,), std=(1.0,), bgr=True))
    np.testing.assert_allclose(bgr[0, :, 0, 0], [0.2, 0, 1], atol=1e-6)
    last = read_picture(tmp_path / "a.png", TensorSpec("x", "float32", (1, 8, 12, 3)), PLAIN)
    np.testing.assert_allclose(last[0, 0, 0], [1, 0, 0.2], atol=1e-6)
    grey = read_picture(tmp_path / "a.png", TensorSpec("x", "float32", (1, 1, 8, 12)), PLAIN)
    assert grey.shape == (1, 1, 8, 12)


def test_a_folder_gives_as_many_as_asked_for(tmp_path):
    (tmp_path / "inner").mkdir()
    for number in range(6):
        picture(tmp_path / "inner" / f"{number}.jpg", colour=(number * 40, 0, 0))
    (tmp_path / "notes.txt").write_text("no picture")
    assert len(read(tmp_path)) == 6
    first, last = read(tmp_path, limit=2)
    assert last["image"].max() > first["image"].max() + 0.5, "evenly out of all"
    pairs = read(tmp_path, (TensorSpec("image", "float32", (2, 3, 8, 12)),))
    assert [each["image"].shape for each in pairs] == [(2, 3, 8, 12)] * 3


def test_arrays_are_cut_into_samples(tmp_path):
    whole = RNG.standard_normal((5, 3, 8, 12)).astype(np.float32)
    np.savez(tmp_path / "a.npz", image=whole)
    np.savez(tmp_path / "b.npz", whole)
    np.save(tmp_path / "c.npy", whole)
    files = map(str, tmp_path.iterdir())
    for source in (whole, {"image": whole}, *files, list(whole), iter(whole)):
        found = read(source)
        assert len(found) == 5
        np.testing.assert_array_equal(found[3]["image"][0], whole[3])
    assert len(read(whole, limit=2)) == 2
    both = read({"image": whole, "size": np.zeros((5, 2))}, TWO)
    assert both[0]["size"].dtype == np.float32


def test_a_function_yields_samples(tmp_path):
    path = tmp_path / "a_loader.py"
    path.write_text(
        "import numpy as np\n"
        "def samples():\n"
        "    for n in range(9):\n"
        "        yield {'image': np.full((3, 8, 12), n, 'float32')}\n"
        "def broken():\n"
        "    yield np.zeros((3, 8, 12))\n"
        "    raise KeyError('disk')\n"
        "number = 3\n"
    )
    assert len(read(f"{path}:samples")) == 9
    for name, message in (
        ("broken", "failed after 1 samples: KeyError"),
        ("number", "has no function 'number'"),
        ("nothing", "has no function 'nothing'"),
    ):
        with pytest.raises(UsageError, match=message):
            read(f"{path}:{name}")


def test_data_of_the_wrong_kind_are_named(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_bytes(b"no jpeg")
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    (tmp_path / "bad.py").write_text("import nothing_of_that_name")
    np.savez(tmp_path / "other.npz", y=np.zeros(3))
    np.savez(tmp_path / "many.npz", **{f"n{i}": np.zeros(1) for i in range(500)})
    np.savez(tmp_path / "text.npz", image=np.full((2, 3, 8, 12), "a"))
    wrong = np.zeros((4, 3, 9, 12), np.float32)
    cases = {
        str(tmp_path / "empty"): "has no pictures",
        str(tmp_path / "bad"): "a.jpg cannot be read as a picture",
        str(tmp_path / "bad.npz"): "cannot be read as arrays",
        str(tmp_path / "bad.py") + ":f": "cannot be imported: ModuleNotFoundError",
        # The message does not call it unreadable.
        str(tmp_path / "other.npz"): r"^[^(]*other\.npz has no array for input 'image'; it has y$",
        str(tmp_path / "many.npz"): r"many\.npz has no array .* it has n0, .{,200}…$",
        str(tmp_path / "text.npz"): "it holds str32 values, not numbers",
        str(tmp_path / "nowhere"): "nowhere is missing; calibrate with a folder of pictures",
        str(tmp_path / "gone.py") + ":f": "gone.py is missing",
    }
    for source, message in cases.items():
        with pytest.raises(UsageError, match=message):
            read(source)
    uneven = {"image": np.zeros((2, 3, 8, 12)), "size": np.zeros((3, 2))}
    for given, specs, message in (
        (wrong, (IMAGE,), "4x3x9x12 for input 'image', which is 1x3x8x12"),
        ([], (IMAGE,), "no calibration data"),
        (3, (IMAGE,), r"are a path, an array of samples, .* got int"),
        (tmp_path / "bad", TWO, r"2 inputs .image, size., and pictures are for one"),
        (uneven, TWO, "different numbers of samples"),
    ):
        with pytest.raises(UsageError, match=message):
            read(given, specs)
    picture(tmp_path / "a.png")
    with pytest.raises(UsageError, match=r"no picture's; give calibration data as \.npz"):
        read_picture(tmp_path / "a.png", TensorSpec("x", "float32", (1, 64)), PLAIN)


def test_preprocessing_that_means_nothing_is_refused():
    for wrong, message in (
        ({"fit": "squeeze"}, "unknown fit 'squeeze'"),
        ({"std": (0.0,)}, "std must be above 0"),
        ({"mean": (1.0, 2.0)}, "one number, or one for each of three"),
    ):
        with pytest.raises(UsageError, match=message):
            Preprocessing(**wrong)


def test_single_numbers_and_lists_are_data():
    specs = (IMAGE, TensorSpec("threshold", "float32", ()))
    whole = RNG.standard_normal((3, 3, 8, 12)).astype(np.float32)
    found = read({"image": whole, "threshold": [0.1, 0.2, 0.3]}, specs)
    assert [float(each["threshold"]) for each in found] == pytest.approx([0.1, 0.2, 0.3])
    assert found[0]["threshold"].shape == ()
    one = read([{"image": whole[0].tolist(), "threshold": 0.5}], specs)
    assert one[0]["image"].shape == IMAGE.shape
    with pytest.raises(UsageError, match="shape a single number for input 'image'"):
        read({"image": np.float32(3)})


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_samples_without_a_range_are_named(wrong):
    """All samples count, even those that only measure, as every second one of mixed precision."""
    whole = RNG.standard_normal((3, 3, 8, 12)).astype(np.float32)
    whole[1, 2, 3, 4] = wrong
    with pytest.raises(UsageError, match="sample 1 makes tensor 'image' infinite or NaN"):
        read(whole)
    assert len(read(whole, limit=1)) == 1


@pytest.mark.filterwarnings("error")
def test_what_is_no_real_number_or_array_is_refused(tmp_path):
    whole = RNG.standard_normal((2, 3, 8, 12))
    with pytest.raises(UsageError, match="complex128 for input 'image', no real numbers"):
        read(whole + 1j)
    with pytest.raises(UsageError, match="sample 0 makes tensor 'image' infinite"):
        read(whole * 1e300)
    with zipfile.ZipFile(tmp_path / "raw.npz", "w") as archive:
        archive.writestr("image.npy", b"hello")
    with pytest.raises(UsageError, match=r"raw\.npz cannot be read as arrays"):
        read(tmp_path / "raw.npz")


def bomb(path: Path, *, rows: int, fortran: bool = False, method: int = zipfile.ZIP_DEFLATED):
    """Write an archive of an input whose first row is ones and all others zeros, row by row."""
    with zipfile.ZipFile(path, "w", method) as archive:
        with archive.open("image.npy", "w", force_zip64=True) as member:
            shape = (rows, *IMAGE.shape[1:])
            header = {"descr": "<f4", "fortran_order": fortran, "shape": shape}
            np.lib.format.write_array_header_1_0(member, header)
            row = np.ones(IMAGE.shape, "float32").tobytes()
            member.write(row)
            zeros = bytes(len(row) * 1024)
            for _ in range((rows - 1) // 1024):
                member.write(zeros)
            member.write(zeros[: (rows - 1) % 1024 * len(row)])
        # What is not asked for is not unpacked.
        with archive.open("notes.npy", "w", force_zip64=True) as member:
            for _ in range(64):
                member.write(bytes(1 << 22))


def read_within(room: int, path: Path, limit: int) -> None:
    """Read samples within a limit on memory, in a separate process."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    first, *others = read(str(path), limit=limit)
    assert first["image"].min() == 1
    assert len(others) == limit - 1
    assert not any(feeds["image"].any() for feeds in others)


@pytest.mark.parametrize("limit", [1, 100])
def test_files_of_one_sample_and_of_scalars(tmp_path, limit):
    one = RNG.standard_normal((3, 8, 12)).astype(np.float32)
    np.save(tmp_path / "a.npy", one)
    np.savez(tmp_path / "b.npz", image=one)
    for path in tmp_path.iterdir():
        (sample,) = read(str(path), limit=limit)
        np.testing.assert_array_equal(sample["image"], one[None])
    scalar = TensorSpec("t", "float32", ())
    np.savez(tmp_path / "c.npz", t=np.float32(5))
    np.savez(tmp_path / "d.npz", t=np.arange(3, dtype=np.float32))
    ((first,), found) = (read(str(tmp_path / f"{n}.npz"), (scalar,), limit) for n in "cd")
    assert first["t"] == 5
    assert [float(each["t"]) for each in found] == [0.0, 1.0, 2.0][:limit]


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_no_more_is_unpacked_than_is_asked_for(tmp_path, suffix):
    """The file of six megabytes would unpack to six gigabytes; four samples are read."""
    bomb(tmp_path / "bomb.npz", rows=1 << 18)  # 302 MB
    path = tmp_path / f"bomb{suffix}"
    if suffix == ".npy":
        with zipfile.ZipFile(tmp_path / "bomb.npz") as archive:
            (tmp_path / archive.extract("image.npy", tmp_path)).rename(path)
    limits = (64 << 20, path, 4)
    child = multiprocessing.get_context("fork").Process(target=read_within, args=limits)
    child.start()
    child.join()
    assert child.exitcode == 0


def test_arrays_with_wrong_headers_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    bomb(path, rows=3000)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        stored = archive.read("image.npy")
    huge = stored.replace(b"(3000, ", b"(%d, " % 10**15).replace(b" " * 12 + b"\n", b"\n")
    (tmp_path / "b.npy").write_bytes(huge)
    with pytest.raises(UsageError, match=r"its header|cut short"):
        read(str(tmp_path / "b.npy"), limit=4000)
    path.write_bytes(data[:-30])
    with pytest.raises(UsageError, match="cannot be read as arrays"):
        read(str(path))


def test_an_array_in_fortran_s_order_is_read_whole_or_refused(tmp_path, monkeypatch):
    whole = np.asfortranarray(RNG.standard_normal((5, 3, 8, 12)).astype(np.float32))
    np.savez(tmp_path / "a.npz", image=whole)
    found = read(str(tmp_path / "a.npz"), limit=2)
    np.testing.assert_array_equal(found[1]["image"][0], whole[1])
    monkeypatch.setattr(stored_arrays, "MAX_FORTRAN", whole.nbytes - 1)
    with pytest.raises(UsageError, match=r"in Fortran.s order: save it with numpy\.asconti"):
        read(str(tmp_path / "a.npz"), limit=2)


def test_an_archive_of_very_many_files_is_refused(tmp_path):
    path = tmp_path / "many.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(40_000):
            archive.writestr(f"{number:060}.npy", b"")
    with pytest.raises(UsageError, match="it names more files than any model has inputs"):
        read(str(path))


ENDS = """
import sys
import numpy as np
class Array:
    def __array__(self, *given, **options):
        sys.exit(0)
class Unnamed(BaseException):
    pass
def missing():
    return open('nowhere')
def at_once():
    sys.exit(0)
def later():
    yield np.zeros((3, 8, 12))
    sys.exit("no more")
def nothing():
    raise Unnamed
def array():
    yield Array()
def named():
    yield {"image": Array()}
def ours():
    import neocpu
    raise neocpu.foundation.errors.ArtifactError("no artifact")
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "failed after 0 samples: FileNotFoundError"),
        ("at_once", "failed after 0 samples: it ends the program, by sys.exit(0)"),
        ("later", "failed after 1 samples: it ends the program, by sys.exit('no more')"),
        ("nothing", "failed after 0 samples: Unnamed"),
        ("array", "sample 0 has no array for input 'image': it ends the program, by sys.exit(0)"),
        ("named", "sample 0 has no array for input 'image': it ends the program, by sys.exit(0)"),
        ("ours", "failed after 0 samples: ArtifactError: no artifact"),
    ],
)
def test_a_function_that_ends_the_process_is_an_error(tmp_path, name, message):
    path = tmp_path / "ends.py"
    path.write_text(ENDS)
    with pytest.raises(UsageError) as refused:
        read(f"{path}:{name}")
    assert str(refused.value).startswith(f"{path}:{name}")
    assert message in str(refused.value)


def test_a_loader_that_ends_the_process_is_an_error(tmp_path):
    path = tmp_path / "ends.py"
    path.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(UsageError, match=r"ends.py cannot be imported: it ends .* sys.exit\(0\)"):
        read(f"{path}:samples")

    def samples():
        yield np.zeros((3, 8, 12))
        raise SystemExit

    with pytest.raises(UsageError, match=r"data failed after 1 samples: it ends .* sys.exit\(\)"):
        read(samples())


def test_ctrl_c_in_a_loader_stays_an_interruption(tmp_path):
    (tmp_path / "a.py").write_text("def samples():\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        read(f"{tmp_path}/a.py:samples")


NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4"]
KINDS = [">f4", ">f8", "f2", "f8", "i1", "?"]
WHOLE = np.arange(2 * 3 * 8 * 12).reshape(2, 3, 8, 12) % 4


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "given",
    [
        *(WHOLE.astype(getattr(ml_dtypes, name)) for name in NARROW),
        *(WHOLE.astype(kind) for kind in KINDS),
        np.asfortranarray(WHOLE),
        np.ma.masked_array(WHOLE, mask=False),
        WHOLE.astype(np.longdouble),
        WHOLE.astype(np.float32)[:, :, ::-1][:, :, ::-1],
    ],
    ids=[*NARROW, *KINDS, "fortran", "nothing masked", "longdouble", "strides"],
)
def test_numbers_of_any_form_are_data(given):
    found = read(given)
    assert all(each["image"].dtype == np.float32 for each in found)
    assert all(each["image"].flags.c_contiguous for each in found)
    whole = np.concatenate([each["image"] for each in found])
    np.testing.assert_array_equal(whole, given.astype(np.float32))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("complex64", "has complex64 for input 'image', no real numbers; give float32"),
        ("m8[s]", "has timedelta64"),
        ("U1", "has <U"),
        ("O", "has object"),
        ("V4", "has |V4"),
    ],
)
def test_samples_that_are_no_real_numbers_are_named(kind, message, count):
    """A single sample without a first axis is checked too."""
    whole = np.ones(WHOLE.shape)[:count].astype(kind)
    for given in (whole, {"image": whole}, [whole], [{"image": whole}], [whole[0]]):
        with pytest.raises(UsageError) as refused:
            read(given)
        assert message in str(refused.value)


def test_values_hidden_by_a_mask_are_asked_for():
    with pytest.raises(UsageError, match=r"masked array for input 'image'.*filled\(\)"):
        read(np.ma.masked_equal(WHOLE, 3))
    with pytest.raises(UsageError, match="has no array for input 'image': ValueError"):
        read({"image": [[1, 2], [3]]})


@pytest.mark.parametrize("wrong", [0.5, -1, 256, np.nan, np.inf])
def test_values_that_an_integer_input_lacks_are_refused(wrong):
    specs = (TensorSpec("bytes", "uint8", (1, 4)),)
    found = read(np.array([[0, 1, 2, 255.0]]), specs)
    assert found[0]["bytes"].dtype == np.uint8
    with pytest.raises(UsageError, match="for input 'bytes', which is uint8: it holds values"):
        read(np.array([[0, 1, 2, wrong]]), specs)


def test_members_of_an_archive_that_are_no_arrays(tmp_path):
    whole = WHOLE.astype(np.float32)
    np.savez(tmp_path / "more.npz", image=whole, notes=np.array([{}], object))
    with zipfile.ZipFile(tmp_path / "more.npz", "a") as archive:
        archive.writestr("README", "no array")
    assert len(read(tmp_path / "more.npz")) == 2, "what is no input is not read"
    np.savez(tmp_path / "objects.npz", image=np.array([{}], object))
    with zipfile.ZipFile(tmp_path / "bytes.npz", "w") as archive:
        archive.writestr("image", b"no array")
    with zipfile.ZipFile(tmp_path / "cut.npz", "w") as archive:
        archive.writestr("image.npy", b"\x93NUMPY\1\0")
    np.save(tmp_path / "pickled.npy", np.array([{}], object))
    for name, message in (
        ("objects.npz", "array 'image' of .* .it holds object values, not numbers"),
        ("bytes.npz", "array 'image' of .* .not a .npy or .npz file"),
        ("cut.npz", "array 'image' of .* .it is cut short"),
        ("pickled.npy", "pickled.npy cannot be read as arrays .it holds object values"),
    ):
        with pytest.raises(UsageError, match=message):
            read(tmp_path / name)


def test_a_file_of_python_2_is_read_without_a_warning(tmp_path):
    whole = np.zeros((1, 3, 8, 12), np.float32)
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 3L, 8L, 12L), }"
    padded = header + " " * (117 - len(header)) + "\n"
    data = b"\x93NUMPY\1\0" + len(padded).to_bytes(2, "little") + padded.encode()
    (tmp_path / "old.npy").write_bytes(data + whole.tobytes())
    assert len(read(tmp_path / "old.npy")) == 1
