/* Kernels whose calls somebody else makes: a guard, which has them run on copies of their tensors
 * between inaccessible pages. */
#ifndef NEOCPU_INTERCEPTION_H_
#define NEOCPU_INTERCEPTION_H_

#include "kernel_table.h"
#include "pool.h"

typedef struct nc_interception {
  /* Makes a call, on the thread that runs the model; returns nonzero if it failed. */
  int (*call)(void *data, const nc_kernel *kernel, const nc_value *arguments);
  void *data;
  /* Lend workspaces to kernels, on any thread. */
  nc_allocate *allocate;
  nc_release *release;
} nc_interception;

/* Have a model's kernels called so, between two of its runs. */
NEOCPU_API void neocpu_intercept(neocpu_model *model, const nc_interception *interception);

#endif
