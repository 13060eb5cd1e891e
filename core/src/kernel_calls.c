#include "kernel_calls.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "features.h"
#include "tensor.h"
#include "threads.h"

/* The arguments of the calls. */
typedef struct prepared {
  nc_tensor *tensors;
  nc_value *values;
  uint32_t *tasks;
} prepared;

static int prepare(const nc_pool *pool, const nc_kernel_calls *calls, prepared *made) {
  made->tensors = calloc(calls->argument_count + 1, sizeof *made->tensors);
  made->values = calloc(calls->argument_count + 1, sizeof *made->values);
  made->tasks = calloc(calls->launch_count + 1, sizeof *made->tasks);
  if (made->tensors == NULL || made->values == NULL || made->tasks == NULL) return 0;
  for (size_t i = 0; i < calls->argument_count; ++i) {
    const nc_argument *argument = &calls->arguments[i];
    made->tensors[i] = (nc_tensor){.device_type = NC_CPU, .rank = argument->rank,
                                   .code = argument->code, .bits = argument->bits, .lanes = 1,
                                   .shape = argument->shape};
    made->values[i] = (nc_value){.kind = NC_TENSOR, .as.pointer = &made->tensors[i]};
  }
  for (size_t i = 0; i < calls->launch_count; ++i) {
    made->tasks[i] = nc_pool_tasks(calls->launches[i], nc_pool_size(pool));
  }
  return 1;
}

static void dispose(prepared *made) {
  free(made->tensors);
  free(made->values);
  free(made->tasks);
}

static int call(nc_pool *pool, const nc_kernel_calls *calls, const prepared *made, size_t number) {
  nc_value result = {0};
  for (size_t i = 0; i < calls->argument_count; ++i) {
    const nc_argument *argument = &calls->arguments[i];
    made->tensors[i].data = (char *)argument->data + number % argument->places * argument->stride;
  }
  nc_pool_expect(pool, made->tasks, (uint32_t)calls->launch_count);
  return calls->function(calls->self, made->values, (int32_t)calls->argument_count, &result);
}

neocpu_status neocpu_call_kernel(neocpu_pool *pool, const nc_kernel_calls *calls, size_t first,
                                 size_t count, double *seconds) {
  prepared made;
  if (!prepare(pool, calls, &made)) {
    dispose(&made);
    return nc_fail(NEOCPU_FAILURE, "out of memory for the arguments of a kernel");
  }
  neocpu_permit_tiles();
  int failed = 0;
  nc_pool_enter(pool);
  nc_pool_rouse(pool);
  const uint64_t began = nc_now();
  for (size_t i = first; i < first + count && !failed; ++i) failed = call(pool, calls, &made, i);
  *seconds = 1e-9 * (double)(nc_now() - began);
  nc_pool_leave(pool);
  dispose(&made);
  return failed ? nc_fail(NEOCPU_FAILURE, "the kernel failed: out of memory") : NEOCPU_OK;
}

static void lend(void **variable, void (*function)(void)) {
  if (variable != NULL) memcpy(variable, &function, sizeof function);
}

void neocpu_lend_backend(void **launch, void **allocate, void **release) {
  lend(launch, (void (*)(void))nc_backend_launch);
  lend(allocate, (void (*)(void))nc_backend_allocate);
  lend(release, (void (*)(void))nc_backend_release);
}
