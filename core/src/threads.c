#include "threads.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "error.h"

neocpu_status nc_thread_start(pthread_t *thread, void *(*run)(void *), void *data) {
  /* Signals are for the threads of the program, but for those that a thread's own fault raises:
   * blocked, they end the process without asking its handler. */
  static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; ++i) sigdelset(&blocked, faults[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const int error = pthread_create(thread, NULL, run, data);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error == 0) return NEOCPU_OK;
  return nc_fail(NEOCPU_FAILURE, "cannot start a thread: %s", strerror(error));
}

uint64_t nc_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
