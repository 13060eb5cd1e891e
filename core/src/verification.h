/* The check of an artifact's weights: threads read their pieces side by side, beside whoever loads
 * the model and with whoever waits for the verdict. */
#ifndef NEOCPU_VERIFICATION_H_
#define NEOCPU_VERIFICATION_H_

#include <pthread.h>
#include <stdatomic.h>

#include "artifact.h"

enum { NC_VERIFIERS = 16 /* at most */ };

typedef struct nc_verification {
  const nc_artifact *artifact;
  atomic_size_t next; /* piece that nobody reads yet */
  size_t piece_count;
  uint32_t *sums; /* of all pieces */
  pthread_t threads[NC_VERIFIERS];
  int thread_count;
  pthread_mutex_t lock; /* of who comes to the verdict */
  atomic_int over;      /* whether there is one */
  neocpu_status verdict;
} nc_verification;

/* Start to read, on so many threads. End with nc_verification_end, also after a failure. */
neocpu_status nc_verification_start(nc_verification *verification, const nc_artifact *artifact,
                                    int threads);

/* Read what is left, wait for the others, and return the verdict. Many threads may call. */
neocpu_status nc_verification_wait(nc_verification *verification);

/* Stop what is in progress. Nothing happens if none was started and all is zero. */
void nc_verification_end(nc_verification *verification);

#endif
