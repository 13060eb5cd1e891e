#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "fields.h"
#include "memory.h"
#include "output_places.h"
#include "program.h"
#include "threads.h"

static neocpu_status make_memory(nc_session *session) {
  const size_t count = nc_program_tensor_count(session->program);
  if (session->tensors != NULL) return NEOCPU_OK;
  session->tensors = calloc(count + 1, sizeof *session->tensors);
  return session->tensors == NULL ? nc_memory_missing(count * sizeof *session->tensors) : NEOCPU_OK;
}

static nc_tensor describe(void *data, const neocpu_spec *spec) {
  nc_tensor tensor = {.data = data, .device_type = NC_CPU, .rank = (int32_t)spec->rank,
                      .lanes = 1, .shape = spec->shape};
  nc_dtype(spec->dtype, &tensor.code, &tensor.bits);
  return tensor;
}

static char *find_weight(nc_weights weights, size_t offset) {
  return offset < weights.size ? weights.stored + offset : weights.made + (offset - weights.size);
}

static void describe_memory(nc_session *session, nc_weights weights) {
  const nc_program *program = session->program;
  char *arena = session->shared->arena;
  nc_tensor *tensor = session->tensors;
  for (size_t i = 0; i < program->input_count; ++i) *tensor++ = describe(NULL, &program->inputs[i]);
  for (size_t i = 0; i < program->weight_count; ++i) {
    const nc_placement *weight = &program->weights[i];
    *tensor++ = describe(find_weight(weights, weight->offset), &weight->spec);
  }
  for (size_t i = 0; i < program->activation_count; ++i) {
    *tensor++ = describe(arena + program->activations[i].offset, &program->activations[i].spec);
  }
  for (size_t i = 0; i < program->extent_count; ++i) {
    *tensor++ = describe(NULL, &program->extents[i]);
  }
  for (size_t i = 0; i < program->slice_count; ++i) {
    *tensor++ = describe(NULL, &program->slices[i].spec);
  }
}

neocpu_status nc_session_start(nc_session *session, nc_weights weights, const char *path) {
  neocpu_status status = make_memory(session);
  if (status != NEOCPU_OK) return status;
  describe_memory(session, weights);
  status = nc_program_prepare(session, path);
  return status == NEOCPU_OK ? nc_find_moves(session) : status;
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
  for (size_t i = 0; i < session->program->output_count; ++i) {
    if (overlap(input, &outputs[i])) return 0;
  }
  return 1;
}

static neocpu_status stage(nc_session *session, size_t index, const neocpu_input *input) {
  nc_staging *buffer = &session->shared->staging[index];
  if (buffer->data == NULL) {
    buffer->data = aligned_alloc(NC_ALIGN, (buffer->size + NC_ALIGN - 1) / NC_ALIGN * NC_ALIGN);
    if (buffer->data == NULL) return nc_memory_missing(buffer->size);
  }
  nc_pool_copy(session->shared->pool, buffer->data, input->data, input->bytes);
  session->tensors[index].data = buffer->data;
  return NEOCPU_OK;
}

static int call_kernel(const nc_call *call) {
  nc_value result;
  return call->kernel->function(NULL, call->arguments, (int32_t)call->kernel->count, &result);
}

static int make_call(const nc_session *session, const nc_call *call) {
  const nc_interception *other = &session->shared->interception;
  if (other->call != NULL) return other->call(other->data, call->kernel, call->arguments);
  return call_kernel(call);
}

/* A number of calls of a session, from the first one on. */
typedef struct batch {
  const nc_session *session;
  size_t first, count;
} batch;

static int call_as_task(int task, nc_parallel *parallel, void *data) {
  (void)task, (void)parallel;
  return call_kernel(data);
}

/* Make one call of a batch. Beside others, a call without a loop, or with several, is one task. */
static int call_one(void *data, size_t number) {
  const batch *all = data;
  const size_t index = all->first + number;
  const nc_session *session = all->session;
  nc_call *call = &session->calls[index];
  nc_trace *trace = session->shared->trace;
  nc_pool_expect(session->shared->pool, call->tasks, call->kernel->launch_count);
  if (trace != NULL) {
    nc_trace_begin_call(trace, (uint32_t)(session->first_call + index), call->kernel->name);
  }
  if (all->count > 1 && call->kernel->launch_count != 1) {
    return nc_backend_launch(call_as_task, call, 1);
  }
  return make_call(session, call);
}

/* Make the calls of a batch, or a single one. */
static neocpu_status call_batch(const nc_session *session, size_t first, size_t count) {
  batch all = {session, first, count};
  nc_trace *trace = session->shared->trace;
  const uint64_t began = trace == NULL ? 0 : nc_now();
  nc_pool *pool = session->shared->pool;
  const int failed = count == 1 ? call_one(&all, 0)
                                : nc_pool_call_batch(pool, call_one, &all, count);
  for (size_t i = first; i < first + count && trace != NULL; ++i) {
    nc_trace_end_call(trace, (uint32_t)(session->first_call + i), session->calls[i].kernel->name,
                      began);
  }
  if (!failed) return NEOCPU_OK;
  return nc_fail(NEOCPU_FAILURE, "kernel '%s' failed: out of memory",
                 session->calls[first].kernel->name);
}

/* The number of calls in the batch that begins with one. */
static size_t batch_size(const nc_session *session, size_t first) {
  const size_t count = session->calls[first].batch;
  const int single = nc_pool_size(session->shared->pool) == 1 ||
                    session->shared->interception.call != NULL;
  return single || count == 0 ? 1 : count;
}

static int is_true(const nc_session *session, uint32_t tensor) {
  return *(const char *)session->tensors[tensor].data != 0;
}

/* The number of times that the calls of a repeat are to be made. */
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

/* Have a repeat's slices, and its index, be those of one of its turns. */
static void select_slices(nc_session *session, size_t index, size_t time) {
  const nc_program *program = session->program;
  const nc_repeat *repeat = &program->repeats[index];
  nc_tensor *slices = session->tensors + nc_program_tensor_count(program) - program->slice_count;
  for (size_t i = 0; i < program->slice_count; ++i) {
    const nc_slice *slice = &program->slices[i];
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
  const nc_repeat *repeat = &session->program->repeats[index];
  size_t times;
  neocpu_status status = count_times(session, repeat, &times);
  for (size_t i = 0; i < times && status == NEOCPU_OK; ++i) {
    select_slices(session, index, i);
    status = make_calls(session, repeat->first, repeat->end, index + 1);
    if (repeat->condition != NC_NONE && !is_true(session, repeat->condition)) break;
  }
  return status;
}

/* Make the calls from `first` to before `end`; `next` is the first repeat that may be among them. */
static neocpu_status make_calls(nc_session *session, size_t first, size_t end, size_t next) {
  const nc_program *program = session->program;
  neocpu_status status = NEOCPU_OK;
  for (size_t i = first; i < end && status == NEOCPU_OK;) {
    if (next < program->repeat_count && program->repeats[next].first == i) {
      const size_t behind = program->repeats[next].end;
      status = repeat_calls(session, next);
      while (next < program->repeat_count && program->repeats[next].first < behind) ++next;
      i = behind;
    } else {
      const size_t count = batch_size(session, i);
      status = call_batch(session, i, count);
      i += count;
    }
  }
  return status;
}

/* The number of an output's rows that count in this run. */
static neocpu_status count_rows(const nc_session *session, size_t index, size_t *rows) {
  const nc_program *program = session->program;
  const neocpu_spec *spec = &program->outputs[index];
  *rows = spec->rank > 0 ? (size_t)spec->shape[0] : 1;
  if (program->row_counts[index] == 0) return NEOCPU_OK;
  int64_t count;
  memcpy(&count, session->tensors[program->returns[program->row_counts[index]]].data, sizeof count);
  if (count < 0 || count > spec->shape[0]) {
    return nc_fail(NEOCPU_ARTIFACT, "output '%s': the model counted %lld rows of %lld", spec->name,
                   (long long)count, (long long)spec->shape[0]);
  }
  *rows = (size_t)count;
  return NEOCPU_OK;
}

static neocpu_status copy_outputs(const nc_session *session, neocpu_output *outputs) {
  const nc_program *program = session->program;
  for (size_t i = 0; i < program->output_count; ++i) {
    const neocpu_spec *spec = &program->outputs[i];
    const neocpu_status status = count_rows(session, i, &outputs[i].rows);
    if (status != NEOCPU_OK) return status;
    size_t bytes = spec->bytes;
    if (spec->bounded && bytes > 0) bytes = bytes / (size_t)spec->shape[0] * outputs[i].rows;
    const void *data = session->tensors[program->returns[i]].data;
    if (bytes == 0 || data == outputs[i].data) continue;
    nc_pool_copy(session->shared->pool, outputs[i].data, data, bytes);
  }
  return NEOCPU_OK;
}

static neocpu_status run(nc_session *session, const neocpu_input *inputs, neocpu_output *outputs) {
  if (session->shares_loops) nc_pool_rouse(session->shared->pool);
  for (size_t i = 0; i < session->program->input_count; ++i) {
    session->tensors[i].data = (void *)inputs[i].data; /* kernels only read inputs */
    if (usable(session, &inputs[i], outputs)) continue;
    const neocpu_status status = stage(session, i, &inputs[i]);
    if (status != NEOCPU_OK) return status;
  }
  nc_place_outputs(session, outputs);
  const neocpu_status status = make_calls(session, 0, session->program->call_count, 0);
  return status == NEOCPU_OK ? copy_outputs(session, outputs) : status;
}

neocpu_status nc_session_run(nc_session *session, const neocpu_input *inputs,
                             neocpu_output *outputs) {
  nc_trace *trace = session->shared->trace;
  if (trace == NULL) return run(session, inputs, outputs);
  nc_pool_trace(session->shared->pool, trace);
  nc_trace_begin_run(trace);
  const neocpu_status status = run(session, inputs, outputs);
  nc_trace_end_run(trace);
  return status;
}

void nc_session_free(nc_session *session) {
  free(session->moves);
  free(session->tensors);
  free(session->calls);
  free(session->arguments);
  free(session->tasks);
  *session = (nc_session){0};
}
