#include "kernel_sizes.h"

enum { MAX_FACTORS = 32 /* of a tensor */ };

const uint32_t *nc_factors_next(const uint32_t *factors) { return factors + 1 + *factors; }

int nc_factors_find(const nc_sized_kernel_table *table, const uint32_t **starts) {
  uint64_t used = 0;
  for (uint64_t i = 0; i < table->table.count; ++i) {
    starts[i] = table->factors + used;
    for (uint32_t j = 0; j < table->table.kernels[i].count; ++j) {
      if (used == table->factor_count) return 0;
      const uint64_t count = table->factors[used];
      if (count > MAX_FACTORS || count >= table->factor_count - used) return 0;
      used += 1 + count;
    }
  }
  return used == table->factor_count;
}

int nc_kernel_takes_rank(const nc_kernel *kernel, const uint32_t *factors, size_t rank) {
  size_t most = 0; /* extents that are named */
  if (factors == NULL || kernel->count == 0) return 1;
  const size_t own = factors[0] == 1 ? (size_t)factors[1] + 1 : 0;
  for (uint32_t i = 0; i < kernel->count; ++i, factors = nc_factors_next(factors)) {
    for (uint32_t j = 1; j <= factors[0]; ++j) {
      if (factors[j] >= most) most = (size_t)factors[j] + 1;
    }
  }
  return most == 0 || (own == most && rank == own);
}

int nc_kernel_size_is(uint64_t size, const uint32_t *factors, const int64_t *extents,
                      size_t bytes) {
  if (factors == NULL || size == 0) return size == bytes; /* extents themselves may be negative */
  for (uint32_t i = 1; i <= factors[0]; ++i) {
    const int64_t extent = extents[factors[i]];
    if (extent < 0 || __builtin_mul_overflow(size, (uint64_t)extent, &size)) return 0;
  }
  return size == bytes;
}
