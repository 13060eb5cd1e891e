/* Arrays in numpy's .npy files. */
#ifndef NEOCPU_NPY_H_
#define NEOCPU_NPY_H_

#include "neocpu.h"

enum { NPY_MAX_RANK = 32 };

/* Write the extents of an array, NPY_MAX_RANK at most, and how many there are. On failure return 0 and
 * write one line of at most `size` bytes to `problem`. */
int npy_shape(const char *path, int64_t *shape, size_t *rank, char *problem, size_t size);

/* The bytes of an element of a specification's dtype. */
size_t npy_element(const char *dtype);

/* Read an array that must be what the specification says; `data` is then aligned memory to be freed
 * by free(). On failure return 0 and write one line of at most `size` bytes to `problem`. */
int npy_read(const char *path, const neocpu_spec *spec, void **data, char *problem, size_t size);

/* Write an array of a specification's dtype and shape, except for the first `rows` of it. */
int npy_write(const char *path, const neocpu_spec *spec, size_t rows, const void *data,
              char *problem, size_t size);

#endif
