"""Numbers as people read and write them."""

import pytest

from neocpu.foundation.units import json_number, parse_duration, parse_size, size


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
def test_texts_that_are_no_sizes_are_refused(text):
    with pytest.raises(ValueError, match="is not a size: write 120MB"):
        parse_size(text)


def test_a_number_beyond_all_bounds():
    with pytest.raises(ValueError, match="more than any machine has"):
        parse_size("9" * 400)


def test_printed_sizes_are_read_back():
    assert parse_size(size(102_600_000)) == 102_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("60s", 60),
        ("10m", 600),
        ("1.5min", 90),
        (" 1H ", 3600),
        ("0", 0),
        ("2ms", 0.002),
    ],
)
def test_durations(text, expected):
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e3", "10weeks", "1 s", "1,5h", "inf", "1m 2s"])
def test_texts_that_are_no_durations_are_refused(text):
    with pytest.raises(ValueError, match="is not a duration: write 90, 2ms, 60s, 10m or 1h"):
        parse_duration(text)


def test_a_duration_beyond_all_bounds():
    with pytest.raises(ValueError, match="longer than anybody waits"):
        parse_duration("9" * 400)


def test_json_has_no_infinity():
    numbers = [1.5, None, float("inf"), float("-inf"), float("nan")]
    assert [json_number(number) for number in numbers] == [1.5, None, None, None, None]
