"""Bugs in what is measured and kept: search, tuning database, benchmarks and the ground."""

from __future__ import annotations

from tests.mutations.bug import Bug

BUGS = (
    Bug(
        "solver: a settled node's edges cost nothing",
        "search/solver/reductions.py",
        "self.unary[v] = self.unary[v] + matrix[position]",
        "self.unary[v] = self.unary[v] + matrix[position] * 0",
        ("tests/search/test_solvers.py",),
    ),
    Bug(
        "solver: a leaf takes its own best choice",
        "search/solver/reductions.py",
        "best = costs.argmin(axis=0)\n            self.unary[v]",
        "best = np.full(costs.shape[1], own.argmin())\n            self.unary[v]",
        ("tests/search/test_solvers.py",),
    ),
    Bug(
        "solver: the paper's table commits to the worst",
        "search/solver/dp.py",
        "best = int(self.table.min(axis=others).argmin())",
        "best = int(self.table.min(axis=others).argmax())",
        ("tests/search/test_solvers.py",),
    ),
    Bug(
        "records: of earlier templates count",
        "tuning_db/store.py",
        "return record.env.template_version == self._template_version(record.scheme.template)",
        "return record.env.template_version <= self._template_version(record.scheme.template)",
        ("tests/tuning_db/test_store.py",),
    ),
    Bug(
        "records: shipped ones count more than one's own",
        "tuning_db/store.py",
        "self._records[key] = by_scheme | self._records.get(key, {})",
        "self._records[key] = self._records.get(key, {}) | by_scheme",
        ("tests/tuning_db/test_store.py",),
    ),
    Bug(
        "records: the fastest failure wins",
        "tuning_db/store.py",
        "usable = (record for record in found if record.result.error is None)",
        "usable = (record for record in found if record.result.seconds)",
        ("tests/tuning_db/test_store.py",),
    ),
    Bug(
        "records: the strangest relative lends",
        "tuning_db/nearest.py",
        "        -shared,\n",
        "        shared,\n",
        ("tests/tuning_db/test_nearest.py",),
    ),
    Bug(
        "merge: a failure is forgotten",
        "tuning_db/merge.py",
        "return record.result.error is not None, len",
        "return record.result.error is None, len",
        ("tests/tuning_db/test_merge.py",),
    ),
    Bug(
        "files: nobody holds the lock",
        "tuning_db/record_file.py",
        "fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        ("tests/tuning_db/test_record_file.py", "tests/tuning_db/test_concurrent_writers.py"),
    ),
    Bug(
        "file cache: what others put there is deleted too",
        "foundation/file_cache.py",
        "if _OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):",
        "if entry.is_file(follow_symlinks=False):",
        ("tests/foundation/test_file_cache.py",),
    ),
    Bug(
        "bench: a peak counts one group of products of several",
        "neocpu/bench/limits/dot_peak.py",
        "for g in range(groups)\n            ]\n            pixels",
        "for g in [0] * groups\n            ]\n            pixels",
        ("tests/neocpu/bench/limits/test_dot_peak.py",),
    ),
    Bug(
        "bench: detections that no other has cost nothing",
        "neocpu/bench/engines/agreement.py",
        "missing = max(missing, 1 - len(pairs[0])",
        "missing = max(missing, 0 * len(pairs[0])",
        ("tests/neocpu/bench/engines/test_agreement.py",),
    ),
    Bug(
        "bench: calls are made that are not counted",
        "neocpu/bench/engines/concurrent_engines.py",
        "            while next(tickets) < made:",
        "            while next(tickets) <= made:",
        ("tests/neocpu/bench/engines/test_concurrent_engines.py",),
    ),
    Bug(
        "the ground: what TVM is imported without stays hidden",
        "foundation/import_tvm.py",
        "sys.modules.pop(name, None)",
        "sys.modules.get(name)",
        ("tests/foundation/test_import_tvm.py",),
    ),
    Bug(
        "the ground: a package of any version fits",
        "foundation/requirements.py",
        "if other is None or not asked.specifier",
        "if other is None and not asked.specifier",
        ("tests/foundation/test_requirements.py",),
    ),
)
