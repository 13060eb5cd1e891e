/* The sizes of the tensors that kernels take. */
#ifndef NEOCPU_KERNEL_SIZES_H_
#define NEOCPU_KERNEL_SIZES_H_

#include <stddef.h>

#include "kernel_table.h"

/* Write where the factors of each kernel of a table begin; return whether they are as many words as
 * the table says, and no kernel has too many. */
int nc_factors_find(const nc_sized_kernel_table *table, const uint32_t **starts);

/* The factors of the next tensor of a kernel. */
const uint32_t *nc_factors_next(const uint32_t *factors);

/* Whether a kernel with these factors, or null, can be given a first tensor of this rank. */
int nc_kernel_takes_rank(const nc_kernel *kernel, const uint32_t *factors, size_t rank);

/* Whether a tensor of a kernel has so many bytes: `size` times the extents that its factors name. */
int nc_kernel_size_is(uint64_t size, const uint32_t *factors, const int64_t *extents, size_t bytes);

#endif
