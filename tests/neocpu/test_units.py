"""Numbers as people read and write them."""

import pytest

from neocpu.units import parse_size, size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("812", 812),
        ("812B", 812),
        ("120MB", 120_000_000),
        ("1.5 gb", 1_500_000_000),
        ("64MiB", 64 << 20),
        (" 2kB ", 2000),
    ],
)
def test_sizes(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1e6", "120 megs", "1,5GB", "nan", "120MB 2"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="is not a size: write 120MB"):
        parse_size(text)


def test_a_number_beyond_all_bounds():
    with pytest.raises(ValueError, match="more than any machine has"):
        parse_size("9" * 400)


def test_what_is_printed_can_be_read():
    assert parse_size(size(102_600_000)) == 102_600_000
