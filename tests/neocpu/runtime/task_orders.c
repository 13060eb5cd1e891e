/* A runtime whose loops have their tasks done one after another in an order of the caller's choice:
 * what is linked in place of the pool's launches (-Wl,--wrap). */
#include <stdlib.h>

#include "pool.h"

/* 0: as they are numbered; 1: backwards; else the seed of a shuffle. */
__attribute__((visibility("default"))) unsigned task_order;

static const uint32_t *expected;
static uint32_t expected_count, launches;

/* The numbers below a count, in the order that is asked for; null: out of memory. */
static int *in_order(int count) {
  int *numbers = malloc(sizeof *numbers * (size_t)count);
  if (numbers == NULL) return NULL;
  unsigned seed = task_order;
  for (int i = 0; i < count; ++i) numbers[i] = task_order == 1 ? count - 1 - i : i;
  for (int i = count - 1; i > 0 && task_order > 1; --i) {
    const int other = rand_r(&seed) % (i + 1), number = numbers[i];
    numbers[i] = numbers[other], numbers[other] = number;
  }
  return numbers;
}

void __wrap_nc_pool_expect(nc_pool *pool, const uint32_t *tasks, uint32_t count) {
  (void)pool;
  expected = tasks, expected_count = count, launches = 0;
}

int __wrap_nc_backend_launch(nc_loop *loop, void *data, int tasks) {
  if (tasks <= 0) tasks = expected_count > 0 ? (int)expected[launches++ % expected_count] : 1;
  nc_parallel parallel = {NULL, tasks};
  int *numbers = in_order(tasks), status = numbers == NULL;
  for (int i = 0; i < tasks && !status; ++i) status = loop(numbers[i], &parallel, data);
  free(numbers);
  return status;
}

int __wrap_nc_pool_call_batch(nc_pool *pool, nc_call_one *call_one, void *data, size_t count) {
  (void)pool;
  int *numbers = in_order((int)count), status = numbers == NULL;
  for (size_t i = 0; i < count && !status; ++i) status = call_one(data, (size_t)numbers[i]);
  free(numbers);
  return status;
}
