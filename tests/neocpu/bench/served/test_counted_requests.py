"""Requests that count, of clients that a simulated server answers in batches."""

import math

import pytest

from neocpu.bench.served.served_load import Request, counted


def answered_in_batches(clients, rows, took, stop, *, lanes=1, begin=0.0):
    """The requests of clients until ``stop``; each worker answers ``rows`` at a time."""
    asked = [begin] * clients
    found = [[] for _ in range(clients)]
    waiting = [*range(clients)]
    free = [begin + took * lane / lanes for lane in range(lanes)]
    while waiting:
        lane = free.index(min(free))
        batch, waiting = waiting[:rows], waiting[rows:]
        free[lane] = done = max(free[lane], max(asked[one] for one in batch)) + took
        for one in batch:
            found[one].append(Request(asked[one], done))
            asked[one] = done
        waiting += [one for one in batch if done < stop]
    return found


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("rows", [1, 5, 8])
def test_neither_the_first_wave_nor_the_last_counts(lanes, rows):
    clients = answered_in_batches(32, rows, 0.1, 9.0, lanes=lanes, begin=0.03)
    found = counted(clients, 9.0)
    assert found.per_answer == pytest.approx(0.1 / rows / lanes, rel=0.02)
    everything = [each for one in clients for each in one]
    first = max(one[0].answered for one in clients)
    assert sorted(found.seconds) == sorted(s.seconds for s in everything if s.sent >= first)


def test_one_client():
    requests = [Request(0.1 * index, 0.1 * index + 0.1) for index in range(7)]
    found = counted([requests], 0.65)
    assert found.per_answer == pytest.approx(0.1)
    assert len(found.seconds) == 6


def test_all_requests_count_if_a_client_had_only_one_answer():
    clients = [[Request(0.0, 0.25), Request(0.25, 0.5)], [Request(0.0, 0.5)]]
    found = counted(clients, 0.4)
    assert found.per_answer == pytest.approx(0.5 / 3)
    assert sorted(found.seconds) == [0.25, 0.25, 0.5]


def test_all_requests_count_if_the_next_was_sent_as_time_ended():
    found = counted([[Request(0.0, 0.5), Request(0.51, 0.7)]], 0.505)
    assert found == ((0.5, pytest.approx(0.19)), pytest.approx(0.35))


def test_no_requests_give_no_counts():
    assert counted([[], []], 1.0) == ((), math.inf)
    assert counted([[], [Request(0.0, 0.5)]], 1.0).per_answer == pytest.approx(0.5)
