/* Calls of a single kernel on a pool, for measurements and tests: a model's session makes the same
 * calls in the same way. */
#ifndef NEOCPU_KERNEL_CALLS_H_
#define NEOCPU_KERNEL_CALLS_H_

#include <stddef.h>
#include <stdint.h>

#include "kernel_table.h"
#include "pool.h"

/* A tensor that a kernel takes. It lies at several places in turn where memory is to be as cold as
 * a network leaves it: each call takes the next place, and after the last one the first. */
typedef struct nc_argument {
  void *data; /* the first place */
  const int64_t *shape;
  int32_t rank;
  uint8_t code, bits;    /* DLPack's element type */
  size_t stride, places; /* bytes from one place to the next, and the number of places */
} nc_argument;

/* A kernel and its arguments. */
typedef struct nc_kernel_calls {
  nc_kernel_function *function;
  void *self; /* the first argument of the function */
  const nc_argument *arguments;
  size_t argument_count;
  const uint32_t *launches; /* see nc_kernel */
  size_t launch_count;
} nc_kernel_calls;

/* Make `count` calls, of which the first one takes place number `first` of each argument, and write
 * how many seconds they take. Kernels may use tile registers, if the system permits it. */
NEOCPU_API neocpu_status neocpu_call_kernel(neocpu_pool *pool, const nc_kernel_calls *calls,
                                            size_t first, size_t count, double *seconds);

/* Write the functions that a kernel's code takes from the runtime to its variables; a null pointer
 * stands for a variable that the code does not have. */
NEOCPU_API void neocpu_lend_backend(void **launch, void **allocate, void **release);

#endif
