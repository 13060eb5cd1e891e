"""Numbers as people read and write them."""

import pytest

from neocpu.foundation.units import json_number, parse_duration, parse_size, size


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        *((parse_size, "0", 0), (parse_size, "812", 812), (parse_size, "812B", 812)),
        *((parse_size, "120MB", 120_000_000), (parse_size, "1.5 gb", 1_500_000_000)),
        *((parse_size, "64MiB", 64 << 20), (parse_size, " 2kB ", 2000)),
        (parse_size, size(102_600_000), 102_600_000),
        *((parse_duration, "90", 90), (parse_duration, "60s", 60), (parse_duration, "10m", 600)),
        *((parse_duration, "1.5min", 90), (parse_duration, " 1H ", 3600)),
        *((parse_duration, "0", 0), (parse_duration, "2ms", 0.002)),
    ],
)
def test_sizes_and_durations(parse, text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1e6", "120 megs", "1,5GB", "nan", "120MB 2"])
def test_texts_that_are_no_sizes_are_refused(text):
    with pytest.raises(ValueError, match="is not a size: write 120MB"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e3", "10weeks", "1 s", "1,5h", "inf", "1m 2s"])
def test_texts_that_are_no_durations_are_refused(text):
    with pytest.raises(ValueError, match="is not a duration: write 90, 2ms, 60s, 10m or 1h"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("parse", "words"),
    [(parse_size, "more than any machine has"), (parse_duration, "longer than anybody waits")],
)
def test_a_number_beyond_all_bounds(parse, words):
    with pytest.raises(ValueError, match=words):
        parse("9" * 400)


def test_json_has_no_infinity():
    numbers = [1.5, None, float("inf"), float("-inf"), float("nan")]
    assert [json_number(number) for number in numbers] == [1.5, None, None, None, None]
