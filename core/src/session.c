#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "memory.h"
#include "program.h"

static neocpu_status make_memory(nc_session *session) {
  const nc_header *header = session->header;
  session->arena_size = header->arena_bytes;
  if (session->arena_size > 0) {
    session->arena = nc_memory_map(session->arena_size);
    if (session->arena == NULL) return nc_memory_missing(session->arena_size);
  }
  const size_t count = nc_header_tensor_count(header);
  session->tensors = calloc(count + 1, sizeof *session->tensors);
  session->staging = calloc(header->input_count + 1, sizeof *session->staging);
  session->places = calloc(header->output_count, sizeof *session->places);
  if (session->tensors == NULL || session->staging == NULL || session->places == NULL) {
    return nc_memory_missing(count * sizeof *session->tensors);
  }
  return NEOCPU_OK;
}

static nc_tensor describe(void *data, const neocpu_spec *spec) {
  nc_tensor tensor = {.data = data, .device_type = 1 /* kDLCPU */, .rank = (int32_t)spec->rank,
                      .lanes = 1, .shape = spec->shape};
  nc_dtype(spec->dtype, &tensor.code, &tensor.bits);
  return tensor;
}

static void describe_memory(nc_session *session, char *weights) {
  const nc_header *header = session->header;
  char *arena = session->arena;
  nc_tensor *tensor = session->tensors;
  for (size_t i = 0; i < header->input_count; ++i) *tensor++ = describe(NULL, &header->inputs[i]);
  for (size_t i = 0; i < header->weight_count; ++i) {
    *tensor++ = describe(weights + header->weights[i].offset, &header->weights[i].spec);
  }
  for (size_t i = 0; i < header->activation_count; ++i) {
    *tensor++ = describe(arena + header->activations[i].offset, &header->activations[i].spec);
  }
  for (size_t i = 0; i < header->slice_count; ++i) {
    *tensor++ = describe(NULL, &header->slices[i].spec);
  }
}

neocpu_status nc_session_start(nc_session *session, const nc_source *source, nc_pool *pool) {
  const nc_artifact *artifact = &source->artifact;
  const char *path = artifact->where;
  session->header = &artifact->header;
  session->pool = pool;
  neocpu_status status = make_memory(session);
  if (status != NEOCPU_OK) return status;
  describe_memory(session, nc_source_weights(source));
  status = nc_code_load(path, artifact->code, artifact->code_size, &session->code);
  if (status == NEOCPU_OK) status = nc_program_prepare(session, path);
  for (size_t i = 0; status == NEOCPU_OK && i < session->header->output_count; ++i) {
    const nc_tensor *tensor = &session->tensors[session->header->returns[i]];
    session->places[i] = nc_program_is_apart(session, i) ? tensor->data : NULL;
  }
  return status;
}

static int overlap(const neocpu_input *input, const neocpu_output *output) {
  const uintptr_t a = (uintptr_t)input->data, b = (uintptr_t)output->data;
  return a < b + output->bytes && b < a + input->bytes;
}

/* Whether a run may read the input where it lies: aligned, and not where an output goes (which may
 * be that very input). */
static int usable(const nc_session *session, const neocpu_input *input,
                  const neocpu_output *outputs) {
  if ((uintptr_t)input->data % NC_ARGUMENT_ALIGN != 0) return 0;
  for (size_t i = 0; i < session->header->output_count; ++i) {
    if (overlap(input, &outputs[i])) return 0;
  }
  return 1;
}

static neocpu_status stage(nc_session *session, size_t index, const neocpu_input *input) {
  void **buffer = &session->staging[index];
  if (*buffer == NULL) {
    *buffer = aligned_alloc(NC_ALIGN, (input->bytes + NC_ALIGN - 1) / NC_ALIGN * NC_ALIGN);
    if (*buffer == NULL) return nc_memory_missing(input->bytes);
  }
  nc_pool_copy(session->pool, *buffer, input->data, input->bytes);
  session->tensors[index].data = *buffer;
  return NEOCPU_OK;
}

/* Have outputs computed where the caller wants them, if kernels can write there. */
static void place_outputs(nc_session *session, const neocpu_output *outputs) {
  for (size_t i = 0; i < session->header->output_count; ++i) {
    if (session->places[i] == NULL) continue;
    const int aligned = (uintptr_t)outputs[i].data % NC_ARGUMENT_ALIGN == 0;
    session->tensors[session->header->returns[i]].data =
        aligned ? outputs[i].data : session->places[i];
  }
}

static int make_call(const nc_session *session, const nc_call *call) {
  nc_value result;
  const nc_interception *other = &session->interception;
  if (other->call != NULL) return other->call(other->data, call->kernel, call->arguments);
  return call->kernel->function(NULL, call->arguments, (int32_t)call->kernel->count, &result);
}

static int make_traced_call(const nc_session *session, size_t index) {
  const nc_call *call = &session->calls[index];
  nc_trace_begin_call(session->trace, (uint32_t)index, session->header->calls[index].kernel);
  const int status = make_call(session, call);
  nc_trace_end_call(session->trace);
  return status;
}

static neocpu_status make_one(const nc_session *session, size_t index) {
  const nc_call *call = &session->calls[index];
  nc_pool_expect(session->pool, call->tasks, call->kernel->launch_count);
  const int traced = session->trace != NULL;
  if ((traced ? make_traced_call(session, index) : make_call(session, call)) == 0) return NEOCPU_OK;
  return nc_fail(NEOCPU_FAILURE, "kernel '%s' failed: out of memory", call->kernel->name);
}

static int is_true(const nc_session *session, uint32_t tensor) {
  return *(const char *)session->tensors[tensor].data != 0;
}

/* How often the calls of a repeat are to be made. */
static neocpu_status count_times(const nc_session *session, const nc_repeat *repeat,
                                 size_t *times) {
  *times = repeat->limit;
  if (repeat->unless != NC_NONE && is_true(session, repeat->unless)) *times = 0;
  if (repeat->count == NC_NONE || *times == 0) return NEOCPU_OK;
  const nc_tensor *tensor = &session->tensors[repeat->count];
  int64_t count = is_true(session, repeat->count); /* of a bool */
  if (tensor->bits == 64) memcpy(&count, tensor->data, sizeof count);
  if (count > (int64_t)repeat->limit) {
    return nc_fail(NEOCPU_FAILURE, "the model would repeat calls %zu to %zu %lld times, of at most "
                   "%zu", repeat->first, repeat->end - 1, (long long)count, repeat->limit);
  }
  *times = count < 0 ? 0 : (size_t)count;
  return NEOCPU_OK;
}

/* Give a repeat's slices, and its index, what is theirs at a time. */
static void move_on(nc_session *session, size_t index, size_t time) {
  const nc_header *header = session->header;
  const nc_repeat *repeat = &header->repeats[index];
  nc_tensor *slices = session->tensors + nc_header_tensor_count(header) - header->slice_count;
  for (size_t i = 0; i < header->slice_count; ++i) {
    const nc_slice *slice = &header->slices[i];
    if (slice->repeat != index) continue;
    const size_t part = slice->backward ? repeat->limit - 1 - time : time;
    slices[i].data = (char *)session->tensors[slice->tensor].data + part * slice->spec.bytes;
  }
  const int64_t number = (int64_t)time;
  if (repeat->index != NC_NONE) {
    memcpy(session->tensors[repeat->index].data, &number, sizeof number);
  }
}

static neocpu_status make_calls(nc_session *session, size_t first, size_t end, size_t next);

static neocpu_status repeat_calls(nc_session *session, size_t index) {
  const nc_repeat *repeat = &session->header->repeats[index];
  size_t times;
  neocpu_status status = count_times(session, repeat, &times);
  for (size_t i = 0; i < times && status == NEOCPU_OK; ++i) {
    move_on(session, index, i);
    status = make_calls(session, repeat->first, repeat->end, index + 1);
    if (repeat->condition != NC_NONE && !is_true(session, repeat->condition)) break;
  }
  return status;
}

/* Make the calls from `first` to before `end`; `next` is the first repeat that may be among them. */
static neocpu_status make_calls(nc_session *session, size_t first, size_t end, size_t next) {
  const nc_header *header = session->header;
  neocpu_status status = NEOCPU_OK;
  for (size_t i = first; i < end && status == NEOCPU_OK;) {
    if (next < header->repeat_count && header->repeats[next].first == i) {
      const size_t behind = header->repeats[next].end;
      status = repeat_calls(session, next);
      while (next < header->repeat_count && header->repeats[next].first < behind) ++next;
      i = behind;
    } else {
      status = make_one(session, i++);
    }
  }
  return status;
}

/* How many rows of an output count in this run. */
static neocpu_status count_rows(const nc_session *session, size_t index, size_t *rows) {
  const nc_header *header = session->header;
  const neocpu_spec *spec = &header->outputs[index];
  *rows = spec->rank > 0 ? (size_t)spec->shape[0] : 1;
  if (header->row_counts[index] == 0) return NEOCPU_OK;
  int64_t count;
  memcpy(&count, session->tensors[header->returns[header->row_counts[index]]].data, sizeof count);
  if (count < 0 || count > spec->shape[0]) {
    return nc_fail(NEOCPU_ARTIFACT, "output '%s': the model counted %lld rows of %lld", spec->name,
                   (long long)count, (long long)spec->shape[0]);
  }
  *rows = (size_t)count;
  return NEOCPU_OK;
}

static neocpu_status copy_outputs(const nc_session *session, neocpu_output *outputs) {
  const nc_header *header = session->header;
  for (size_t i = 0; i < header->output_count; ++i) {
    const neocpu_spec *spec = &header->outputs[i];
    const neocpu_status status = count_rows(session, i, &outputs[i].rows);
    if (status != NEOCPU_OK) return status;
    size_t bytes = spec->bytes;
    if (spec->bounded && bytes > 0) bytes = bytes / (size_t)spec->shape[0] * outputs[i].rows;
    const void *data = session->tensors[header->returns[i]].data;
    if (bytes > 0 && data != outputs[i].data) memcpy(outputs[i].data, data, bytes);
  }
  return NEOCPU_OK;
}

static neocpu_status run(nc_session *session, const neocpu_input *inputs, neocpu_output *outputs) {
  if (session->shares_loops) nc_pool_rouse(session->pool);
  for (size_t i = 0; i < session->header->input_count; ++i) {
    session->tensors[i].data = (void *)inputs[i].data; /* kernels only read inputs */
    if (usable(session, &inputs[i], outputs)) continue;
    const neocpu_status status = stage(session, i, &inputs[i]);
    if (status != NEOCPU_OK) return status;
  }
  place_outputs(session, outputs);
  const neocpu_status status = make_calls(session, 0, session->header->call_count, 0);
  return status == NEOCPU_OK ? copy_outputs(session, outputs) : status;
}

neocpu_status nc_session_run(nc_session *session, const neocpu_input *inputs,
                             neocpu_output *outputs) {
  if (session->trace == NULL) return run(session, inputs, outputs);
  nc_pool_trace(session->pool, session->trace);
  nc_trace_begin_run(session->trace);
  const neocpu_status status = run(session, inputs, outputs);
  nc_trace_end_run(session->trace);
  return status;
}

void nc_session_intercept(nc_session *session, const nc_interception *interception) {
  session->interception = *interception;
  nc_code_lend_workspaces(&session->code, interception->allocate, interception->release);
}

void nc_session_free(nc_session *session) {
  nc_code_unload(&session->code);
  for (size_t i = 0; session->staging != NULL && i < session->header->input_count; ++i) {
    free(session->staging[i]);
  }
  free(session->staging);
  free(session->places);
  free(session->tensors);
  free(session->calls);
  free(session->arguments);
  free(session->tasks);
  nc_memory_unmap(session->arena, session->arena_size);
  *session = (nc_session){0};
}
