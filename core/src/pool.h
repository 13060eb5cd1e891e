/* Threads that share the parallel loops of kernels.
 *
 * A run belongs to one calling thread, which is the pool's first; its others wait busily within one,
 * and sleep between runs, unless the next one begins at once. A loop is cut into tasks, of which
 * every thread has a share of its own, so that the same rows stay in the same core's cache from one
 * kernel to the next. Whoever is done takes what others have not begun: a thread that the system
 * gives no time holds up one task, not its share. (NeoCPU, section 3.1.2, has static shares alone.) */
#ifndef NEOCPU_POOL_H_
#define NEOCPU_POOL_H_

#include <stdint.h>

#include "neocpu.h"
#include "trace.h"

typedef struct nc_pool nc_pool;

/* Bits that say where a pool's threads stay, but for the calling one of each run. */
enum { NC_PINNED = 1 /* each on one CPU */, NC_FAST = 2 /* on performance cores, if there are others */ };

/* Make a pool of `threads` threads, the calling one of each run included. */
neocpu_status nc_pool_start(int threads, int places, nc_pool **pool);

/* Have the pool end only after one more nc_pool_release. */
void nc_pool_retain(nc_pool *pool);

/* End the threads, unless others retain the pool; null is ignored. No run of the caller's may be in
 * progress. In a child of the process that made it, nothing happens: it has none of the threads. */
void nc_pool_release(nc_pool *pool);

/* Whether this process is the one that made the pool. */
int nc_pool_is_ours(const nc_pool *pool);

/* Threads that it has. */
int nc_pool_size(const nc_pool *pool);

/* Begin a run: the calling thread is the pool's first one until it leaves. Runs take turns, in the
 * order in which they were begun. */
void nc_pool_enter(nc_pool *pool);

void nc_pool_leave(nc_pool *pool);

/* Have the pool's other threads ready for the first loop of a run: waking them takes some time, in
 * which the first one may do something else. This function and the next ones are called between
 * nc_pool_enter and nc_pool_leave. */
void nc_pool_rouse(nc_pool *pool);

/* Copy bytes on all threads. */
void nc_pool_copy(nc_pool *pool, void *to, const void *from, size_t bytes);

/* The number of tasks into which a loop of so many iterations (0: unknown) is cut for so many
 * threads. */
uint32_t nc_pool_tasks(uint32_t iterations, int threads);

/* The tasks of the loops that the next kernel has, in turn. They are only read. */
void nc_pool_expect(nc_pool *pool, const uint32_t *tasks, uint32_t count);

/* Make so many calls of kernels, of which none needs another; nonzero: one failed. `call_one` makes
 * the call of a number, which may launch a loop, once: the next call begins within it. The loops of
 * all calls are then shared out jointly, those of the first calls first. */
typedef int nc_call_one(void *data, size_t number);

int nc_pool_call_batch(nc_pool *pool, nc_call_one *call_one, void *data, size_t count);

/* Have the tasks of a run noted, until it is left; null: do not. Between nc_pool_enter and
 * nc_pool_leave. */
void nc_pool_trace(nc_pool *pool, nc_trace *trace);

/* The functions that generated code calls: `__TVMBackendParallelLaunch`, `__TVMBackendAllocWorkspace`
 * and `__TVMBackendFreeWorkspace` of tvm/runtime/c_backend_api.h. Outside a run a thread does all
 * tasks of a loop itself. */
typedef struct nc_parallel {
  void *sync; /* unused */
  int32_t tasks;
} nc_parallel;

typedef int nc_loop(int task, nc_parallel *parallel, void *data);

typedef void *nc_allocate(int device_type, int device_id, uint64_t size, int code, int bits);
typedef int nc_release(int device_type, int device_id, void *data);

int nc_backend_launch(nc_loop *loop, void *data, int tasks);
nc_allocate nc_backend_allocate;
nc_release nc_backend_release;

#endif
