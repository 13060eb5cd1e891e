/* What `nc_find_moves` says of programs without inputs and weights. */
#include "output_places.h"

#include <stdlib.h>

typedef struct described {
  size_t activations, calls, repeats, outputs;
  const size_t *offsets, *sizes;  /* of each activation */
  const size_t *counts, *results; /* of each call: how many tensors, and of those written */
  const uint32_t *tensors;        /* of all calls */
  const size_t *guarded;          /* of each repeat: its first call, the one behind, its limit */
  const uint32_t *returns;
} described;

/* Tell in `moved`, of each activation, with what output it moves and by how many bytes from the
 * output's start; return how many move. */
__attribute__((visibility("default")))
size_t find_moves(const described *d, size_t *moved, size_t *offsets) {
  nc_placement *activations = calloc(d->activations + 1, sizeof *activations);
  nc_tensor *described = calloc(d->activations + 1, sizeof *described);
  nc_call_spec *specs = calloc(d->calls + 1, sizeof *specs);
  nc_call *calls = calloc(d->calls + 1, sizeof *calls);
  nc_kernel *kernels = calloc(d->calls + 1, sizeof *kernels);
  nc_repeat *repeats = calloc(d->repeats + 1, sizeof *repeats);
  neocpu_spec *outputs = calloc(d->outputs + 1, sizeof *outputs);
  for (size_t i = 0; i < d->activations; ++i) {
    activations[i].offset = d->offsets[i];
    activations[i].spec.bytes = d->sizes[i];
  }
  const uint32_t *tensors = d->tensors;
  for (size_t i = 0; i < d->calls; ++i) {
    specs[i] = (nc_call_spec){.tensors = (uint32_t *)tensors, .count = d->counts[i]};
    tensors += d->counts[i];
    kernels[i].count = d->counts[i];
    kernels[i].results = d->results[i];
    calls[i].kernel = &kernels[i];
  }
  for (size_t i = 0; i < d->repeats; ++i) {
    repeats[i] = (nc_repeat){.first = d->guarded[3 * i], .end = d->guarded[3 * i + 1],
                             .limit = d->guarded[3 * i + 2], .count = NC_NONE, .unless = NC_NONE,
                             .condition = NC_NONE, .index = NC_NONE};
  }
  const nc_program program = {
      .outputs = outputs, .output_count = d->outputs, .result_count = d->outputs,
      .activations = activations, .activation_count = d->activations, .calls = specs,
      .call_count = d->calls, .repeats = repeats, .repeat_count = d->repeats,
      .returns = (uint32_t *)d->returns};
  nc_session session = {.program = &program, .tensors = described, .calls = calls};
  if (nc_find_moves(&session) != NEOCPU_OK) abort();
  for (size_t i = 0; i < session.move_count; ++i) {
    moved[session.moves[i].tensor] = session.moves[i].output;
    offsets[session.moves[i].tensor] = session.moves[i].offset;
  }
  const size_t count = session.move_count;
  free(session.moves);
  free(activations), free(described), free(specs), free(calls), free(kernels), free(repeats);
  free(outputs);
  return count;
}
