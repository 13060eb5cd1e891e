/* An artifact file: checked, its weights mapped, its code at hand, and none of it run.
 *
 *     ELF .. code .. | pad | .neocpu.weights | .neocpu | section tables | .neocpu.sha256
 *
 * The last section holds two SHA-256 digests: of everything but the weights, and of the digests of
 * the weights' pieces. */
#ifndef NEOCPU_ARTIFACT_H_
#define NEOCPU_ARTIFACT_H_

#include "header.h"
#include "sha256.h"

typedef struct nc_artifact {
  nc_header header;
  char *metadata; /* the header as it is in the file */
  const uint8_t *weights; /* read-only, shared with every process that maps the file */
  size_t weights_size;
  uint8_t weights_digest[NC_SHA256_SIZE];
  void *code; /* what nc_code_load takes: the file up to its weights */
  size_t code_size;
  void *mapping; /* of the file, or a copy */
  size_t mapping_size;
} nc_artifact;

/* Open an artifact and check everything but the weights. Of a fat file, the variant that suits this
 * machine best. Memory must stay as it is as long as the artifact; of memory that does not start on
 * a multiple of NC_ALIGN bytes the weights are copied. Free with nc_artifact_free. */
neocpu_status nc_artifact_open(nc_file *file, nc_artifact *artifact);

/* Whether this machine can run the code: kind, instruction sets, memory. */
neocpu_status nc_artifact_check_host(const nc_artifact *artifact, const char *path);

void nc_artifact_free(nc_artifact *artifact);

#endif
