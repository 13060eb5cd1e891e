/* An artifact file: checked, its weights mapped, its code at hand, and none of it run.
 *
 *     ELF .. code .. | pad | .neocpu.weights | .neocpu | tables | .neocpu.outcome | .neocpu.sha256
 *
 * The outcome, which older files lack, is what runs of the file told: JSON for the header's member
 * "outcome". The last section holds two SHA-256 digests: of everything but the weights, and of the
 * checksums of their pieces (checksum.h). */
#ifndef NEOCPU_ARTIFACT_H_
#define NEOCPU_ARTIFACT_H_

#include "checksum.h"
#include "fat.h"
#include "header.h"
#include "sha256.h"

typedef struct nc_artifact {
  nc_header header;
  char *where;    /* path and variant, for messages */
  char *metadata; /* the header with the outcome as its last member */
  const uint8_t *weights; /* read-only, shared with every process that maps the file */
  uint64_t weights_offset; /* in the file */
  size_t weights_size;
  uint8_t weights_digest[NC_SHA256_SIZE];
  void *code; /* the file up to its weights, for nc_code_load */
  size_t code_size;
  void *mapping; /* of the file, or a copy */
  size_t mapping_size;
} nc_artifact;

enum {
  NC_SUMS = NC_WEIGHTS_PIECE / NC_CHECKED, /* checksums of what is checked at a time */
  NC_OBSTACLE_SIZE = 320 /* bytes of any reason */
};

/* Read an artifact and check everything but the weights, which are not mapped: a variant of a fat
 * file, or, null, a file that is none. Free with nc_artifact_free. */
neocpu_status nc_artifact_read(const nc_file *file, const nc_variant *variant,
                               nc_artifact *artifact);

/* The same of the variant that suits this machine best, its weights mapped. Memory must stay as it
 * is as long as the artifact; of memory that does not start on a multiple of NC_ALIGN bytes the
 * weights are copied. */
neocpu_status nc_artifact_open(const nc_file *file, nc_artifact *artifact);

/* Whether this machine cannot run the code, and why: kind, instruction sets, memory. */
int nc_artifact_obstacle(const nc_artifact *artifact, char *reason, size_t size);

/* Refuse an artifact for which there is an obstacle. */
neocpu_status nc_artifact_check_host(const nc_artifact *artifact);

/* Refuse an artifact whose weights are not those that were written. */
neocpu_status nc_artifact_damaged(const nc_artifact *artifact);

void nc_artifact_free(nc_artifact *artifact);

#endif
