/* neocpu_inspect and its helpers, which look into a file without loading it. */
#include <stdlib.h>
#include <string.h>

#include "artifact.h"
#include "error.h"

typedef struct part {
  nc_artifact artifact;
  char obstacle[NC_OBSTACLE_SIZE];
  nc_sha256 sums;    /* the digest of the checksums so far */
  uint64_t checked;  /* bytes */
} part;

typedef struct contents {
  neocpu_contents shown; /* first: what callers have is a pointer to it */
  char *path; /* for messages */
  nc_file file;
  nc_fat fat;
  neocpu_variant *variants;
  part *parts;
} contents;

static neocpu_status read_part(contents *made, size_t index) {
  const nc_variant *variant = made->fat.count > 0 ? &made->fat.variants[index] : NULL;
  part *mine = &made->parts[index];
  nc_artifact *artifact = &mine->artifact;
  const neocpu_status status = nc_artifact_read(&made->file, variant, artifact);
  if (status != NEOCPU_OK) return status;
  nc_sha256_start(&mine->sums);
  free(artifact->code);
  artifact->code = NULL;
  const int hindered = nc_artifact_obstacle(artifact, mine->obstacle, sizeof mine->obstacle);
  made->variants[index] = (neocpu_variant){
      .name = variant == NULL ? "" : variant->name,
      .offset = variant == NULL ? 0 : variant->offset,
      .size = variant == NULL ? made->file.size : variant->size,
      .code_size = artifact->code_size,
      .weights_size = artifact->weights_size,
      .metadata = artifact->metadata,
      .obstacle = hindered ? mine->obstacle : NULL,
  };
  return NEOCPU_OK;
}

static neocpu_status inspect(contents *made) {
  neocpu_status status = nc_fat_read(&made->file, &made->fat);
  if (status != NEOCPU_OK) return status;
  const size_t count = made->fat.count > 0 ? made->fat.count : 1;
  made->variants = calloc(count, sizeof *made->variants);
  made->parts = calloc(count, sizeof *made->parts);
  if (made->variants == NULL || made->parts == NULL) {
    return nc_fail(NEOCPU_FAILURE, "out of memory for the contents of %s", made->file.path);
  }
  made->shown = (neocpu_contents){made->file.fd, made->variants, count, made->fat.chosen};
  for (size_t i = 0; i < count && status == NEOCPU_OK; ++i) status = read_part(made, i);
  const int refused = made->fat.chosen < count && made->variants[made->fat.chosen].obstacle != NULL;
  if (refused) made->shown.loadable = count;
  return status;
}

neocpu_status neocpu_inspect(const char *path, neocpu_contents **shown) {
  if (shown == NULL) return nc_fail(NEOCPU_USAGE, "the place for the contents is a null pointer");
  *shown = NULL;
  if (path == NULL) return nc_fail(NEOCPU_USAGE, "the path of the model is a null pointer");
  contents *made = calloc(1, sizeof *made);
  if (made == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  made->file.fd = -1;
  made->path = strdup(path);
  neocpu_status status = made->path == NULL ? nc_fail(NEOCPU_FAILURE, "out of memory")
                                            : nc_file_open(made->path, &made->file);
  if (status == NEOCPU_OK) status = inspect(made);
  if (status == NEOCPU_OK) {
    *shown = &made->shown;
  } else {
    neocpu_contents_free(&made->shown);
  }
  return status;
}

neocpu_status neocpu_check_weights(neocpu_contents *shown, size_t variant, uint64_t *checked) {
  if (shown == NULL || checked == NULL || variant >= shown->count) {
    return nc_fail(NEOCPU_USAGE, "the contents are a null pointer, or have no such variant");
  }
  contents *made = (contents *)shown;
  part *mine = &made->parts[variant];
  const uint64_t left = mine->artifact.weights_size - mine->checked;
  const size_t size = left < NC_WEIGHTS_PIECE ? left : NC_WEIGHTS_PIECE;
  uint8_t digest[NC_SHA256_SIZE];
  if (size > 0) {
    void *piece;
    neocpu_status status = nc_file_read_new(
        &made->file, mine->artifact.weights_offset + mine->checked, size, &piece);
    if (status != NEOCPU_OK) return status;
    uint32_t sums[NC_SUMS];
    neocpu_checksums(piece, size, sums);
    free(piece);
    nc_sha256_update(&mine->sums, sums, (size + NC_CHECKED - 1) / NC_CHECKED * sizeof *sums);
  }
  *checked = mine->checked += size;
  if (mine->checked < mine->artifact.weights_size) return NEOCPU_OK;
  nc_sha256 all = mine->sums; /* to be finished once more, if asked again */
  nc_sha256_finish(&all, digest);
  if (memcmp(digest, mine->artifact.weights_digest, sizeof digest) == 0) return NEOCPU_OK;
  return nc_artifact_damaged(&mine->artifact);
}

void neocpu_contents_free(neocpu_contents *shown) {
  if (shown == NULL) return;
  contents *made = (contents *)shown;
  for (size_t i = 0; made->parts != NULL && i < shown->count; ++i) {
    nc_artifact_free(&made->parts[i].artifact);
  }
  free(made->parts);
  free(made->variants);
  nc_fat_free(&made->fat);
  nc_file_close(&made->file);
  free(made->path);
  free(made);
}
