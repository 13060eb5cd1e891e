#include "trace.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "threads.h"

/* Events that a thread has room for at first. */
enum { FIRST_ROOM = 4096 };
/* Two cache lines: the adjacent-line prefetch unit. */
enum { LINE = 128 };

/* The events that one thread noted. It alone writes here; others read between runs. */
typedef struct notes {
  _Alignas(LINE) neocpu_event *events;
  size_t count, room;
  size_t lost; /* for want of memory */
} notes;

struct nc_trace {
  neocpu_event run, call; /* in progress */
  int32_t loops;          /* that the call has begun */
  int threads;
  notes *notes; /* of each thread */
  neocpu_event *collected;
};

static int grow(notes *mine) {
  const size_t room = mine->room == 0 ? FIRST_ROOM : 2 * mine->room;
  neocpu_event *events = realloc(mine->events, room * sizeof *events);
  if (events == NULL) return 0;
  mine->events = events;
  mine->room = room;
  return 1;
}

static void put(nc_trace *trace, const neocpu_event *event) {
  notes *mine = &trace->notes[event->thread];
  if (mine->count == mine->room && !grow(mine)) {
    ++mine->lost;
  } else {
    mine->events[mine->count++] = *event;
  }
}

neocpu_status nc_trace_make(int threads, nc_trace **trace) {
  nc_trace *made = calloc(1, sizeof *made);
  const size_t size = sizeof(notes) * (size_t)threads;
  notes *lines = aligned_alloc(LINE, size);
  if (made == NULL || lines == NULL) {
    free(made), free(lines);
    return nc_fail(NEOCPU_FAILURE, "out of memory for a trace of %d threads", threads);
  }
  made->run = (neocpu_event){.run = -1, .call = -1, .loop = -1, .task = -1};
  made->threads = threads;
  made->notes = memset(lines, 0, size);
  *trace = made;
  return NEOCPU_OK;
}

void nc_trace_begin_run(nc_trace *trace) {
  ++trace->run.run;
  trace->run.begin = nc_now();
}

void nc_trace_end_run(nc_trace *trace) {
  trace->run.end = nc_now();
  put(trace, &trace->run);
}

void nc_trace_begin_call(nc_trace *trace, uint32_t call, const char *kernel) {
  trace->call = trace->run;
  trace->call.call = (int32_t)call;
  trace->call.kernel = kernel;
  trace->loops = 0;
}

void nc_trace_end_call(nc_trace *trace, uint32_t call, const char *kernel, uint64_t began) {
  nc_trace_begin_call(trace, call, kernel);
  trace->call.begin = began;
  trace->call.end = nc_now();
  put(trace, &trace->call);
}

neocpu_event nc_trace_loop(nc_trace *trace) {
  neocpu_event loop = trace->call;
  loop.loop = trace->loops++;
  return loop;
}

void nc_trace_task(nc_trace *trace, const neocpu_event *loop, int thread, int32_t task,
                   uint64_t began) {
  neocpu_event event = *loop;
  event.begin = began;
  event.end = nc_now();
  event.task = task;
  event.thread = thread;
  put(trace, &event);
}

/* The event that began first comes first; of two that began at once, the one that contains the
 * other. */
static int compare(const void *a, const void *b) {
  const neocpu_event *one = a, *other = b;
  if (one->begin != other->begin) return one->begin < other->begin ? -1 : 1;
  if (one->end != other->end) return one->end > other->end ? -1 : 1;
  if (one->call != other->call) return one->call < other->call ? -1 : 1;
  if (one->loop != other->loop) return one->loop < other->loop ? -1 : 1;
  return (one->task > other->task) - (one->task < other->task);
}

neocpu_status nc_trace_collect(nc_trace *trace, const neocpu_event **events, size_t *count) {
  size_t total = 0, lost = 0;
  for (int i = 0; i < trace->threads; ++i) {
    total += trace->notes[i].count;
    lost += trace->notes[i].lost;
  }
  trace->collected = malloc((total + 1) * sizeof *trace->collected);
  if (trace->collected == NULL || lost > 0) {
    return nc_fail(NEOCPU_FAILURE, "out of memory: a trace has %zu events; trace fewer runs",
                   total + lost);
  }
  neocpu_event *next = trace->collected;
  for (int i = 0; i < trace->threads; ++i) {
    notes *each = &trace->notes[i];
    if (each->count > 0) memcpy(next, each->events, each->count * sizeof *next);
    next += each->count;
    free(each->events);
    *each = (notes){0};
  }
  qsort(trace->collected, total, sizeof *trace->collected, compare);
  *events = trace->collected;
  *count = total;
  return NEOCPU_OK;
}

void nc_trace_free(nc_trace *trace) {
  if (trace == NULL) return;
  for (int i = 0; i < trace->threads; ++i) free(trace->notes[i].events);
  free(trace->notes);
  free(trace->collected);
  free(trace);
}
