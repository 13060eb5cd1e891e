/* One thread that makes calls in order, because TVM's thread pool belongs to one thread. */
#ifndef NEOCPU_WORKER_H_
#define NEOCPU_WORKER_H_

#include <pthread.h>

#include "neocpu.h"

typedef struct nc_job nc_job;

typedef struct nc_worker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t queued; /* the worker waits for it */
  nc_job *first, *last;
  int stopped;
} nc_worker;

/* Start a thread. It leaves signals to the others. */
neocpu_status nc_thread_start(pthread_t *thread, void *(*run)(void *), void *data);

neocpu_status nc_worker_start(nc_worker *worker);

/* Have the worker make a call, behind those already queued, and wait for it. Its message becomes
 * the calling thread's. */
neocpu_status nc_worker_call(nc_worker *worker, neocpu_status (*call)(void *), void *data);

/* End the thread. */
void nc_worker_stop(nc_worker *worker);

#endif
