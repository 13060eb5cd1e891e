/* Linked into every library that is timed on a fleet's server, where nothing of ours is installed.

   Loading the library prepares the server's process: how many threads kernels use, and that a
   candidate that crashes or hangs ends the process with exit code 0. After any other code TVM's
   Python server ends its session but never listens again. */

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <sys/syscall.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

/* The candidate. */
int32_t __tvm_ffi_kernel(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result);

static void leave(int signal) {
  (void)signal;
  _exit(0);
}

__attribute__((constructor)) static void prepare(void) {
  static const int signals[] = {SIGALRM, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) signal(signals[i], leave);
#ifdef __x86_64__
  syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XFEATURE_XTILEDATA */);
#endif
  /* Read when the first kernel runs in this process. */
  setenv("TVM_NUM_THREADS", NEOCPU_THREADS, 1);
  setenv("TVM_BIND_THREADS", "0", 1);
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

/* run(the kernel's arguments, a stride for each, calls, turn): the seconds that many calls take.

   An argument with a stride is a pool of places so many bytes apart, of which each call takes the
   next one, beginning with number `turn`: memory is as cold as a network leaves it. */
int32_t __tvm_ffi_run(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
  const int32_t arguments = (count - 2) / 2;
  const int64_t calls = args[count - 2].v_int64;
  const size_t first = (size_t)args[count - 1].v_int64;
  TVMFFIAny own[arguments];
  DLTensor moving[arguments];
  for (int32_t i = 0; i < arguments; ++i) {
    moving[i] = *tensor(&args[i]);
    own[i].type_index = kTVMFFIDLTensorPtr;
    own[i].zero_padding = 0;
    own[i].v_ptr = &moving[i];
  }
  int32_t error = 0;
  struct timespec start, end;
  alarm(NEOCPU_SECONDS);
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (size_t turn = first; turn < first + (size_t)calls && !error; ++turn) {
    for (int32_t i = 0; i < arguments; ++i) {
      const size_t stride = (size_t)args[arguments + i].v_int64;
      const DLTensor *pool = tensor(&args[i]);
      if (stride) moving[i].data = (char *)pool->data + turn % (bytes(pool) / stride) * stride;
    }
    error = __tvm_ffi_kernel(self, own, arguments, result);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  alarm(0);
  if (error) return error;
  result->type_index = kTVMFFIFloat;
  result->v_float64 =
      (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
  return 0;
}
