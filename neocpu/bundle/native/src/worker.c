#include "worker.h"

#include <signal.h>
#include <string.h>

#include "error.h"

struct nc_job {
  neocpu_status (*call)(void *);
  void *data;
  nc_job *next;
  pthread_cond_t finished;
  int done;
  neocpu_status status;
  char message[NC_MESSAGE_SIZE];
};

neocpu_status nc_thread_start(pthread_t *thread, void *(*run)(void *), void *data) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(thread, NULL, run, data);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error == 0) return NEOCPU_OK;
  return nc_fail(NEOCPU_FAILURE, "cannot start a thread: %s", strerror(error));
}

static void *serve(void *data) {
  nc_worker *worker = data;
  pthread_mutex_lock(&worker->lock);
  for (;;) {
    while (worker->first == NULL && !worker->stopped) {
      pthread_cond_wait(&worker->queued, &worker->lock);
    }
    nc_job *job = worker->first;
    if (job == NULL) break;
    worker->first = job->next;
    pthread_mutex_unlock(&worker->lock);
    job->status = job->call(job->data);
    if (job->status != NEOCPU_OK) strcpy(job->message, neocpu_error());
    pthread_mutex_lock(&worker->lock);
    job->done = 1;
    pthread_cond_signal(&job->finished);
  }
  pthread_mutex_unlock(&worker->lock);
  return NULL;
}

neocpu_status nc_worker_start(nc_worker *worker) {
  worker->first = worker->last = NULL;
  worker->stopped = 0;
  pthread_mutex_init(&worker->lock, NULL);
  pthread_cond_init(&worker->queued, NULL);
  return nc_thread_start(&worker->thread, serve, worker);
}

neocpu_status nc_worker_call(nc_worker *worker, neocpu_status (*call)(void *), void *data) {
  nc_job job = {.call = call, .data = data, .finished = PTHREAD_COND_INITIALIZER};
  pthread_mutex_lock(&worker->lock);
  if (worker->first == NULL) {
    worker->first = &job;
  } else {
    worker->last->next = &job;
  }
  worker->last = &job;
  pthread_cond_signal(&worker->queued);
  while (!job.done) pthread_cond_wait(&job.finished, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
  pthread_cond_destroy(&job.finished);
  return job.status == NEOCPU_OK ? NEOCPU_OK : nc_fail(job.status, "%s", job.message);
}

void nc_worker_stop(nc_worker *worker) {
  pthread_mutex_lock(&worker->lock);
  worker->stopped = 1;
  pthread_cond_signal(&worker->queued);
  pthread_mutex_unlock(&worker->lock);
  pthread_join(worker->thread, NULL);
  pthread_cond_destroy(&worker->queued);
  pthread_mutex_destroy(&worker->lock);
}
