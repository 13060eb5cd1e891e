/* Threads of ours: they leave signals to the program's own. */
#ifndef NEOCPU_THREADS_H_
#define NEOCPU_THREADS_H_

#include <pthread.h>

#include "neocpu.h"

neocpu_status nc_thread_start(pthread_t *thread, void *(*run)(void *), void *data);

/* Nanoseconds of a clock that never goes back. */
uint64_t nc_now(void);

#endif
