/* Linked into every library that is timed on a fleet's server, where nothing of ours is installed.

   The candidate runs on a pool of threads of the library's own, which artifacts have too (core/).
   Loading it prepares the server's process: a candidate that
   crashes or hangs ends the process with exit code 0. After any other code TVM's Python server ends
   its session but never listens again. */

#include <signal.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include "cpus.h"
#include "kernel_calls.h"
#include "pool.h"

/* The candidate. */
int __tvm_ffi_kernel(void *self, const nc_value *arguments, int32_t count, nc_value *result);

/* Its variables for the runtime's functions, of those that it calls. */
extern void *__TVMBackendParallelLaunch __attribute__((weak));
extern void *__TVMBackendAllocWorkspace __attribute__((weak));
extern void *__TVMBackendFreeWorkspace __attribute__((weak));

static nc_pool *pool;

static void leave(int signal) {
  (void)signal;
  _exit(0);
}

__attribute__((constructor)) static void prepare(void) {
  static const int signals[] = {SIGALRM, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) signal(signals[i], leave);
}

/* Start the threads, unless they run, and have the candidate use them instead of TVM's. */
static neocpu_status start(void) {
  neocpu_lend_backend(&__TVMBackendParallelLaunch, &__TVMBackendAllocWorkspace,
                      &__TVMBackendFreeWorkspace);
  const int cpus = nc_allowed_cpus();
  return pool != NULL ? NEOCPU_OK
                      : nc_pool_start(NEOCPU_THREADS < cpus ? NEOCPU_THREADS : cpus, 0, &pool);
}

static DLTensor *tensor(const TVMFFIAny *value) {
  if (value->type_index == kTVMFFIDLTensorPtr) return (DLTensor *)value->v_ptr;
  return (DLTensor *)((char *)value->v_ptr + sizeof(TVMFFIObject));
}

static size_t bytes(const DLTensor *tensor) {
  size_t size = tensor->dtype.bits / 8;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) size *= (size_t)tensor->shape[axis];
  return size;
}

/* fill(tensor): floats in [-1, 1), none of them so small that arithmetic with it is slow. */
int32_t __tvm_ffi_fill(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
  (void)self, (void)count;
  const DLTensor *target = tensor(args);
  float *data = (float *)target->data;
  uint32_t state = 1;
  for (size_t i = 0; i < bytes(target) / sizeof *data; ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = (float)(int32_t)(state | 1) * (1.0f / 2147483648.0f);
  }
  result->type_index = kTVMFFINone;
  return 0;
}

/* run(the kernel's arguments, a stride for each, the iterations of each of its parallel loops, their
   number, calls, turn): the seconds that so many calls take.

   An argument with a stride is a pool of places so many bytes apart, of which each call takes the
   next one, beginning with number `turn`: memory is as cold as a network leaves it. */
int32_t __tvm_ffi_run(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
  const size_t loops = (size_t)args[count - 3].v_int64;
  const size_t arguments = ((size_t)count - 3 - loops) / 2;
  const TVMFFIAny *strides = args + arguments, *iterations = strides + arguments;
  nc_argument taken[arguments];
  uint32_t launches[loops + 1];
  for (size_t i = 0; i < arguments; ++i) {
    const DLTensor *given = tensor(&args[i]);
    const size_t stride = (size_t)strides[i].v_int64;
    taken[i] = (nc_argument){.data = given->data, .shape = given->shape, .rank = given->ndim,
                             .code = given->dtype.code, .bits = given->dtype.bits,
                             .stride = stride, .places = stride ? bytes(given) / stride : 1};
  }
  for (size_t i = 0; i < loops; ++i) launches[i] = (uint32_t)iterations[i].v_int64;
  const nc_kernel_calls calls = {.function = __tvm_ffi_kernel, .self = self, .arguments = taken,
                                 .argument_count = arguments, .launches = launches,
                                 .launch_count = loops};
  if (start() != NEOCPU_OK) return -1;
  alarm(NEOCPU_SECONDS);
  const neocpu_status status =
      neocpu_call_kernel(pool, &calls, (size_t)args[count - 1].v_int64,
                         (size_t)args[count - 2].v_int64, &result->v_float64);
  alarm(0);
  if (status != NEOCPU_OK) return -1;
  result->type_index = kTVMFFIFloat;
  return 0;
}

/* end(): end the threads that `run` has started. TVM's Python server never unloads the library. */
int32_t __tvm_ffi_end(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
  (void)self, (void)args, (void)count;
  nc_pool_release(pool);
  pool = NULL;
  result->type_index = kTVMFFINone;
  return 0;
}
