/* Sizes that a call chooses, as the shapes of arrays in .npy files have them. */
#ifndef NEOCPU_NPY_SIZES_H_
#define NEOCPU_NPY_SIZES_H_

#include "neocpu.h"

/* Specifications of a model for some sizes. */
typedef struct npy_sizes {
  int64_t *sizes;
  neocpu_spec *inputs, *outputs;
  int64_t *extents; /* of all of them */
} npy_sizes;

/* Read the sizes off the files, one for each input. On failure return a status other than 0, and write
 * one line of at most `size` bytes to `problem`. Free with npy_sizes_free, also after a failure. */
neocpu_status npy_sizes_read(const neocpu_model *model, const char *const *files, npy_sizes *found,
                             char *problem, size_t size);

void npy_sizes_free(npy_sizes *found);

#endif
