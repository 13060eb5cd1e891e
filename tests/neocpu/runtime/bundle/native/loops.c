/* loops SEED: several threads have a pool share loops of all sizes, for a while. Every task is done
 * once, whoever does it, and noted once if it is to be; what fails is told; a loop in a loop and a
 * pool of one thread work too. Prints how many loops there were. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/pool.h"

enum { CALLERS = 3, RUNS = 60, LOOPS = 40, MAX_TASKS = 300 };

typedef struct loop {
  atomic_int done[MAX_TASKS];
  int tasks, fails, nested;
  unsigned seed;
} loop;

static nc_pool *pool;
static atomic_int loops;

static int inner(int task, nc_parallel *parallel, void *data) {
  (void)task, (void)parallel;
  atomic_fetch_add((atomic_int *)data, 1);
  return 0;
}

static int body(int task, nc_parallel *parallel, void *data) {
  loop *mine = data;
  if (parallel->tasks != mine->tasks || task < 0 || task >= mine->tasks) return -2;
  for (volatile unsigned i = 0; i < (mine->seed + (unsigned)task) % 97 * 20; ++i) {
  }
  char *scratch = nc_backend_allocate(1, 0, 1000 + (unsigned)task * 64, 2, 32);
  if (scratch == NULL) return -3;
  memset(scratch, task, 1000);
  atomic_int count = 0;
  if (mine->nested && (nc_backend_launch(inner, &count, 5) != 0 || count != 5)) return -4;
  atomic_fetch_add(&mine->done[task], 1);
  if (mine->fails && task == mine->tasks / 2) return -1; /* and its scratch memory is left */
  return nc_backend_release(1, 0, scratch) == 0 ? 0 : -5;
}

static int share(loop *mine) {
  for (int i = 0; i < mine->tasks; ++i) atomic_store(&mine->done[i], 0);
  const int status = nc_backend_launch(body, mine, 0);
  for (int i = 0; i < mine->tasks; ++i) {
    if (atomic_load(&mine->done[i]) != 1) return 0;
  }
  atomic_fetch_add(&loops, 1);
  return (status != 0) == mine->fails;
}

/* Whether so many tasks were noted, each once. */
static int noted(nc_trace *trace, size_t tasks) {
  const neocpu_event *events;
  size_t count;
  static _Thread_local char seen[LOOPS][MAX_TASKS];
  memset(seen, 0, sizeof seen);
  if (nc_trace_collect(trace, &events, &count) != NEOCPU_OK || count != tasks) return 0;
  for (size_t i = 0; i < count; ++i) {
    const neocpu_event *event = &events[i];
    if (event->begin > event->end || seen[event->loop][event->task]++ > 0) return 0;
  }
  return 1;
}

static void *call(void *number) {
  unsigned seed = (unsigned)(size_t)number;
  static _Thread_local loop mine;
  for (int run = 0; run < RUNS; ++run) {
    nc_trace *trace = NULL;
    size_t tasks_of_run = 0;
    if (run % 2 == 1 && nc_trace_make(nc_pool_size(pool), &trace) != NEOCPU_OK) return &mine;
    nc_pool_enter(pool);
    nc_pool_trace(pool, trace);
    for (int i = 0; i < LOOPS; ++i) {
      seed = seed * 1664525u + 1013904223u;
      mine.tasks = nc_pool_size(pool) == 1 ? 1 : 1 + (int)(seed >> 8) % MAX_TASKS;
      mine.fails = seed >> 4 & 1 && i % 8 == 0;
      mine.nested = i % 5 == 0 && trace == NULL;
      tasks_of_run += (size_t)mine.tasks;
      mine.seed = seed;
      const uint32_t tasks = (uint32_t)mine.tasks;
      nc_pool_expect(pool, &tasks, 1);
      if (!share(&mine)) {
        nc_pool_leave(pool);
        return &mine;
      }
    }
    nc_pool_leave(pool);
    const int right = trace == NULL || noted(trace, tasks_of_run);
    nc_trace_free(trace);
    if (!right) return &mine;
  }
  return NULL;
}

int main(int count, char **words) {
  pthread_t callers[CALLERS];
  const size_t seed = count > 1 ? strtoull(words[1], NULL, 10) : 0;
  /* Those of the last two count their tasks off in two crews and in three. */
  static const int sizes[] = {1, 2, 3, 4, 5, 9, 17};
  for (size_t n = 0; n < sizeof sizes / sizeof *sizes; ++n) {
    if (nc_pool_start(sizes[n], sizes[n] < 9 ? sizes[n] % 2 : 0, &pool) != NEOCPU_OK) return 1;
    for (size_t i = 0; i < CALLERS; ++i) {
      pthread_create(&callers[i], NULL, call, (void *)(seed + i));
    }
    void *wrong, *any = NULL;
    for (size_t i = 0; i < CALLERS; ++i) {
      pthread_join(callers[i], &wrong);
      if (wrong != NULL) any = wrong;
    }
    nc_pool_release(pool);
    if (any != NULL) return 2;
  }
  for (uint32_t threads = 1; threads <= 9; ++threads) {
    for (uint32_t iterations = 1; iterations < 3000; ++iterations) {
      const uint32_t tasks = nc_pool_tasks(iterations, (int)threads);
      const uint32_t step = (iterations + tasks - 1) / tasks;
      const uint32_t most = (tasks + threads - 1) / threads * step;
      /* Nobody has more than a tenth more than a fair share, or one iteration. */
      const uint32_t fair = (iterations + threads - 1) / threads;
      if (tasks < 1 || tasks > iterations || (most > fair + 1 && most * 10 > fair * 11 + 10)) {
        printf("%u iterations, %u threads: %u tasks\n", iterations, threads, tasks);
        return 3;
      }
    }
  }
  printf("%d\n", atomic_load(&loops));
  return 0;
}
