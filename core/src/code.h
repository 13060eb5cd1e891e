/* The code of an artifact, and its kernels by name. */
#ifndef NEOCPU_CODE_H_
#define NEOCPU_CODE_H_

#include "image.h"
#include "kernel_table.h"
#include "pool.h"

typedef struct nc_code {
  nc_image image;
  const nc_kernel_table *table;
  const uint32_t **factors; /* of each kernel of a table with kernels of any size; else null */
} nc_code;

/* Load code from memory, the very bytes whose digest was checked, and lend it the runtime's
 * functions. Each address in its table of kernels is checked against the segments: nothing that is
 * followed later leads out of the code. `path` is for messages. Free with nc_code_unload. */
neocpu_status nc_code_load(const char *path, const void *bytes, size_t size, nc_code *code);

/* Find a kernel by name; null if there is none. */
const nc_kernel *nc_code_kernel(const nc_code *code, const char *name);

/* The factors of a kernel (see nc_sized_kernel_table); null if the table has none. */
const uint32_t *nc_code_factors(const nc_code *code, const nc_kernel *kernel);

/* Have kernels take their workspaces from these functions from now on. */
void nc_code_lend_workspaces(const nc_code *code, nc_allocate *allocate, nc_release *release);

void nc_code_unload(nc_code *code);

#endif
