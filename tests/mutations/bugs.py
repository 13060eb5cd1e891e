"""The bugs that are planted: what is right, what is put in its place, and who ought to notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bug:
    """A small bug.

    Attributes
    ----------
    path : str
        The file it is planted in.
    right, wrong : str
        A text that occurs there once, and what replaces it.
    tests : tuple of str
        Test files that ought to catch it.
    """

    name: str
    path: str
    right: str
    wrong: str
    tests: tuple[str, ...]


_CONV = "tests/schedules/convolutions/test_conv2d_"
_OPERATORS = "tests/schedules/operators/test_"
_RANKING = "tests/schedules/operators/ranking/test_"

BUGS = (
    # Kernels
    Bug(
        "bfloat16: cut off, not rounded",
        "schedules/tir/bfloat16.py",
        "nearest = tirx.shift_right(bits + _const(0x7FFF) + odd, _const(16))",
        "nearest = tirx.shift_right(bits, _const(16))",
        (f"{_CONV}dot_bfloat16.py",),
    ),
    Bug(
        "bfloat16: the first of a pair twice",
        "schedules/tir/bfloat16.py",
        "tirx.reinterpret(kind, tirx.bitwise_and(pairs, mask))",
        "tirx.reinterpret(kind, first)",
        (f"{_CONV}dot_bfloat16.py",),
    ),
    Bug(
        "bfloat16: residuals read as integers",
        "schedules/operators/epilogue.py",
        "if bits is buffer else (lambda *index: widened(bits[index]))",
        "if bits is buffer else (lambda *index: bits[index])",
        (f"{_CONV}dot_bfloat16.py",),
    ),
    Bug(
        "recurrent: lengths are trusted",
        "schedules/recurrent/kernel.py",
        "return T.Bind(T.max(T.min(given, task.workload.steps), 0))",
        "return T.Bind(given)",
        ("tests/schedules/recurrent/test_kernel.py",),
    ),
    Bug(
        "recurrent: backward from the tensor's end",
        "schedules/recurrent/kernel.py",
        "time = (w.steps if length is None else length) - 1 - step",
        "time = w.steps - 1 - step",
        ("tests/schedules/recurrent/test_kernel.py",),
    ),
    Bug(
        "recurrent: the state of the step itself",
        "schedules/recurrent/kernel.py",
        "state = task.h[step % 2, row, k] if",
        "state = task.h[1 - step % 2, row, k] if",
        ("tests/schedules/recurrent/test_kernel.py",),
    ),
    Bug(
        "dense: stores integers that others read too",
        "neocpu/planning/operators/dense_op.py",
        "alone = readers <= reading.get(layer.result, set())",
        "alone = bool(readers & reading.get(layer.result, set()))",
        ("tests/neocpu/test_integer_dense.py",),
    ),
    Bug(
        "dense: columns of padding are left",
        "neocpu/planning/operators/dense_op.py",
        "[1], [0], [n])",
        "[1], [written - n], [written])",
        ("tests/neocpu/test_integer_dense.py",),
    ),
    Bug(
        "bfloat16: auto takes it",
        "neocpu/planning/operators/conv_op.py",
        "if precision is Precision.BF16:",
        "if precision is not Precision.FP32:",
        ("tests/neocpu/test_bfloat16_networks.py",),
    ),
    Bug(
        "float16: types in attributes stay",
        "neocpu/frontend/number_formats.py",
        "if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _HALVES:",
        "if attribute.name in () and attribute.i in _HALVES:",
        ("tests/neocpu/frontend/test_number_formats.py",),
    ),
    Bug(
        "float16: outputs are float32",
        "neocpu/frontend/number_formats.py",
        "last.append(_cast(new[value.name], value.name, kind))",
        "last.append(_cast(new[value.name], value.name, 1))",
        ("tests/neocpu/frontend/test_number_formats.py",),
    ),
    Bug(
        "direct: a row below the image",
        "schedules/convolutions/direct_kernel.py",
        "h < height + top,",
        "h <= height + top,",
        (f"{_CONV}direct.py",),
    ),
    Bug(
        "direct: columns undilated",
        "schedules/convolutions/direct_kernel.py",
        "w * stride_w + kw * dil_w)",
        "w * stride_w + kw)",
        (f"{_CONV}direct.py",),
    ),
    Bug(
        "direct: a fold of too few chunks",
        "schedules/convolutions/conv2d_direct.py",
        " or written != needed:",
        ":",
        (f"{_CONV}direct.py",),
    ),
    Bug(
        "winograd: padding shifted",
        "schedules/convolutions/winograd_kernel.py",
        "write(above + i, before + k, pixel(above + i, before + k))",
        "write(above + i, k, pixel(above + i, before + k))",
        (f"{_CONV}winograd.py",),
    ),
    Bug(
        "winograd: borders taken for inner tiles",
        "schedules/convolutions/winograd_kernel.py",
        "conditions.append(position + line.span <= length)",
        "conditions.append(position + line.span <= length + 1)",
        (f"{_CONV}winograd.py",),
    ),
    Bug(
        "depthwise: a row of taps too many",
        "schedules/convolutions/in_groups/group_kernel.py",
        "end = T.min((w.height - top + dilation - 1) // dilation, taps)",
        "end = T.min((w.height - top + dilation) // dilation, taps)",
        (f"{_CONV}depthwise.py", f"{_CONV}grouped.py"),
    ),
    Bug(
        "depthwise: a column of taps lost",
        "schedules/convolutions/in_groups/group_kernel.py",
        "if 0 <= x * w.stride[1] + offset < w.width:",
        "if 0 < x * w.stride[1] + offset < w.width:",
        (f"{_CONV}depthwise.py",),
    ),
    Bug(
        "pointwise: images of a batch mixed",
        "schedules/convolutions/pointwise_kernel.py",
        "tirx.floormod(row, w.out_height)",
        "tirx.floormod(row, w.height)",
        (f"{_CONV}pointwise.py",),
    ),
    Bug(
        "epilogue: the first block's bias for all",
        "schedules/operators/epilogue.py",
        "t(*(0, i[1], 0, 0, *i[4:])))",
        "t(*(0, 0, 0, 0, *i[4:])))",
        (f"{_CONV}direct.py",),
    ),
    Bug(
        "epilogue: lanes after the last channel not zero",
        "schedules/operators/epilogue.py",
        "chunk * block + lane < workload.out_channels",
        "chunk * block + lane <= workload.out_channels",
        ("tests/schedules/convolutions/test_padded_lanes.py",),
    ),
    Bug(
        "epilogue: clip forgets its lower end",
        "schedules/vocabulary/steps.py",
        "return _tirx().max(_tirx().min(x, _const(high, x)), _const(low, x))",
        "return _tirx().min(x, _const(high, x))",
        (f"{_CONV}direct.py", "tests/neocpu/passes/test_apply_plan.py"),
    ),
    Bug(
        "pool: padding counts",
        "schedules/operators/pool.py",
        "return last - first + 1",
        "return last - first + 2",
        (f"{_OPERATORS}pool.py",),
    ),
    Bug(
        "pool: a maximum of at least zero",
        "schedules/operators/pool.py",
        'float("-inf") if kind == "max" else 0.0',
        "0.0",
        (f"{_OPERATORS}pool.py",),
    ),
    Bug(
        "concat: a share begins at its row",
        "schedules/operators/concat.py",
        "at = index * run + first",
        "at = index * run",
        (f"{_OPERATORS}concat.py",),
    ),
    Bug(
        "gather: slices begin at channel 0",
        "schedules/operators/gather.py",
        "divmod(first + low - offset, block)",
        "divmod(low - offset, block)",
        (f"{_OPERATORS}gather.py",),
    ),
    Bug(
        "transform: a tail one lane too long",
        "schedules/operators/layout_transform.py",
        "valid = min(max(tail - lane, 0), edge)",
        "valid = min(max(tail - lane + 1, 0), edge)",
        (f"{_OPERATORS}layout_transform.py",),
    ),
    Bug(
        "dense: weights of a block transposed",
        "schedules/operators/dense.py",
        "padded.reshape(k, blocks, block).transpose(1, 0, 2)",
        "padded.reshape(blocks, k, block)",
        (f"{_OPERATORS}dense.py",),
    ),
    Bug(
        "sort: negative scores in falling order",
        "schedules/operators/ranking/radix_sort.py",
        "key = tirx.Select(negative, bits, ",
        "key = tirx.Select(negative, T.bitwise_not(bits), ",
        (f"{_RANKING}top_k.py", f"{_RANKING}non_max_suppression.py"),
    ),
    Bug(
        "integers: division by zero traps",
        "schedules/operators/integer_arithmetic.py",
        "tirx.Select(traps, one, divisor))[0]",
        "divisor)[0]",
        ("tests/neocpu/test_hostile_values.py",),
    ),
    # Vocabulary, passes and planning
    Bug(
        "layout: weights packed by rows",
        "schedules/vocabulary/layout.py",
        "blocked.transpose(0, 2, 5, 6, 3, 1, 4)",
        "blocked.transpose(0, 2, 6, 5, 3, 1, 4)",
        ("tests/schedules/test_vocabulary.py", "tests/schedules/vocabulary/test_format.py"),
    ),
    Bug(
        "numerics: not part of the key",
        "schedules/vocabulary/numerics.py",
        'found = {**types, **({"quantised": scales} if scales else {})}',
        'return {"dtype": self.data}',
        ("tests/schedules/vocabulary/test_numerics.py",),
    ),
    Bug(
        "activations: subtraction adds",
        "neocpu/passes/canonicalize_activations.py",
        "return relax.op.add(data, make_const(-constant))",
        "return relax.op.add(data, make_const(constant))",
        ("tests/neocpu/passes/test_canonicalize_activations.py",),
    ),
    Bug(
        "activations: every power is a square",
        "neocpu/passes/canonicalize_activations.py",
        "constant.size == 1 and constant.item() == 2 and",
        "constant.size == 1 and",
        ("tests/neocpu/passes/test_canonicalize_activations.py",),
    ),
    Bug(
        "branches: the other one is skipped",
        "neocpu/planning/guards.py",
        "Guard(step.reads[0], place == 1)",
        "Guard(step.reads[0], place == 2)",
        ("tests/neocpu/planning/test_guards.py",),
    ),
    Bug(
        "branches: conditions that nobody knows yet",
        "neocpu/planning/guards.py",
        "if made.get(guard.condition, -1) < number]",
        "]",
        ("tests/neocpu/planning/test_guards.py",),
    ),
    Bug(
        "branches: both sides are made in one place",
        "neocpu/passes/joins.py",
        "fits = part.side is None or joins.made_under(root, part.side, guards)",
        "fits = True",
        ("tests/neocpu/test_branches.py",),
    ),
    Bug(
        "loops: rows that are scanned backward are not turned",
        "neocpu/frontend/control_flow/loops.py",
        "row[::-1] if backward else row for",
        "row for",
        ("tests/neocpu/frontend/control_flow/test_flatten.py",),
    ),
    Bug(
        "loops: a step that data skip counts",
        "neocpu/frontend/control_flow/loops.py",
        "still = rewriting.choose(active, still, false",
        "still = rewriting.choose(active, still, true",
        ("tests/neocpu/frontend/control_flow/test_flatten.py",),
    ),
    Bug(
        "scale: folded along any axis",
        "neocpu/passes/fold_scale.py",
        "if padded[axis] != constant.size:",
        "if padded[axis] > constant.size:",
        ("tests/neocpu/passes/test_fold_scale.py",),
    ),
    Bug(
        "shuffles: an output's order is nobody's business",
        "neocpu/passes/absorb_channel_shuffles.py",
        "seen = var in results or any(",
        "seen = any(",
        ("tests/neocpu/passes/test_absorb_channel_shuffles.py",),
    ),
    Bug(
        "arena: the last reader does not count",
        "neocpu/planning/arena.py",
        "(first <= span.last) & (last >= span.first)",
        "(first <= span.last) & (last > span.first)",
        ("tests/neocpu/planning/test_arena.py",),
    ),
    Bug(
        "arena: places are not aligned",
        "neocpu/planning/arena.py",
        "np.maximum.accumulate(-(-high[order] // ALIGN) * ALIGN)",
        "np.maximum.accumulate(high[order])",
        ("tests/neocpu/planning/test_arena.py",),
    ),
    Bug(
        "planning: failed schemes are chosen",
        "neocpu/planning/costs.py",
        "[s for s in legal if records.get(s, 0.0) is not None]",
        "[s for s in legal]",
        ("tests/neocpu/planning/test_optimisation_levels.py",),
    ),
    Bug(
        "planning: what must exist in NCHW is forgotten",
        "neocpu/planning/network_graph.py",
        "what.kept | {wanted(read, choice) for read in reads}",
        "frozenset(wanted(read, choice) for read in reads)",
        ("tests/neocpu/planning/test_network_graph.py",),
    ),
    Bug(
        "planning: measurements turn estimates round",
        "neocpu/planning/memory_costs.py",
        "math.log(seconds / estimate)",
        "math.log(estimate / seconds)",
        ("tests/neocpu/planning/test_memory_costs.py",),
    ),
    Bug(
        "planning: per-channel operands weigh nothing",
        "neocpu/planning/weights.py",
        "for argument in (weights, *border, *vectors))",
        "for argument in (weights, *border))",
        ("tests/neocpu/planning/test_weight_limit.py",),
    ),
    # Solver
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
    # Database
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
        "with filelock.FileLock(name).acquire(LOCK_TIMEOUT, POLL_SECONDS):",
        "with suppress(filelock.Timeout):",
        ("tests/tuning_db/test_record_file.py", "tests/tuning_db/test_concurrent_writers.py"),
    ),
    # Runtime
    Bug(
        "inputs: any shape will do",
        "neocpu/runtime/inputs.py",
        "    if shape != spec.shape:\n",
        "    if len(shape) != len(spec.shape):\n",
        ("tests/neocpu/runtime/test_inputs.py",),
    ),
    # C
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
        "      if (shares_place(header, tensor, header->calls[i].tensors[j])) return 0;",
        "      if (shares_place(header, tensor, tensor)) return 0;",
        ("tests/neocpu/bundle/test_native_run.py",),
    ),
    Bug(
        "C: weights overlap",
        "core/src/header.c",
        'if (weight->offset != end) wrong(r, "weights");',
        'if (weight->offset > end) wrong(r, "weights");',
        ("tests/neocpu/bundle/test_native_crafted.py",),
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
        "core/src/header.c",
        "header->repeats[slice->repeat].limit > room / slice->spec.bytes) {",
        "header->repeats[slice->repeat].limit > room) {",
        ("tests/neocpu/runtime/test_repeats.py",),
    ),
    Bug(
        "C: an inner loop is made once more behind the outer one",
        "core/src/session.c",
        "while (next < header->repeat_count && header->repeats[next].first < behind) ++next;",
        "++next;",
        ("tests/neocpu/runtime/test_repeats.py",),
    ),
    # 8 bits
    Bug(
        "fat file: every CPU computes in the same numbers",
        "neocpu/compiler.py",
        "options.computing(member.precision)",
        "options",
        ("tests/neocpu/cli/test_cli_compile_fat.py",),
    ),
    Bug(
        "calibration: a tuning budget is spent anew by every compilation",
        "neocpu/quantiser/compile_calibrated.py",
        "replace(self, options=self.options.after_tuning())",
        "self",
        ("tests/neocpu/quantiser/test_compile_calibrated.py",),
    ),
    Bug(
        "rows: what does not count takes part in a maximum",
        "neocpu/frontend/rows/fold_rows.py",
        "        inputs = [masked(step.graph, data, filler), *step.operands[1:]]",
        "        inputs = [data, *step.operands[1:]]",
        ("tests/neocpu/frontend/rows/test_selections.py",),
    ),
    Bug(
        "rows: rows that do not count are written by a scatter",
        "neocpu/frontend/rows/look_up_rows.py",
        "    if indices.axis is None:\n        return indices\n    kind",
        "    if indices.axis is None or indices.rank:\n        return indices\n    kind",
        ("tests/neocpu/frontend/rows/test_selections.py",),
    ),
    Bug(
        "rows: rows of several tensors are joined with what does not count between them",
        "neocpu/frontend/rows/move_rows.py",
        "            if gap == Extent(0):",
        "            if gap.most > 0:",
        ("tests/neocpu/frontend/rows/test_selections.py",),
    ),
    Bug(
        "quantiser: layers of selected rows are quantised too",
        "neocpu/frontend/rows/bound_rows.py",
        "for each in (node, *inner)) or found & read:",
        "for each in (node, *inner)):",
        ("tests/neocpu/quantiser/test_quantise.py",),
    ),
    Bug(
        "convolutions: what signed products take from unsigned data is not given back",
        "schedules/convolutions/dot_products/dot_instructions.py",
        "return sums - tirx.call_llvm_pure_intrin(sums.ty.dtype, unit.intrinsic, zero, taps, data)",
        "return sums",
        (f"{_CONV}dot.py", "tests/emulated/test_emulated_kernels.py"),
    ),
    Bug(
        "convolutions: LLVM unrolls short loops",
        "schedules/convolutions/dot_products/dot_tiling.py",
        "MAX_UNROLLED_PRODUCTS = 256",
        "MAX_UNROLLED_PRODUCTS = 0",
        ("tests/hot_loops/test_dot_loops.py",),
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
        "import: float32 holds sums of any size",
        "neocpu/frontend/quantised/integer_products.py",
        "* _LARGEST < _WHOLE_BELOW",
        "* 0 < _WHOLE_BELOW",
        ("tests/neocpu/frontend/test_quantised_models.py",),
    ),
    Bug(
        "planning: errors of weights in bfloat16 add up",
        "neocpu/planning/bfloat16_forms.py",
        "helps = (error * total > 0)",
        "helps = (error * total < 0)",
        ("tests/neocpu/planning/test_bfloat16_forms.py",),
    ),
    # Serving
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
