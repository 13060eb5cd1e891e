/* A record of the times of runs, of their calls of kernels and of the tasks of these. */
#ifndef NEOCPU_TRACE_H_
#define NEOCPU_TRACE_H_

#include "neocpu.h"

typedef struct nc_trace nc_trace;

/* Make a trace of runs on a pool of so many threads. */
neocpu_status nc_trace_make(int threads, nc_trace **trace);

/* Note when a run took place. Its thread calls this and the next ones, in turn. */
void nc_trace_begin_run(nc_trace *trace);
void nc_trace_end_run(nc_trace *trace);

/* One of its calls of a kernel begins. */
void nc_trace_begin_call(nc_trace *trace, uint32_t call, const char *kernel);

/* Note when a call took place: since then. */
void nc_trace_end_call(nc_trace *trace, uint32_t call, const char *kernel, uint64_t began);

/* The next parallel loop of the call that began last, as its tasks are noted. */
neocpu_event nc_trace_loop(nc_trace *trace);

/* Note a task of a loop that began then, and has just ended: by the thread that did it, while the
 * call's own thread waits. */
void nc_trace_task(nc_trace *trace, const neocpu_event *loop, int thread, int32_t task,
                   uint64_t began);

/* Put all that was noted in order, once; it is there until the trace is freed. Fails if memory was
 * short. */
neocpu_status nc_trace_collect(nc_trace *trace, const neocpu_event **events, size_t *count);

void nc_trace_free(nc_trace *trace);

#endif
