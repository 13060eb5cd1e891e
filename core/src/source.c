#include "source.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "memory.h"

neocpu_status nc_source_open(const nc_file *file, nc_source **source) {
  nc_source *made = calloc(1, sizeof *made);
  *source = NULL;
  if (made == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  atomic_init(&made->holders, 1);
  neocpu_status status = nc_artifact_open(file, &made->artifact);
  if (status == NEOCPU_OK) status = nc_artifact_check_host(&made->artifact);
  if (status == NEOCPU_OK) {
    *source = made;
  } else {
    nc_source_release(made);
  }
  return status;
}

neocpu_status nc_source_start_check(nc_source *source, int threads) {
  return nc_verification_start(&source->verification, &source->artifact, threads);
}

neocpu_status nc_source_copy_weights(nc_source *source, nc_pool *pool) {
  const nc_program *program = &source->artifact.header.programs[0];
  const uint8_t *from = source->artifact.weights;
  const size_t size = source->artifact.weights_size;
  size_t done = 0;
  if (size == 0) return NEOCPU_OK;
  source->copy = nc_memory_map(size);
  if (source->copy == NULL) return nc_memory_missing(size);
  nc_pool_enter(pool);
  /* One after another: where threads have channels each, each copies those that it will read. */
  for (size_t i = 0; i <= program->weight_count; ++i) {
    const size_t end = i < program->weight_count ? program->weights[i].offset : size;
    if (end <= done || end > size) continue;
    nc_pool_copy(pool, (char *)source->copy + done, from + done, end - done);
    done = end;
  }
  nc_pool_leave(pool);
  return NEOCPU_OK;
}

nc_weights nc_source_weights(const nc_source *source) {
  /* Kernels only read weights, so the mapping of the file may stay read-only. */
  return (nc_weights){
      .stored = source->copy != NULL ? source->copy : (void *)source->artifact.weights,
      .made = source->made,
      .size = source->artifact.weights_size,
  };
}

neocpu_status nc_source_verify(nc_source *source) {
  if (source->verification.artifact == NULL) return NEOCPU_OK;
  return nc_verification_wait(&source->verification);
}

void nc_source_retain(nc_source *source) { atomic_fetch_add(&source->holders, 1); }

void nc_source_release(nc_source *source) {
  if (source == NULL || atomic_fetch_sub(&source->holders, 1) != 1) return;
  nc_verification_end(&source->verification);
  nc_memory_unmap(source->copy, source->artifact.weights_size);
  nc_memory_unmap(source->made, source->artifact.header.prologue.arena_bytes);
  nc_artifact_free(&source->artifact);
  free(source);
}
