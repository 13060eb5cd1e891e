/* Calls that are made in order, on a thread of their own, while whoever wants them goes on. */
#ifndef NEOCPU_QUEUE_H_
#define NEOCPU_QUEUE_H_

#include <pthread.h>

#include "neocpu.h"

typedef struct nc_queue {
  pthread_mutex_t lock; /* of everything here, and of the jobs */
  pthread_cond_t filled;
  neocpu_job *first, *last;
  pthread_t thread; /* from the first job on */
  int started, ended;
} nc_queue;

void nc_queue_init(nc_queue *queue);

/* Queue a call of `call` with a copy of `size` bytes of data. neocpu_wait frees the job, or
 * neocpu_cancel. */
neocpu_status nc_queue_put(nc_queue *queue, neocpu_status (*call)(void *), const void *data,
                           size_t size, neocpu_job **job);

/* Make the calls that are left, and end the thread. */
void nc_queue_end(nc_queue *queue);

#endif
