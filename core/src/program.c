#include "program.h"

#include <stdlib.h>

#include "error.h"
#include "kernel_sizes.h"

typedef struct problem {
  const char *path;
  size_t call;
} problem;

static neocpu_status refuse(const problem *place, const char *kernel, const char *reason) {
  return nc_fail(NEOCPU_ARTIFACT,
                 "cannot run %s: header and code disagree: call %zu, of '%s', %s; compile the model "
                 "again with `neocpu compile`",
                 place->path, place->call, kernel, reason);
}

/* Whether two tensors have bytes in common; of slices, whether those that they are of do. */
static int overlap(const nc_session *session, uint32_t a, uint32_t b) {
  const nc_program *program = session->program;
  a = nc_program_whole(program, a);
  b = nc_program_whole(program, b);
  const char *one = session->tensors[a].data, *other = session->tensors[b].data;
  if (one == NULL || other == NULL) return 0; /* extents have no data */
  return one < other + nc_program_tensor(program, b)->bytes &&
         other < one + nc_program_tensor(program, a)->bytes;
}

/* Check the types of a call's tensors, and their sizes: of a kernel of any size, for its extents. */
static neocpu_status check_sizes(const nc_session *session, const nc_call_spec *call,
                                 const nc_kernel *kernel, const problem *place) {
  const nc_program *program = session->program;
  const uint32_t *factors = nc_code_factors(&session->shared->code, kernel);
  if (call->count == 0) return NEOCPU_OK;
  const neocpu_spec *first = nc_program_tensor(program, call->tensors[0]);
  if (!nc_kernel_takes_rank(kernel, factors, first->rank)) {
    return refuse(place, call->kernel, "has other extents than its kernel reads");
  }
  for (size_t i = 0; i < call->count; ++i) {
    const uint32_t tensor = call->tensors[i];
    const nc_tensor *described = &session->tensors[tensor];
    const size_t bytes = nc_program_tensor(program, tensor)->bytes;
    if (!nc_kernel_size_is(kernel->sizes[i], factors, first->shape, bytes) ||
        (described->code << 8 | described->bits) != kernel->types[i]) {
      return refuse(place, call->kernel, "has a tensor of another size or type");
    }
    if (factors != NULL) factors = nc_factors_next(factors);
  }
  return NEOCPU_OK;
}

static neocpu_status check(const nc_session *session, const nc_call_spec *call,
                           const nc_kernel *kernel, const problem *place) {
  const nc_program *program = session->program;
  if (kernel == NULL) return refuse(place, call->kernel, "which the code has not");
  if (call->count != kernel->count) return refuse(place, call->kernel, "which takes others");
  const neocpu_status status = check_sizes(session, call, kernel, place);
  if (status != NEOCPU_OK) return status;
  for (size_t i = kernel->count - kernel->results; i < call->count; ++i) {
    const uint32_t tensor = call->tensors[i];
    if (!nc_program_is_activation(program, tensor)) {
      return refuse(place, call->kernel, "writes an input or a weight");
    }
    for (size_t j = 0; j < call->count; ++j) {
      /* Inputs have no place yet: the arena never overlaps them. */
      if (j == i || nc_program_whole(program, call->tensors[j]) < program->input_count) continue;
      if (overlap(session, tensor, call->tensors[j])) {
        return refuse(place, call->kernel, "writes what it reads");
      }
    }
  }
  return NEOCPU_OK;
}

/* Whether a call writes what another one has. */
static int disturbs(const nc_session *session, size_t call, size_t other) {
  const nc_program *program = session->program;
  const nc_call_spec *one = &program->calls[call], *two = &program->calls[other];
  for (size_t i = one->count - session->calls[call].kernel->results; i < one->count; ++i) {
    for (size_t j = 0; j < two->count; ++j) {
      if (nc_program_whole(program, two->tensors[j]) >= program->input_count &&
          overlap(session, one->tensors[i], two->tensors[j])) {
        return 1;
      }
    }
  }
  return 0;
}

/* Have the calls of each launch made as a batch, if none disturbs another. */
static neocpu_status check_launches(nc_session *session, const char *path) {
  for (size_t i = 0; i < session->program->launch_count; ++i) {
    const nc_launch *launch = &session->program->launches[i];
    for (size_t j = launch->first; j < launch->first + launch->count; ++j) {
      for (size_t k = launch->first; k < launch->first + launch->count; ++k) {
        const problem place = {path, j};
        if (k != j && disturbs(session, j, k)) {
          return refuse(&place, session->calls[j].kernel->name, "writes what one beside it has");
        }
      }
    }
    session->calls[launch->first].batch = launch->count;
    session->shares_loops = 1;
  }
  return NEOCPU_OK;
}

/* Count what the calls need in all, and check them. */
static neocpu_status check_calls(nc_session *session, const char *path, size_t *arguments,
                                 size_t *tasks) {
  const nc_program *program = session->program;
  for (size_t i = 0; i < program->call_count; ++i) {
    const problem place = {path, i};
    const nc_call_spec *call = &program->calls[i];
    const nc_kernel *kernel = nc_code_kernel(&session->shared->code, call->kernel);
    const neocpu_status status = check(session, call, kernel, &place);
    if (status != NEOCPU_OK) return status;
    session->calls[i] = (nc_call){.kernel = kernel};
    *arguments += kernel->count;
    *tasks += kernel->launch_count;
  }
  return NEOCPU_OK;
}

/* The iterations of a kernel's loop, for its first tensor or null; 0 if they are unknown. */
static uint32_t iterations_of(uint32_t launches, const nc_tensor *first) {
  if (!(launches & NC_OF_EXTENT)) return launches;
  if (first == NULL) return 0;
  const uint32_t position = launches & ~NC_OF_EXTENT;
  if ((int32_t)position >= first->rank) return 0;
  const int64_t extent = first->shape[position];
  return extent > 0 && extent < NC_OF_EXTENT ? (uint32_t)extent : 0;
}

neocpu_status nc_program_prepare(nc_session *session, const char *path) {
  const nc_program *program = session->program;
  const int threads = nc_pool_size(session->shared->pool);
  size_t argument_count = 0, task_count = 0;
  session->shares_loops = 0;
  if (session->calls == NULL) {
    session->calls = calloc(program->call_count + 1, sizeof *session->calls);
  }
  if (session->calls == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory for the calls");
  neocpu_status status = check_calls(session, path, &argument_count, &task_count);
  if (status == NEOCPU_OK) status = check_launches(session, path);
  if (status != NEOCPU_OK) return status;
  if (session->arguments == NULL) {
    session->arguments = calloc(argument_count + 1, sizeof *session->arguments);
  }
  if (session->tasks == NULL) session->tasks = calloc(task_count + 1, sizeof *session->tasks);
  if (session->arguments == NULL || session->tasks == NULL) {
    return nc_fail(NEOCPU_FAILURE, "out of memory for the calls");
  }
  nc_value *argument = session->arguments;
  uint32_t *task = session->tasks;
  for (size_t i = 0; i < program->call_count; ++i) {
    const nc_kernel *kernel = session->calls[i].kernel;
    session->calls[i].arguments = argument;
    session->calls[i].tasks = task;
    for (size_t j = 0; j < kernel->count; ++j) {
      nc_tensor *tensor = &session->tensors[program->calls[i].tensors[j]];
      *argument++ = (nc_value){.kind = NC_TENSOR, .as.pointer = tensor};
    }
    const nc_tensor *first =
        kernel->count > 0 ? &session->tensors[program->calls[i].tensors[0]] : NULL;
    for (size_t j = 0; j < kernel->launch_count; ++j) {
      *task = nc_pool_tasks(iterations_of(kernel->launches[j], first), threads);
      session->shares_loops |= *task++ > 1;
    }
  }
  return NEOCPU_OK;
}
