"""Bugs in what runs a model: the library in C, its Python and the server."""

from __future__ import annotations

from tests.mutations.bug import Bug

BUGS = (
    Bug(
        "inputs: any shape will do",
        "neocpu/runtime/inputs.py",
        "    if shape != spec.shape:\n",
        "    if len(shape) != len(spec.shape):\n",
        ("tests/neocpu/runtime/test_inputs.py",),
    ),
    Bug(
        "C: the checksum of half the digest",
        "core/src/artifact.c",
        "if (memcmp(found, digests, sizeof found) != 0) {",
        "if (memcmp(found, digests, 0) != 0) {",
        ("tests/neocpu/bundle/test_native_files.py",),
    ),
    Bug(
        "C: damaged weights are computed with",
        "core/src/verification.c",
        "return memcmp(found, wanted, sizeof found) == 0 ? NEOCPU_OK : NEOCPU_ARTIFACT;",
        "return memcmp(found, wanted, 0) == 0 ? NEOCPU_OK : NEOCPU_ARTIFACT;",
        ("tests/neocpu/bundle/test_native_weights.py",),
    ),
    Bug(
        "C: a call writes what it reads",
        "core/src/program.c",
        "      if (overlap(session, tensor, call->tensors[j])) {",
        "      if (overlap(session, tensor, call->tensors[j]) && i == j) {",
        ("tests/neocpu/bundle/test_native_crafted.py",),
    ),
    Bug(
        "C: a task that was taken over is done by its owner too",
        "core/src/pool.c",
        "const uint_fast64_t rest_of_it = last ? range - 1 : range + (1 << 16);",
        "const uint_fast64_t rest_of_it = last ? range : range + (1 << 16);",
        ("tests/neocpu/bundle/test_native_threads.py",),
    ),
    Bug(
        "C: an output is computed where a view of it is read",
        "core/src/program.c",
        "      if (shares_place(program, tensor, program->calls[i].tensors[j])) return 0;",
        "      if (shares_place(program, tensor, tensor)) return 0;",
        ("tests/neocpu/bundle/test_native_run.py",),
    ),
    Bug(
        "C: weights overlap",
        "core/src/program_fields.c",
        'if (weight->offset != end) nc_wrong(r, "weights");',
        'if (weight->offset > end) nc_wrong(r, "weights");',
        ("tests/neocpu/bundle/test_native_crafted.py",),
    ),
    Bug(
        "C: copies of inputs are as large as those of the first shape",
        "core/src/plans.c",
        "  for (size_t i = 0; i < header->program_count; ++i) {\n    for (size_t j = 0; j < inputs",
        "  for (size_t i = 0; i < 1; ++i) {\n    for (size_t j = 0; j < inputs",
        ("tests/neocpu/shape_sets/test_native_sets.py",),
    ),
    Bug(
        "C: bytes may follow its end",
        "core/src/artifact.c",
        "digest->offset + digest->size != file->size) {",
        "digest->offset + digest->size > file->size) {",
        ("tests/neocpu/runtime/test_artifact.py",),
    ),
    Bug(
        "C: half of the weights is looked at",
        "core/src/contents.c",
        "neocpu_checksums(piece, size, sums);",
        "neocpu_checksums(piece, size / 2, sums);",
        ("tests/neocpu/runtime/test_weights_digest.py",),
    ),
    Bug(
        "C: the first variant will do",
        "core/src/fat.c",
        "if (chosen == NC_MAX_VARIANTS || better(&read, &best)) best = read, chosen = i;",
        "if (chosen == NC_MAX_VARIANTS) best = read, chosen = i;",
        ("tests/neocpu/bundle/test_native_fat.py",),
    ),
    Bug(
        "C: an index may promise more than the code needs",
        "core/src/artifact.c",
        "variant != NULL && !nc_fat_agrees(",
        "variant == NULL && !nc_fat_agrees(",
        ("tests/neocpu/runtime/test_fat.py",),
    ),
    Bug(
        "C: a slice may leave its tensor",
        "core/src/program_fields.c",
        "program->repeats[slice->repeat].limit > room / slice->spec.bytes) {",
        "program->repeats[slice->repeat].limit > room) {",
        ("tests/neocpu/runtime/test_repeats.py",),
    ),
    Bug(
        "C: an inner loop is made once more behind the outer one",
        "core/src/session.c",
        "while (next < program->repeat_count && program->repeats[next].first < behind) ++next;",
        "++next;",
        ("tests/neocpu/runtime/test_repeats.py",),
    ),
    Bug(
        "serving: the JSON's length is believed",
        "neocpu/serving/request.py",
        "if json_bytes is not None and not 0 < json_bytes <= body.nbytes:",
        "if json_bytes is not None and not 0 < json_bytes:",
        ("tests/neocpu/serving/test_request.py", "tests/neocpu/serving/test_bad_requests.py"),
    ),
    Bug(
        "serving: what is under way is not counted",
        "neocpu/serving/in_flight.py",
        "        self.held += more\n",
        "        self.held += min(more, 0)\n",
        ("tests/neocpu/serving/test_in_flight.py",),
    ),
    Bug(
        "serving: JSON of any number of values",
        "neocpu/serving/request.py",
        'for one in ",[{") > most:',
        'for one in "{") > most:',
        ("tests/neocpu/serving/test_request.py",),
    ),
)
