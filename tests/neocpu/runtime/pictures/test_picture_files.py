"""Every kind of picture that the decoder takes, checked by its mean; and those it refuses."""

import io
import struct
import warnings

import numpy as np
import pytest
from raw_pictures import PNG_CHANNELS, black_png, bmp, png, tiff

from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import Picture, TensorSpec
from neocpu.quantiser.pictures import Preprocessing, read_picture
from neocpu.runtime.pictures.picture_bounds import place
from neocpu.runtime.pictures.picture_files import decode_picture, fit_pixels, read_sized

Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")

SIZE = WIDTH, HEIGHT = 16, 8
LEFT, RIGHT = (200, 100, 50), (20, 120, 220)
MEAN = (110, 110, 135)
GREY = 119
"""The 16-bit grey 119 * 257 in 8 bits, which all greys here have."""


def coloured(mode="RGB"):
    """Return a picture of two colours, in a mode."""
    image = Image.new("RGB", SIZE, LEFT)
    image.paste(RIGHT, (WIDTH // 2, 0, WIDTH, HEIGHT))
    if mode in ("RGBA", "RGBX"):
        image = image.convert(mode)
        if mode == "RGBA":
            image.putalpha(7)  # hardly to be seen, and yet as it is
    elif mode == "P":
        image = image.quantize(2)
    else:
        image = image.convert(mode)
    return image


def grey(mode):
    values = {"I;16": GREY * 257, "I;16B": GREY * 257, "LA": (GREY, 9), "I": GREY * 257}
    return Image.new(mode, SIZE, values.get(mode, GREY))


def saved(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def means(file, mode="RGB", size=SIZE, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no warning of Pillow reaches anybody
        image = read_sized(file, mode, size, "stretch", **options)
    assert image.mode == mode
    assert image.size == size
    return np.asarray(image, float).reshape(-1, len(mode)).mean(0)


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        *(("PNG", mode, {}) for mode in ("RGB", "RGBA", "P")),
        ("PNG", "P", {"transparency": 0}),
        ("PNG", "P", {"transparency": bytes([5, 200])}),
        ("PNG", "RGB", {"transparency": LEFT}),
        *(("JPEG", mode, {"quality": 95, "subsampling": 0}) for mode in ("RGB", "CMYK", "YCbCr")),
        ("JPEG", "RGB", {"quality": 95, "subsampling": 0, "progressive": True}),
        *(("WEBP", mode, {"lossless": True, "exact": True}) for mode in ("RGB", "RGBA")),
        ("WEBP", "RGB", {"quality": 95}),
        *(("TIFF", mode, {}) for mode in ("RGB", "RGBA", "RGBX", "P", "CMYK", "YCbCr")),
        *(("TIFF", "RGB", {"compression": how}) for how in ("tiff_lzw", "packbits", "jpeg")),
        ("TIFF", "RGBA", {"compression": "tiff_adobe_deflate"}),
        *(("BMP", mode, {}) for mode in ("RGB", "RGBA", "P")),
        *(("GIF", mode, {}) for mode in ("RGB", "P")),
        ("GIF", "P", {"transparency": 1}),
    ],
)
def test_colours(kind, mode, options):
    file = saved(coloured(mode), kind, **options)
    lossy = 3 if kind in ("JPEG", "WEBP") or options.get("compression") == "jpeg" else 1
    lossy = 2 if mode == "YCbCr" and kind == "TIFF" else lossy
    np.testing.assert_allclose(means(file), MEAN, atol=lossy)
    # By the weights of luma, which all of Pillow's conversions have.
    np.testing.assert_allclose(means(file, "L"), np.dot(MEAN, (0.299, 0.587, 0.114)), atol=lossy)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("PNG", mode) for mode in ("L", "LA", "I;16")),
        ("JPEG", "L"),
        ("WEBP", "L"),
        *(("TIFF", mode) for mode in ("L", "LA", "I;16", "I;16B")),
        ("BMP", "L"),
        ("GIF", "L"),
    ],
)
def test_greys(kind, mode):
    file = saved(grey(mode), kind)
    for wanted in ("L", "RGB"):
        np.testing.assert_allclose(means(file, wanted), GREY, atol=1)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF"])
def test_black_and_white(kind):
    image = Image.new("1", SIZE)
    image.paste(1, (0, 0, WIDTH // 4, HEIGHT))
    file = saved(image, kind, **({"lossless": True} if kind == "WEBP" else {}))
    for wanted in ("L", "RGB"):
        np.testing.assert_allclose(means(file, wanted), 255 / 4, atol=2)


@pytest.mark.parametrize(
    ("depth", "colour"),
    [
        *((depth, 0) for depth in (1, 2, 4, 8, 16)),
        *((depth, colour) for colour in (2, 4, 6) for depth in (8, 16)),
        *((depth, 3) for depth in (1, 2, 4, 8)),
    ],
)
def test_every_depth_and_colour_of_png(depth, colour):
    """All kinds that the standard lists. Opacity, if there is any, is dropped."""
    channels = PNG_CHANNELS[colour]
    top = (1 << depth) - 1
    pixels = np.zeros((HEIGHT, WIDTH, channels), np.uint16)
    if colour == 3:
        palette = bytes([*LEFT, *RIGHT])
        pixels[:, WIDTH // 2 :] = 1
        np.testing.assert_allclose(means(png(pixels, depth, colour, palette)), MEAN, atol=1)
        return
    shades = (0.2, 0.6, 0.8) if channels >= 3 else (0.4,)
    values = [round(shade * top) for shade in shades]
    pixels[:, :, : len(shades)] = values
    expected = [value / top * 255 for value in values]
    np.testing.assert_allclose(
        means(png(pixels, depth, colour)), expected * (3 // len(shades)), atol=1
    )


def test_a_gradient_of_16_bits_keeps_its_order():
    """Its mean is not enough: all values above 255 became white."""
    pixels = np.arange(WIDTH * HEIGHT, dtype=np.uint16).reshape(HEIGHT, WIDTH, 1) * 512
    image = read_sized(png(pixels, 16, 0), "L", SIZE, "stretch")
    np.testing.assert_allclose(np.asarray(image), pixels[:, :, 0] / 257, atol=0.5)


def words(*values):
    return struct.pack(f"<{len(values)}H", *values)


PIXELS = WIDTH * HEIGHT
MASKS_565 = struct.pack("<3I", 0xF800, 0x7E0, 0x1F)


def planes(bits, *values, photometric=2, **tags):
    """Return a TIFF with a plane for each colour, not compressed."""
    size = PIXELS * bits // 8
    data = b"".join(value.to_bytes(bits // 8, "little") * PIXELS for value in values)
    strips = {
        "t273": tuple(8 + size * n for n in range(len(values))),
        "t279": (size,) * len(values),
    }
    return tiff(data, *SIZE, (bits,) * len(values), photometric, t284=2, **strips, **tags)


PALETTE = bytes([*LEFT[::-1], 0, *RIGHT[::-1], 0]).ljust(1024, b"\0")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (tiff(bytes([0x66]) * PIXELS, *SIZE, (8,), 1), 0x66),
        (tiff(bytes([0x66]) * PIXELS, *SIZE, (8,), 0), 0x99),  # white is zero
        (tiff(bytes([0x66]) * (PIXELS // 2), *SIZE, (4,), 1), 0x66),
        (tiff(bytes([0xAA]) * (PIXELS // 4), *SIZE, (2,), 1), 0xAA),
        (planes(8, 0x66, 0x33, 0x99), (0x66, 0x33, 0x99)),
        (tiff(words(*(0x6600, 0x3300, 0x9900) * PIXELS), *SIZE, (16,) * 3, 2), (0x66, 0x33, 0x99)),
        (bmp(words(*[0x7C00 | 16] * PIXELS), *SIZE, 16), (255, 0, 132)),
        (bmp(words(*[0xF800 | 16] * PIXELS), *SIZE, 16, 3, MASKS_565), (255, 0, 132)),
        (bmp(bytes([50, 100, 200, 0]) * PIXELS, *SIZE, 32), LEFT),
        (bmp(bytes([0x01]) * (PIXELS // 2), *SIZE, 4, 0, PALETTE[:64]), MEAN),
        (bmp(bytes([WIDTH, 0, 0, 0]) * HEIGHT + b"\0\1", *SIZE, 8, 1, PALETTE), LEFT),  # RLE
    ],
)
def test_kinds_that_pillow_does_not_write(file, expected):
    np.testing.assert_allclose(means(file), np.broadcast_to(expected, 3), atol=1)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (saved(Image.new("I", SIZE, 5), "TIFF"), "mode I, "),
        (saved(Image.new("F", SIZE, 0.5), "TIFF"), "mode F, "),
        (saved(Image.new("LAB", SIZE), "TIFF"), "mode LAB, "),
        (tiff(words(*[5] * PIXELS), *SIZE, (16,), 1, t339=2), "mode I, "),  # signed
        (tiff(words(*[5] * PIXELS), *SIZE, (16,), 0), "grey from 0, black"),  # white is zero
        (tiff(bytes(PIXELS * 3 // 2), *SIZE, (12,), 1), "grey from 0, black"),
        (tiff(bytes(PIXELS * 3), *SIZE, (8,) * 3, 6), "subsampled colours"),
        (tiff(bytes(PIXELS), *SIZE, (8,), 1, t339=2), "signed"),
        (planes(16, 0x6600, 0x3300, 0x9900), "a plane for each colour"),
        (planes(8, 0x66, photometric=0), "a plane for each colour"),
        (planes(8, 0x66, 0x33, 0x99, t266=2), "a plane for each colour"),  # bits from the right
        (tiff(bytes(PIXELS), *SIZE, (8,), 1, t262=(1, 1)), "tag 262 has 2 values"),
        (tiff(bytes(PIXELS), *SIZE, (8,), 1, t274=(1, 1)), "tag 274 has 2 values"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n", "cannot identify"),
        (b"P5 16 8 255\n" + bytes(PIXELS), "cannot identify"),
        (saved(coloured(), "PNG")[:60], "truncated|broken"),
        (b"", "cannot identify"),
    ],
)
def test_what_is_refused(file, says):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=says) as caught:
            read_sized(file, "RGB", SIZE, "stretch")
    assert "\n" not in str(caught.value)


def test_libtiff_says_nothing_of_its_own(capfd):
    broken = tiff(bytes(PIXELS), *SIZE, (8,), 1, t259=8)  # deflated, it claims
    with pytest.raises(ValueError, match="decoder error"):
        read_sized(broken, "L", SIZE, "stretch")
    assert capfd.readouterr() == ("", "")


def test_ppm_of_both_depths_where_it_is_taken():
    both = {"formats": ("PPM",)}
    np.testing.assert_allclose(means(b"P5 16 8 255\n" + bytes([GREY]) * PIXELS, **both), GREY)
    deep = struct.pack(f">{PIXELS}H", *[GREY * 257] * PIXELS)
    np.testing.assert_allclose(means(b"P5 16 8 65535\n" + deep, **both), GREY, atol=1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_orientation_of_the_camera_is_ignored(kind):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    lossless = {"lossless": True} if kind == "WEBP" else {}
    file = saved(coloured(), kind, exif=exif, **lossless)
    found = np.asarray(read_sized(file, "RGB", SIZE, "stretch"), float)
    np.testing.assert_allclose(found[:, : WIDTH // 2 - 2].mean((0, 1)), LEFT, atol=6)


def test_the_orientation_of_a_tiff_belongs_to_its_format():
    rows = np.repeat(np.uint8([[10], [90], [170], [250]]), 8, axis=1)
    upside_down = tiff(rows.tobytes(), 8, 4, (8,), 1, t274=4)
    found = np.asarray(read_sized(upside_down, "L", (8, 4), "stretch"))
    np.testing.assert_array_equal(found, rows[::-1])


@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox"])
@pytest.mark.parametrize("given", [(1, 1), (7, 40), (40, 7), (33, 31), (64, 64), (3, 900)])
@pytest.mark.parametrize("wanted", [(16, 8), (9, 9), (5, 21)])
def test_fits_are_those_of_pillow(given, wanted, fit):
    pixels = np.random.default_rng(0).integers(0, 256, (given[1], given[0], 3), dtype=np.uint8)
    image, bilinear = Image.fromarray(pixels), Image.Resampling.BILINEAR
    if fit == "stretch":
        expected = image.resize(wanted, bilinear)
    elif fit == "crop":
        expected = ImageOps.fit(image, wanted, bilinear)
    else:
        expected = ImageOps.pad(image, wanted, bilinear, color=(114,) * 3)
    found = np.asarray(read_sized(saved(image, "PNG"), "RGB", wanted, fit))
    if fit == "letterbox" and 0 in (
        round(given[0] / given[1] * wanted[1]),
        round(given[1] / given[0] * wanted[0]),
    ):
        assert (found != 114).any()  # at least a line of it, of which Pillow makes none
        return
    np.testing.assert_array_equal(found, np.asarray(expected))


def test_where_a_picture_is_placed():
    assert place((100, 50), (10, 10), "crop").box == (25, 0, 75, 50)
    assert place((100, 50), (10, 10), "letterbox").size == (10, 5)
    assert place((1, 1000), (10, 10), "letterbox").size == (1, 10)
    assert place((100, 50), (10, 10), "stretch").size == (10, 10)


def test_pixels_of_16_bits_never_come_as_arrays_of_bytes():
    spec = TensorSpec(
        "x", "uint8", (1, HEIGHT, WIDTH, 1), picture=Picture("nhwc", "gray", "stretch")
    )
    np.testing.assert_allclose(decode_picture(spec, saved(grey("I;16"), "PNG")), GREY)
    np.testing.assert_array_equal(fit_pixels(spec, np.full((3, 5, 1), GREY, np.uint8)), GREY)


def test_calibration_has_the_same_decoder(tmp_path):
    spec = TensorSpec("x", "float32", (1, 3, HEIGHT, WIDTH))
    plain = Preprocessing(mean=(0.0,), std=(1.0,))
    path = tmp_path / "deep.png"
    path.write_bytes(saved(grey("I;16"), "PNG"))
    np.testing.assert_allclose(read_picture(path, spec, plain), GREY / 255, atol=1e-6)
    (tmp_path / "script.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    (tmp_path / "large.png").write_bytes(black_png(1 << 26, 1 << 6, 1, 0)[:100])
    for name, says in (
        ("script", "cannot identify"),
        ("large", "more pixels than Pillow"),
        ("none", "No such"),
    ):
        path = tmp_path / f"{name}.png"
        with pytest.raises(UsageError, match=f"{name}.png cannot be read as a picture .*{says}"):
            read_picture(path, spec, plain)
