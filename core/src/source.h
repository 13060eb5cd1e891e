/* An artifact that models run, its weights in memory, and their check. Models that are
 * streams of one another share it; it goes with the last of them. */
#ifndef NEOCPU_SOURCE_H_
#define NEOCPU_SOURCE_H_

#include <stdatomic.h>

#include "artifact.h"
#include "pool.h"
#include "session.h"
#include "verification.h"

typedef struct nc_source {
  atomic_int holders;
  nc_artifact artifact;
  nc_verification verification; /* all zero if the weights are trusted */
  void *copy;                   /* of the weights, on huge pages; or null */
  void *made;                   /* weights packed of these; null: there are none */
  uint64_t packing;             /* the time that took, nanoseconds */
} nc_source;

/* Open an artifact that this machine can run. Its holder is the caller. */
neocpu_status nc_source_open(const nc_file *file, nc_source **source);

/* Check the weights on so many threads from now on, beside the caller. Called once at most. */
neocpu_status nc_source_start_check(nc_source *source, int threads);

/* Copy the weights to huge pages of this process, each by all threads of a pool: on a machine of
 * several nodes a page lies with the thread that writes it first. Called once at most. */
neocpu_status nc_source_copy_weights(nc_source *source, nc_pool *pool);

/* The weights' places for kernels, which only read. */
nc_weights nc_source_weights(const nc_source *source);

/* Wait for the verdict on the weights, unless they are trusted. Of many threads at once. */
neocpu_status nc_source_verify(nc_source *source);

void nc_source_retain(nc_source *source);

/* Give up a hold; null is ignored. */
void nc_source_release(nc_source *source);

#endif
