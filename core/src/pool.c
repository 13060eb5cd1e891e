#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cpus.h"
#include "denormals.h"
#include "error.h"
#include "header.h"
#include "threads.h"
#include "workspace.h"

/* Two cache lines: the adjacent-line prefetch unit. */
enum { LINE = 128 };
/* The tasks of a thread's share, more or less. A late thread holds up one of them at most. */
enum { SHARE = 8 };
/* The two ends of a range of tasks have 16 bits each. */
enum { MAX_TASKS = 0xffff };
/* The number of threads in a group, which counts its tasks down on a number of its own. Many threads
 * that share one number wait for its cache line, one after another. */
enum { GROUP = 8 };
/* Bytes of a copy that are a task: some microseconds. */
enum { COPY_PART = 64 << 10 };

/* A thread waits busily this long for the next loop of a run; waking it takes a third of that. */
static const uint64_t PATIENCE_NS = 100000;
/* It waits this long for the next run: waking a thread costs its caller, and the thread, half of
 * that each. The next user of its CPU loses no more than a run of some milliseconds hides. */
static const uint64_t LINGER_NS = 50000;
/* The first thread waits this long for tasks that others have begun until it looks whether those
 * have a CPU, and this long until it looks again. */
static const uint64_t JOIN_PATIENCE_NS = 30000, LOOK_NS = 5000;
/* It does not wait busily for longer than this. */
static const uint64_t JOIN_LIMIT_NS = 1000000;

/* Tasks [next, end) of a launch, in one word: launch << 32 | next << 16 | end. The thread
 * that takes the first one writes the whole share; before that, an earlier launch has left it. */
typedef struct share {
  _Alignas(LINE) atomic_uint_fast64_t range;
  _Alignas(LINE) atomic_int left; /* a group's first share: tasks of the group that are not done */
} share;

typedef struct member {
  _Alignas(LINE) nc_pool *pool;
  int index;
  pthread_t thread;
  atomic_int working; /* whether it may have begun a task of the launch in progress */
  atomic_int fetched; /* whether it may run on one CPU alone, to end a task there */
  atomic_int id;      /* the system's number of the thread, once it has begun */
  cpu_set_t allowed;  /* CPUs that it began with */
  uint64_t used;      /* CPU time used when the first thread looked */
  nc_workspaces workspaces;
} member;

/* Calls of which each begins within the one before, and the loops of all, which are shared out
 * jointly. */
typedef struct batch {
  nc_call_one *call_one;
  void *data;
  size_t count, begun;
  struct {
    nc_loop *loop;
    void *data;
    int tasks;
  } parts[NC_MAX_LAUNCH];
  int size, tasks; /* the number of parts, and of their tasks */
  int sharers;
} batch;

/* A run that waits for those before it. */
typedef struct turn turn;
struct turn {
  turn *next;
  pthread_cond_t comes;
  int is_here;
};

struct nc_pool {
  /* The others watch this: the number of the last launch * 2, and 1 while a run is in progress. */
  _Alignas(LINE) atomic_uint state;
  atomic_int stopped;
  _Atomic(nc_loop *) loop;
  _Atomic(void *) data;
  atomic_uint_fast64_t job; /* the last launch << 32 | its tasks */
  atomic_int cpu; /* the CPU of the first thread when it launched */
  _Alignas(LINE) atomic_int left; /* groups whose tasks are not done */
  atomic_int joining;             /* whether the first thread sleeps until they are */
  atomic_int failed;
  _Alignas(LINE) atomic_int asleep;
  _Alignas(LINE) pthread_mutex_t lock; /* protects the next three */
  turn *first, *last;                  /* runs that wait */
  int taken;                           /* whether one is in progress */
  uint64_t denormals;                  /* its thread's mode before the run */
  nc_trace *trace; /* the trace of the run in progress; null: none */
  batch *batch;    /* the one that is being gathered; null: none */
  const uint32_t *expected;
  uint32_t expected_count, launches;
  int size, started, places;
  pid_t process;
  atomic_int owners;
  share *shares;
  member *members;
};

/* The calling thread as a member of a pool; null in none. */
static _Thread_local member *self;
/* Whether it is within a task. */
static _Thread_local int busy;

static void rest(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("yield");
#endif
}

static void sleep_while(atomic_uint *word, unsigned value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(void *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* The number of threads that have a share of so many tasks. */
static int sharers_of(const nc_pool *pool, int tasks) {
  return tasks < pool->size ? tasks : pool->size;
}

/* The first task of a share, of so many tasks that are cut into so many shares. */
static int share_start(int number, int tasks, int sharers) {
  return (int)((int64_t)tasks * number / sharers);
}

/* Take the first task of one's own share, or the last one of another's; return whether there was
 * one. */
static int take(nc_pool *pool, uint_fast64_t job, int owner, int last, int *task) {
  share *from = &pool->shares[owner];
  const int tasks = (int)(job & UINT32_MAX), sharers = sharers_of(pool, tasks);
  uint_fast64_t range = atomic_load_explicit(&from->range, memory_order_acquire);
  for (;;) {
    uint_fast64_t now = range;
    if (now >> 32 != job >> 32) {
      /* Nobody has begun it yet, or the job is over: then it has been begun before, and changes. */
      if (atomic_load_explicit(&pool->job, memory_order_acquire) != job) return 0;
      now = job >> 32 << 32 | (uint_fast64_t)share_start(owner, tasks, sharers) << 16 |
            (uint_fast64_t)share_start(owner + 1, tasks, sharers);
    }
    const unsigned next = now >> 16 & 0xffff, end = now & 0xffff;
    if (next >= end) return 0;
    const uint_fast64_t rest_of_it = last ? now - 1 : now + (1 << 16);
    if (atomic_compare_exchange_weak_explicit(&from->range, &range, rest_of_it,
                                              memory_order_acq_rel, memory_order_acquire)) {
      *task = (int)(last ? end - 1 : next);
      return 1;
    }
  }
}

/* Count off tasks of a share that are done. */
static void count_off(nc_pool *pool, int owner, int done) {
  atomic_int *left = &pool->shares[owner / GROUP * GROUP].left;
  if (atomic_fetch_sub(left, done) == done && atomic_fetch_sub(&pool->left, 1) == 1 &&
      atomic_load(&pool->joining)) {
    wake(&pool->left, 1);
  }
}

/* Do the tasks of the last launch that are left: one's own, then others'. */
static void work(nc_pool *pool, int index) {
  const uint_fast64_t job = atomic_load_explicit(&pool->job, memory_order_acquire);
  const int tasks = (int)(job & UINT32_MAX), sharers = sharers_of(pool, tasks);
  member *me = &pool->members[index];
  if (index > 0) me->workspaces.used = 0; /* a task that failed may have left some */
  for (int i = 0; i < sharers; ++i) {
    const int owner = (index + i) % sharers;
    int done = 0, task;
    atomic_store_explicit(&me->working, 1, memory_order_release);
    while (take(pool, job, owner, owner != index, &task)) {
      /* Having taken one, the launch cannot end before it is done: all of this is its own. */
      nc_loop *loop = atomic_load_explicit(&pool->loop, memory_order_relaxed);
      void *data = atomic_load_explicit(&pool->data, memory_order_relaxed);
      nc_parallel parallel = {NULL, tasks};
      if (loop(task, &parallel, data) != 0) {
        atomic_store_explicit(&pool->failed, 1, memory_order_relaxed);
      }
      ++done;
    }
    atomic_store_explicit(&me->working, 0, memory_order_release);
    if (done > 0) count_off(pool, owner, done);
    /* Looking through all shares takes long if there are many. */
    if (atomic_load_explicit(&pool->left, memory_order_relaxed) == 0) return;
  }
}

/* Go to another CPU than the first thread's, and stay off that one. Where all CPUs are busy, the
 * system wakes a thread on the CPU of who wakes it: the two would take turns there, while the
 * neighbour on another CPU has it for itself. */
static void make_way(const member *me) {
  const int cpu = atomic_load_explicit(&me->pool->cpu, memory_order_relaxed);
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  cpu_set_t others = me->allowed;
  CPU_CLR(cpu, &others);
  /* It may run on all CPUs, as before, if no other is left. */
  sched_setaffinity(0, sizeof others, CPU_COUNT(&others) > 0 ? &others : &me->allowed);
}

/* Make way if this is where the first thread was. */
static void leave_first(const member *me) {
  if (sched_getcpu() == atomic_load_explicit(&me->pool->cpu, memory_order_relaxed)) make_way(me);
}

/* Wait for a launch after the one seen, or the pool's end; return the state. */
static unsigned await_launch(member *me, unsigned seen) {
  nc_pool *pool = me->pool;
  uint64_t began = 0;
  unsigned before = seen;
  for (unsigned spins = 1;; ++spins) {
    const unsigned state = atomic_load_explicit(&pool->state, memory_order_acquire);
    if ((state ^ seen) >> 1 || atomic_load_explicit(&pool->stopped, memory_order_relaxed)) {
      return state;
    }
    if (state != before) began = 0; /* a run has begun or ended */
    before = state;
    if (spins % 64 == 0) {
      const uint64_t now = nc_now();
      if (began == 0) began = now;
      if (now - began > (state & 1 ? PATIENCE_NS : LINGER_NS)) {
        atomic_fetch_add(&pool->asleep, 1);
        sleep_while(&pool->state, state);
        atomic_fetch_sub(&pool->asleep, 1);
        began = 0;
        leave_first(me);
      }
    }
    rest();
  }
}

/* Stay on one of the CPUs allowed: the first one is left to whoever calls. */
static void pin(member *me) {
  int left = me->index % (CPU_COUNT(&me->allowed) > 0 ? CPU_COUNT(&me->allowed) : 1);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &me->allowed) || left-- > 0) continue;
    CPU_ZERO(&me->allowed);
    CPU_SET(cpu, &me->allowed);
    sched_setaffinity(0, sizeof me->allowed, &me->allowed);
    return;
  }
}

static void *serve(void *data) {
  self = data;
  busy = 1;
  nc_pool *pool = self->pool;
  unsigned state = 0;
  pthread_setname_np(pthread_self(), "neocpu");
  sched_getaffinity(0, sizeof self->allowed, &self->allowed);
  cpu_set_t fast;
  if (pool->places & NC_FAST && nc_performance_cpus(NC_DEVICES, &fast) > 0) {
    self->allowed = fast;
    sched_setaffinity(0, sizeof fast, &fast);
  }
  if (pool->places & NC_PINNED) pin(self);
  atomic_store(&self->id, (int)syscall(SYS_gettid));
  nc_flush_denormals();
  for (;;) {
    state = await_launch(self, state);
    if (atomic_load(&pool->stopped)) return NULL;
    leave_first(self);
    work(pool, self->index);
    if (atomic_exchange(&self->fetched, 0)) make_way(self);
  }
}

/* Wait busily until no task is left, for so long at most; return whether none is. */
static int join_within(nc_pool *pool, uint64_t limit) {
  uint64_t began = 0;
  for (unsigned spins = 1; atomic_load_explicit(&pool->left, memory_order_acquire) > 0; ++spins) {
    rest();
    if (spins % 64 != 0) continue;
    const uint64_t now = nc_now();
    if (began == 0) began = now;
    if (now - began > limit) return 0;
  }
  return 1;
}

/* The CPU time that a thread has used. */
static uint64_t time_used(const member *one) {
  clockid_t clock;
  struct timespec time;
  if (pthread_getcpuclockid(one->thread, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Have those that have begun a task and are without a CPU continue it on this thread's; return how
 * many they are. What keeps theirs busy would hold all up for milliseconds. */
static int fetch_late(nc_pool *pool) {
  int late = 0;
  cpu_set_t here;
  const int cpu = sched_getcpu();
  if (cpu < 0 || cpu >= CPU_SETSIZE) return 0;
  CPU_ZERO(&here);
  CPU_SET(cpu, &here);
  for (int i = 1; i < pool->size; ++i) pool->members[i].used = time_used(&pool->members[i]);
  if (join_within(pool, LOOK_NS)) return 0;
  for (int i = 1; i < pool->size; ++i) {
    member *one = &pool->members[i];
    if (!atomic_load(&one->working) || time_used(one) != one->used) continue;
    late += sched_setaffinity((pid_t)atomic_load(&one->id), sizeof here, &here) == 0;
    atomic_store(&one->fetched, 1); /* last: it is to be seen after the CPU has changed */
  }
  return late;
}

/* Wait until no task is left. */
static void join(nc_pool *pool) {
  uint64_t waited = 0;
  while (!join_within(pool, JOIN_PATIENCE_NS)) {
    waited += JOIN_PATIENCE_NS + LOOK_NS;
    if (fetch_late(pool) == 0 && waited < JOIN_LIMIT_NS) continue;
    atomic_store(&pool->joining, 1);
    for (int left; (left = atomic_load(&pool->left)) > 0;) {
      sleep_while((atomic_uint *)&pool->left, (unsigned)left);
    }
    atomic_store(&pool->joining, 0);
  }
}

static int run_alone(nc_loop *loop, void *data, int tasks) {
  nc_parallel parallel = {NULL, tasks};
  for (int task = 0; task < tasks; ++task) {
    if (loop(task, &parallel, data) != 0) return -1;
  }
  return 0;
}

static int share_out(nc_pool *pool, nc_loop *loop, void *data, int tasks) {
  const unsigned launch = ((atomic_load_explicit(&pool->state, memory_order_relaxed) >> 1) + 1) &
                          (UINT32_MAX >> 1);
  atomic_store_explicit(&pool->loop, loop, memory_order_relaxed);
  atomic_store_explicit(&pool->data, data, memory_order_relaxed);
  atomic_store_explicit(&pool->cpu, sched_getcpu(), memory_order_relaxed);
  const int sharers = sharers_of(pool, tasks);
  int groups = 0;
  for (int first = 0; first < sharers; first += GROUP, ++groups) {
    const int end = first + GROUP < sharers ? first + GROUP : sharers;
    const int own = share_start(end, tasks, sharers) - share_start(first, tasks, sharers);
    atomic_store_explicit(&pool->shares[first].left, own, memory_order_relaxed);
  }
  atomic_store_explicit(&pool->left, groups, memory_order_relaxed);
  atomic_store_explicit(&pool->job, (uint_fast64_t)launch << 32 | (unsigned)tasks,
                        memory_order_release);
  atomic_store(&pool->state, launch << 1 | 1);
  if (atomic_load(&pool->asleep) > 0) wake(&pool->state, tasks - 1);
  busy = 1;
  work(pool, 0);
  busy = 0;
  join(pool);
  return atomic_exchange_explicit(&pool->failed, 0, memory_order_relaxed) ? -1 : 0;
}

/* The number of a batch's task where the tasks of all loops, in order, are dealt out to the threads
 * in turn. */
static int dealt(const batch *all, int task) {
  const int n = all->sharers, least = all->tasks / n;
  const int thread = (int)(((int64_t)(task + 1) * n - 1) / all->tasks);
  const int first = (int)((int64_t)all->tasks * thread / n), place = task - first;
  /* Some have one more than the least; those before this thread have taken so many of them. */
  return place < least ? place * n + thread : least * n + first - least * thread;
}

static int run_part(int task, nc_parallel *parallel, void *data) {
  const batch *all = data;
  int number = dealt(all, task), i = 0;
  (void)parallel;
  for (; number >= all->parts[i].tasks; ++i) number -= all->parts[i].tasks;
  nc_parallel own = {NULL, all->parts[i].tasks};
  return all->parts[i].loop(number, &own, all->parts[i].data);
}

static int launch(nc_pool *pool, nc_loop *loop, void *data, int tasks);

/* Begin the calls that have not begun, then do the tasks of all loops. */
static int call_rest(nc_pool *pool, batch *all) {
  int failed = 0;
  while (all->begun < all->count && !failed) failed = all->call_one(all->data, all->begun++);
  if (pool->batch == NULL) return failed; /* a call that began later has done the tasks */
  pool->batch = NULL;
  if (failed || all->tasks == 0) return failed;
  all->sharers = sharers_of(pool, all->tasks);
  if (all->tasks > MAX_TASKS) all->sharers = 1; /* then one thread does all */
  return launch(pool, run_part, all, all->tasks);
}

int nc_pool_call_batch(nc_pool *pool, nc_call_one *call_one, void *data, size_t count) {
  batch all = {.call_one = call_one, .data = data, .count = count};
  pool->batch = &all;
  return call_rest(pool, &all);
}

static int launch(nc_pool *pool, nc_loop *loop, void *data, int tasks) {
  if (pool->size == 1) return run_alone(loop, data, tasks > 0 ? tasks : 1);
  if (tasks <= 0) {
    const uint32_t count = pool->expected_count;
    tasks = count > 0 ? (int)pool->expected[pool->launches++ % count] : pool->size;
  }
  batch *all = pool->batch;
  if (all != NULL) {
    all->parts[all->size].loop = loop;
    all->parts[all->size].data = data;
    all->parts[all->size++].tasks = tasks;
    all->tasks += tasks;
    return call_rest(pool, all);
  }
  if (tasks == 1 || tasks > MAX_TASKS) return run_alone(loop, data, tasks);
  return share_out(pool, loop, data, tasks);
}

void nc_pool_rouse(nc_pool *pool) {
  if (pool->size == 1) return;
  atomic_store_explicit(&pool->cpu, sched_getcpu(), memory_order_relaxed);
  atomic_fetch_or(&pool->state, 1);
  if (atomic_load(&pool->asleep) > 0) wake(&pool->state, pool->size - 1);
}

/* A copy that threads share. */
typedef struct copy {
  char *to;
  const char *from;
  size_t bytes;
} copy;

static int copy_part(int task, nc_parallel *parallel, void *data) {
  const copy *whole = data;
  const size_t tasks = (size_t)parallel->tasks, number = (size_t)task;
  const size_t each = (whole->bytes / tasks / LINE + 1) * LINE, first = number * each;
  if (first >= whole->bytes) return 0;
  const size_t left = whole->bytes - first;
  memcpy(whole->to + first, whole->from + first, left < each ? left : each);
  return 0;
}

void nc_pool_copy(nc_pool *pool, void *to, const void *from, size_t bytes) {
  copy whole = {to, from, bytes};
  const size_t parts = bytes / COPY_PART + 1;
  launch(pool, copy_part, &whole, parts < MAX_TASKS ? (int)parts : MAX_TASKS);
}

/* A loop whose tasks are noted. */
typedef struct traced_loop {
  nc_loop *loop;
  void *data;
  nc_trace *trace;
  neocpu_event event;
} traced_loop;

static int run_traced(int task, nc_parallel *parallel, void *data) {
  const traced_loop *traced = data;
  const uint64_t began = nc_now();
  const int status = traced->loop(task, parallel, traced->data);
  nc_trace_task(traced->trace, &traced->event, self->index, task, began);
  return status;
}

int nc_backend_launch(nc_loop *loop, void *data, int tasks) {
  nc_pool *pool = self == NULL ? NULL : self->pool;
  if (pool == NULL || busy) return run_alone(loop, data, tasks > 0 ? tasks : 1);
  if (pool->trace == NULL) return launch(pool, loop, data, tasks);
  traced_loop traced = {loop, data, pool->trace, nc_trace_loop(pool->trace)};
  return launch(pool, run_traced, &traced, tasks);
}

void *nc_backend_allocate(int device_type, int device_id, uint64_t size, int code, int bits) {
  (void)device_type, (void)device_id, (void)code, (void)bits;
  return self == NULL ? nc_workspace_make(size) : nc_workspace_take(&self->workspaces, size);
}

int nc_backend_release(int device_type, int device_id, void *data) {
  (void)device_type, (void)device_id;
  if (self != NULL) return nc_workspace_give(&self->workspaces, data);
  free(data);
  return 0;
}

static uint32_t ratio_up(uint32_t number, uint32_t divisor) {
  return (number + divisor - 1) / divisor;
}

uint32_t nc_pool_tasks(uint32_t iterations, int threads) {
  const uint32_t count = (uint32_t)threads;
  if (count == 1 || iterations == 1) return 1;
  if (iterations == 0) return count;
  uint32_t most = iterations / (count * SHARE); /* iterations of a task */
  if (most < ratio_up(iterations, MAX_TASKS)) most = ratio_up(iterations, MAX_TASKS);
  if (most == 0) most = 1;
  uint32_t best = most, least = UINT32_MAX;
  for (uint32_t size = most; size > most / 2; --size) {
    const uint32_t longest = ratio_up(ratio_up(iterations, size), count) * size;
    if (longest < least) best = size, least = longest;
  }
  return ratio_up(iterations, best);
}

void nc_pool_expect(nc_pool *pool, const uint32_t *tasks, uint32_t count) {
  pool->expected = tasks;
  pool->expected_count = count;
  pool->launches = 0;
}

void nc_pool_trace(nc_pool *pool, nc_trace *trace) { pool->trace = trace; }

static void await_turn(nc_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  if (pool->taken) {
    turn mine = {.comes = PTHREAD_COND_INITIALIZER};
    if (pool->first == NULL) {
      pool->first = &mine;
    } else {
      pool->last->next = &mine;
    }
    pool->last = &mine;
    while (!mine.is_here) pthread_cond_wait(&mine.comes, &pool->lock);
    pthread_cond_destroy(&mine.comes);
  }
  pool->taken = 1;
  pthread_mutex_unlock(&pool->lock);
}

static void pass_turn(nc_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  turn *next = pool->first;
  if (next == NULL) {
    pool->taken = 0;
  } else {
    pool->first = next->next;
    next->is_here = 1;
    pthread_cond_signal(&next->comes);
  }
  pthread_mutex_unlock(&pool->lock);
}

void nc_pool_enter(nc_pool *pool) {
  await_turn(pool);
  pool->denormals = nc_flush_denormals();
  self = &pool->members[0];
  self->workspaces.used = 0; /* a kernel that failed may have left some */
}

void nc_pool_leave(nc_pool *pool) {
  self = NULL;
  pool->trace = NULL;
  nc_restore_denormals(pool->denormals);
  atomic_fetch_and(&pool->state, ~1u); /* a thread that waits busily soon goes to sleep */
  pass_turn(pool);
}

int nc_pool_size(const nc_pool *pool) { return pool->size; }

static neocpu_status start_members(nc_pool *pool) {
  for (int i = 0; i < pool->size; ++i) {
    pool->members[i].pool = pool;
    pool->members[i].index = i;
  }
  for (pool->started = 1; pool->started < pool->size; ++pool->started) {
    member *one = &pool->members[pool->started];
    const neocpu_status status = nc_thread_start(&one->thread, serve, one);
    if (status != NEOCPU_OK) return status;
  }
  return NEOCPU_OK;
}

static void *allocate_lines(size_t size) {
  void *memory = aligned_alloc(LINE, size);
  return memory == NULL ? NULL : memset(memory, 0, size);
}

neocpu_status nc_pool_start(int size, int places, nc_pool **started) {
  *started = NULL;
  nc_pool *pool = allocate_lines(sizeof *pool);
  if (pool != NULL) {
    pool->shares = allocate_lines(sizeof(share) * (size_t)size);
    pool->members = allocate_lines(sizeof(member) * (size_t)size);
  }
  if (pool == NULL || pool->shares == NULL || pool->members == NULL) {
    if (pool != NULL) free(pool->shares), free(pool->members), free(pool);
    return nc_fail(NEOCPU_FAILURE, "out of memory for %d threads", size);
  }
  pool->size = size;
  pool->places = places;
  pool->process = getpid();
  atomic_init(&pool->owners, 1);
  pthread_mutex_init(&pool->lock, NULL);
  const neocpu_status status = start_members(pool);
  if (status == NEOCPU_OK) {
    *started = pool;
  } else {
    nc_pool_release(pool);
  }
  return status;
}

void nc_pool_retain(nc_pool *pool) { atomic_fetch_add(&pool->owners, 1); }

int nc_pool_is_ours(const nc_pool *pool) { return pool->process == getpid(); }

void nc_pool_release(nc_pool *pool) {
  if (pool == NULL || !nc_pool_is_ours(pool) || atomic_fetch_sub(&pool->owners, 1) > 1) return;
  atomic_store(&pool->stopped, 1);
  atomic_fetch_add(&pool->state, 2); /* no thread may fall asleep over the old one */
  wake(&pool->state, pool->size);
  for (int i = 1; i < pool->started; ++i) pthread_join(pool->members[i].thread, NULL);
  for (int i = 0; i < pool->size; ++i) nc_workspaces_free(&pool->members[i].workspaces);
  pthread_mutex_destroy(&pool->lock);
  free(pool->shares);
  free(pool->members);
  free(pool);
}
