"""The C interface under load, in a loop, and misused."""

import os

import needs
import pytest


def test_many_threads_on_two_models(built, linear, two_way):
    done = built.run(built.compile("threads.c"), linear.path, two_way.path)
    assert done.returncode == 0, done.stderr
    threads, rest, left = done.stdout.splitlines()
    assert len(set(threads.split()[1:])) == 1  # none were added by calls
    assert rest == "wrong 0 affinity 0"
    assert left == "left 1"


def test_loading_again_and_again_keeps_nothing(built, linear):
    done = built.run(built.compile("reload.c"), linear.path, 120)
    assert done.returncode == 0, done.stderr
    early, late, threads = map(int, done.stdout.split())
    assert late - early < 1000  # kB in 120 loads
    assert threads == 1


def test_a_child_forked_during_a_load_can_load(built, linear):
    done = built.run(built.compile("forks.c"), linear.path)
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr


def test_misuse_is_reported(sanitized, linear):
    done = sanitized.run(sanitized.compile("misuse.c"), linear.path)
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.splitlines()
    assert len(told) == 13
    assert told[0].startswith("threads must be from 1 to")
    assert told[-1].endswith("was loaded before this process forked: load it in the child")


def test_no_leak_and_no_undefined_behaviour(sanitized, linear, two_way):
    for toy in (linear, two_way):
        done = sanitized.run("neocpu_run", toy.path, "--repeat", 20)
        assert done.returncode == 0, done.stderr


def test_checksums_by_instructions_and_by_table(sanitized):
    done = sanitized.run(sanitized.compile("checksums.c"))
    assert done.returncode == 0, done.stderr


def test_damaged_files_crash_nothing(sanitized, linear):
    done = sanitized.run(sanitized.compile("fuzz.c"), linear.path, 1500)
    assert done.returncode == 0, done.stderr
    counts = [int(word.rstrip(",")) for word in done.stdout.split() if word.rstrip(",").isdigit()]
    assert counts[0] == 1500
    # Damage reached every parser, and mattered.
    assert all(0 < count < 1500 for count in counts[1:])


@pytest.mark.parametrize(
    "kind", ["built", "sanitized", pytest.param("watched", marks=needs.everything())]
)
def test_every_task_of_a_loop_is_done_once(request, kind):
    bundle = request.getfixturevalue(kind)
    done = bundle.run(bundle.compile("loops.c"), 1)
    assert (done.returncode, done.stdout) == (0, "50400\n"), done.stderr


@pytest.mark.parametrize("kind", ["sanitized", "watched"])
def test_shared_pools_jobs_and_models_in_memory(request, kind, linear, two_way, small):
    bundle = request.getfixturevalue(kind)
    done = bundle.run(bundle.compile("sharing.c"), linear.path, two_way.path, small.path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.mark.parametrize("kind", ["sanitized", "watched"])
def test_streams_outlive_their_model_and_race_for_nothing(request, kind, linear, two_way, small):
    bundle = request.getfixturevalue(kind)
    done = bundle.run(bundle.compile("streams.c"), linear.path, two_way.path, small.path)
    assert done.returncode == 0, done.stderr


def test_many_callers_race_for_nothing(watched, linear, small):
    done = watched.run(watched.compile("threads.c"), linear.path, small.path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["sanitized", "watched"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_took_place_is_noted_when_asked(request, kind, threads, small):
    bundle = request.getfixturevalue(kind)
    done = bundle.run(bundle.compile("trace.c"), small.path, threads)
    assert done.returncode == 0, done.stdout + done.stderr
    runs, calls, tasks, used = map(int, done.stdout.split())
    assert runs == 40
    assert calls == runs * len(small.header.calls)
    # Not every kernel has a loop; what a thread does alone is one task.
    assert tasks % runs == 0
    assert runs <= tasks if threads > 1 else runs <= tasks <= calls
    assert 1 <= used <= threads


FAST_CPUS = [
    ({"cpu_core/cpus": "0-1\n", "cpu_atom/cpus": "2-9\n"}, {0, 1}),
    ({"cpu_core/cpus": "1,7-8"}, {1}),
    ({"cpu_core/cpus": "1000-2000\n"}, set()),
    ({"system/cpu/cpu0/cpu_capacity": "446\n", "system/cpu/cpu1/cpu_capacity": "1024\n"}, {1}),
    ({"system/cpu/cpu0/cpu_capacity": "700\n", "system/cpu/cpu1/cpu_capacity": "1024\n"}, {0, 1}),
    ({"cpu_core/cpus": "none"}, set()),
    ({}, set()),
]


def test_cpus_of_performance_cores(sanitized, tmp_path):
    lines = []
    for number, (files, found) in enumerate(FAST_CPUS):
        for name, text in files.items():
            path = tmp_path / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        allowed = sorted(found & os.sched_getaffinity(0))
        lines.append(" ".join([f"{len(allowed)}:", *map(str, allowed)]))
    folders = [tmp_path / str(number) for number in range(len(FAST_CPUS))]
    done = sanitized.run(sanitized.compile("performance.c"), *folders)
    assert (done.returncode, done.stdout.splitlines()) == (0, lines), done.stderr
