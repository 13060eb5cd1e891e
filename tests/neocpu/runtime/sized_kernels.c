/* Kernels of any size as generated code has them, each of which is compiled alone: -DONE=name. */
#include <stddef.h>
#include <stdint.h>

#include "kernel_table.h"
#include "pool.h"
#include "tensor.h"

int __tvm_ffi_kernel(void *self, const nc_value *arguments, int32_t count, nc_value *result);

#define JOIN(a, b) a##b
#define IS(name) JOIN(IS_, name)
#define IS_scale 1
#define IS_pool 2
#define IS_total 3
#define IS_twice 4

static const nc_tensor *tensor(const nc_value *arguments, int place) {
  return arguments[place].as.pointer;
}

#if IS(ONE) == IS_scale
/* The variable that the runtime fills in. */
__attribute__((weak)) int (*__TVMBackendParallelLaunch)(nc_loop *, void *, int);

static int rows(int task, nc_parallel *parallel, void *data) {
  const nc_value *arguments = data;
  const int64_t *extents = tensor(arguments, 0)->shape, height = extents[0], width = extents[1];
  const float *x = tensor(arguments, 1)->data, *factors = tensor(arguments, 2)->data;
  float *y = tensor(arguments, 3)->data;
  for (int64_t row = task; row < 2 * height; row += parallel->tasks) {
    for (int64_t i = row * width; i < (row + 1) * width; ++i) y[i] = x[i] * factors[row / height];
  }
  return 0;
}

/* (height, width), x, factors, y: x with each of its two channels scaled */
int __tvm_ffi_kernel(void *self, const nc_value *arguments, int32_t count, nc_value *result) {
  (void)self, (void)count, (void)result;
  return __TVMBackendParallelLaunch(rows, (void *)arguments, 0);
}
#elif IS(ONE) == IS_pool
/* (height, width, rows, columns, anything), x, m, y: means of 2x2 pixels, plus those of m by row */
int __tvm_ffi_kernel(void *self, const nc_value *arguments, int32_t count, nc_value *result) {
  (void)self, (void)count, (void)result;
  const int64_t *extents = tensor(arguments, 0)->shape, height = extents[0], width = extents[1];
  const float *x = tensor(arguments, 1)->data, *m = tensor(arguments, 2)->data;
  float *y = tensor(arguments, 3)->data;
  for (int64_t channel = 0; channel < 2; ++channel) {
    for (int64_t row = 0; row < extents[2]; ++row) {
      for (int64_t column = 0; column < extents[3]; ++column) {
        const float *at = x + (channel * height + 2 * row) * width + 2 * column;
        *y++ = (at[0] + at[1] + at[width] + at[width + 1]) / 4 + m[row];
      }
    }
  }
  return 0;
}
#elif IS(ONE) == IS_total
/* (rows, columns), x, d, y: the sums of the two channels of x, plus d */
int __tvm_ffi_kernel(void *self, const nc_value *arguments, int32_t count, nc_value *result) {
  (void)self, (void)count, (void)result;
  const int64_t *extents = tensor(arguments, 0)->shape, size = extents[0] * extents[1];
  const float *x = tensor(arguments, 1)->data, *d = tensor(arguments, 2)->data;
  float *y = tensor(arguments, 3)->data;
  for (int64_t channel = 0; channel < 2; ++channel) {
    y[channel] = d[channel];
    for (int64_t i = 0; i < size; ++i) y[channel] += *x++;
  }
  return 0;
}
#else
/* x, y: two elements, doubled */
int __tvm_ffi_kernel(void *self, const nc_value *arguments, int32_t count, nc_value *result) {
  (void)self, (void)count, (void)result;
  const float *x = tensor(arguments, 0)->data;
  float *y = tensor(arguments, 1)->data;
  for (int i = 0; i < 2; ++i) y[i] = 2 * x[i];
  return 0;
}
#endif
