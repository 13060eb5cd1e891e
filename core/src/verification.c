#include "verification.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "threads.h"

static void *check_pieces(void *data) {
  nc_verification *verification = data;
  const nc_artifact *artifact = verification->artifact;
  for (;;) {
    const size_t piece = atomic_fetch_add(&verification->next, 1);
    if (piece >= verification->piece_count) return NULL;
    const size_t start = piece * NC_WEIGHTS_PIECE, left = artifact->weights_size - start;
    neocpu_checksums(artifact->weights + start, left < NC_WEIGHTS_PIECE ? left : NC_WEIGHTS_PIECE,
                     verification->sums + piece * NC_SUMS);
  }
}

neocpu_status nc_verification_start(nc_verification *verification, const nc_artifact *artifact,
                                    int threads) {
  const size_t count = (artifact->weights_size + NC_WEIGHTS_PIECE - 1) / NC_WEIGHTS_PIECE;
  *verification = (nc_verification){.artifact = artifact, .piece_count = count};
  pthread_mutex_init(&verification->lock, NULL);
  verification->sums = malloc((count + 1) * NC_SUMS * sizeof *verification->sums);
  if (verification->sums == NULL) {
    return nc_fail(NEOCPU_FAILURE, "out of memory for the check of the weights");
  }
  if (threads > NC_VERIFIERS) threads = NC_VERIFIERS;
  for (size_t i = 0; i < (size_t)threads && i < count; ++i) {
    const neocpu_status status =
        nc_thread_start(&verification->threads[i], check_pieces, verification);
    if (status != NEOCPU_OK) return status;
    ++verification->thread_count;
  }
  return NEOCPU_OK;
}

static void join(nc_verification *verification) {
  for (int i = 0; i < verification->thread_count; ++i) {
    pthread_join(verification->threads[i], NULL);
  }
  verification->thread_count = 0;
}

static neocpu_status compare(const nc_verification *verification) {
  uint8_t found[NC_SHA256_SIZE];
  nc_sha256 all;
  nc_sha256_start(&all);
  const size_t count = (verification->artifact->weights_size + NC_CHECKED - 1) / NC_CHECKED;
  nc_sha256_update(&all, verification->sums, count * sizeof *verification->sums);
  nc_sha256_finish(&all, found);
  const uint8_t *wanted = verification->artifact->weights_digest;
  return memcmp(found, wanted, sizeof found) == 0 ? NEOCPU_OK : NEOCPU_ARTIFACT;
}

neocpu_status nc_verification_wait(nc_verification *verification) {
  if (!atomic_load_explicit(&verification->over, memory_order_acquire)) {
    pthread_mutex_lock(&verification->lock);
    if (!atomic_load(&verification->over)) {
      /* One caller alone helps: sums of another's last piece might not be there yet. */
      check_pieces(verification);
      join(verification);
      verification->verdict = compare(verification);
      atomic_store_explicit(&verification->over, 1, memory_order_release);
    }
    pthread_mutex_unlock(&verification->lock);
  }
  if (verification->verdict == NEOCPU_OK) return NEOCPU_OK;
  return nc_artifact_damaged(verification->artifact);
}

void nc_verification_end(nc_verification *verification) {
  if (verification->artifact == NULL) return;
  atomic_store(&verification->next, verification->piece_count);
  join(verification);
  free(verification->sums);
  pthread_mutex_destroy(&verification->lock);
  *verification = (nc_verification){0};
}
