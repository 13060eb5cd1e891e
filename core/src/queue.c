#include "queue.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "threads.h"

struct neocpu_job {
  nc_queue *queue;
  neocpu_job *next;
  neocpu_status (*call)(void *);
  pthread_cond_t finished;
  int begun, done;
  neocpu_status status;
  char message[NC_MESSAGE_SIZE];
  _Alignas(16) char data[];
};

void nc_queue_init(nc_queue *queue) {
  *queue = (nc_queue){0};
  pthread_mutex_init(&queue->lock, NULL);
  pthread_cond_init(&queue->filled, NULL);
}

static void *serve(void *data) {
  nc_queue *queue = data;
  pthread_mutex_lock(&queue->lock);
  for (;;) {
    while (queue->first == NULL && !queue->ended) pthread_cond_wait(&queue->filled, &queue->lock);
    neocpu_job *job = queue->first;
    if (job == NULL) break;
    queue->first = job->next;
    job->begun = 1;
    pthread_mutex_unlock(&queue->lock);
    job->status = job->call(job->data);
    if (job->status != NEOCPU_OK) strcpy(job->message, neocpu_error());
    pthread_mutex_lock(&queue->lock);
    job->done = 1;
    pthread_cond_signal(&job->finished);
  }
  pthread_mutex_unlock(&queue->lock);
  return NULL;
}

static void append(nc_queue *queue, neocpu_job *job) {
  if (queue->first == NULL) {
    queue->first = job;
  } else {
    queue->last->next = job;
  }
  queue->last = job;
  pthread_cond_signal(&queue->filled);
}

neocpu_status nc_queue_put(nc_queue *queue, neocpu_status (*call)(void *), const void *data,
                           size_t size, neocpu_job **put) {
  neocpu_job *job = calloc(1, sizeof *job + size);
  if (job == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory for a job");
  job->queue = queue;
  job->call = call;
  pthread_cond_init(&job->finished, NULL);
  memcpy(job->data, data, size);
  neocpu_status status = NEOCPU_OK;
  pthread_mutex_lock(&queue->lock);
  if (!queue->started) status = nc_thread_start(&queue->thread, serve, queue);
  if (status == NEOCPU_OK) {
    queue->started = 1;
    append(queue, job);
  }
  pthread_mutex_unlock(&queue->lock);
  if (status == NEOCPU_OK) {
    *put = job;
  } else {
    free(job);
  }
  return status;
}

void nc_queue_end(nc_queue *queue) {
  pthread_mutex_lock(&queue->lock);
  queue->ended = 1;
  pthread_cond_signal(&queue->filled);
  const int started = queue->started;
  pthread_mutex_unlock(&queue->lock);
  if (started) pthread_join(queue->thread, NULL);
  pthread_cond_destroy(&queue->filled);
  pthread_mutex_destroy(&queue->lock);
}

static void discard(neocpu_job *job) {
  pthread_cond_destroy(&job->finished);
  free(job);
}

neocpu_status neocpu_wait(neocpu_job *job) {
  if (job == NULL) return nc_fail(NEOCPU_USAGE, "the job is a null pointer: was it submitted?");
  pthread_mutex_lock(&job->queue->lock);
  while (!job->done) pthread_cond_wait(&job->finished, &job->queue->lock);
  pthread_mutex_unlock(&job->queue->lock);
  neocpu_status status = job->status;
  if (status != NEOCPU_OK) nc_fail(status, "%s", job->message);
  discard(job);
  return status;
}

int neocpu_cancel(neocpu_job *job) {
  if (job == NULL) return 0;
  nc_queue *queue = job->queue;
  pthread_mutex_lock(&queue->lock);
  const int begun = job->begun;
  if (!begun) {
    neocpu_job **place = &queue->first, *before = NULL;
    while (*place != job) before = *place, place = &before->next;
    *place = job->next;
    if (queue->last == job) queue->last = before;
  }
  pthread_mutex_unlock(&queue->lock);
  if (!begun) discard(job);
  return !begun;
}
