#include "artifact.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "elf.h"
#include "error.h"
#include "fat.h"
#include "features.h"

#define REMEDY "compile the model again with `neocpu compile`"

enum { MAX_HEADER = 16 << 20 };

enum { HEADER, WEIGHTS, OUTCOME, DIGEST, SECTIONS };

static neocpu_status damaged(const nc_file *file, const char *problem) {
  return nc_fail(NEOCPU_ARTIFACT, "%s is damaged: %s; " REMEDY, file->path, problem);
}

/* Check the sections' order: weights, header, outcome, digests, which end the file. */
static neocpu_status check_sections(const nc_file *file, const nc_section *sections) {
  const nc_section *header = &sections[HEADER], *weights = &sections[WEIGHTS];
  const nc_section *outcome = &sections[OUTCOME], *digest = &sections[DIGEST];
  if (!header->found || !weights->found || !digest->found) {
    return nc_fail(NEOCPU_ARTIFACT,
                   "%s is a shared library but not a neocpu artifact (no .neocpu section): " REMEDY,
                   file->path);
  }
  const uint64_t weights_end = weights->offset + weights->size;
  if (digest->size != 2 * NC_SHA256_SIZE || digest->offset + digest->size != file->size) {
    return damaged(file, "bytes are missing or added at its end");
  }
  const uint64_t header_end = header->offset + header->size;
  if (header->offset < weights_end || header_end > digest->offset ||
      (outcome->found &&
       (outcome->offset < header_end || outcome->offset + outcome->size > digest->offset)) ||
      file->size - weights_end > MAX_HEADER || (file->offset + weights->offset) % NC_ALIGN != 0) {
    return damaged(file, "its sections are out of order");
  }
  return NEOCPU_OK;
}

/* Return the header's text with the outcome, if there is any, as its last member; free() it. A zero
 * lies behind it. All of it is read as one document: an outcome may add members, which the header's
 * author could have written too, but none that the header has. */
static char *join_metadata(const char *header, size_t size, const char *outcome, size_t more,
                           size_t *length) {
  static const char key[] = ",\"outcome\":";
  char *text = malloc(size + sizeof key + more + 2);
  if (text == NULL) return NULL;
  memcpy(text, header, size);
  while (size > 0 && text[size - 1] == '\n') --size;
  if (more > 0) { /* a header that does not end in a brace stays malformed */
    if (size > 0 && text[size - 1] == '}') --size;
    memcpy(text + size, key, sizeof key - 1);
    size += sizeof key - 1;
    memcpy(text + size, outcome, more);
    size += more;
    text[size++] = '}';
  }
  text[size] = 0;
  *length = size;
  return text;
}

/* Check the digest of `code`, which is what lies before the weights, and `rest`, what lies behind
 * them; read the header in there. */
static neocpu_status read_body(const nc_file *file, const nc_section *sections, char *rest,
                               const char *machine, nc_artifact *artifact) {
  const nc_section *header = &sections[HEADER], *weights = &sections[WEIGHTS];
  const nc_section *outcome = &sections[OUTCOME];
  const uint64_t start = weights->offset + weights->size;
  const uint8_t *digests = (const uint8_t *)rest + (sections[DIGEST].offset - start);
  uint8_t found[NC_SHA256_SIZE];
  size_t length;
  nc_sha256 hash;
  nc_sha256_start(&hash);
  nc_sha256_update(&hash, artifact->code, artifact->code_size);
  nc_sha256_update(&hash, rest, sections[DIGEST].offset - start);
  nc_sha256_finish(&hash, found);
  if (memcmp(found, digests, sizeof found) != 0) {
    return damaged(file, "its checksum does not match");
  }
  memcpy(artifact->weights_digest, digests + NC_SHA256_SIZE, NC_SHA256_SIZE);
  artifact->metadata = join_metadata(rest + (header->offset - start), header->size,
                                     outcome->found ? rest + (outcome->offset - start) : NULL,
                                     outcome->found ? outcome->size : 0, &length);
  char *copy = artifact->metadata == NULL ? NULL : malloc(length + 1);
  if (copy == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  memcpy(copy, artifact->metadata, length + 1);
  const neocpu_status status =
      nc_header_read(file->path, copy, length, weights->size, &artifact->header);
  if (status == NEOCPU_OK && strcmp(artifact->header.machine, machine) != 0) {
    return nc_fail(NEOCPU_ARTIFACT, "%s: header and code disagree on the machine; " REMEDY,
                   file->path);
  }
  return status;
}

static neocpu_status map(const nc_file *file, uint64_t offset, size_t size, nc_artifact *artifact) {
  const size_t before = offset % (uint64_t)sysconf(_SC_PAGESIZE);
  void *mapping =
      mmap(NULL, before + size, PROT_READ, MAP_PRIVATE, file->fd, (off_t)(offset - before));
  if (mapping == MAP_FAILED) {
    return nc_fail(NEOCPU_FAILURE, "cannot map the weights of %s: %s", file->path,
                   strerror(errno));
  }
  /* This comes before the first read: pages not yet in the page cache are then read as huge ones. */
  madvise(mapping, before + size, MADV_HUGEPAGE);
  artifact->mapping = mapping;
  artifact->mapping_size = before + size;
  artifact->weights = (const uint8_t *)mapping + before;
  return NEOCPU_OK;
}

static neocpu_status copy(const nc_file *file, const uint8_t *data, size_t size,
                          nc_artifact *artifact) {
  void *memory =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return nc_fail(NEOCPU_FAILURE, "out of memory for the weights of %s", file->path);
  }
  artifact->mapping = memory;
  artifact->mapping_size = size;
  artifact->weights = memcpy(memory, data, size);
  return NEOCPU_OK;
}

static neocpu_status map_weights(const nc_file *file, nc_artifact *artifact) {
  const uint64_t offset = artifact->weights_offset;
  if (artifact->weights_size == 0) return NEOCPU_OK;
  if (file->data == NULL) return map(file, offset, artifact->weights_size, artifact);
  if ((uintptr_t)(file->data + offset) % NC_ALIGN != 0) {
    return copy(file, file->data + offset, artifact->weights_size, artifact);
  }
  artifact->weights = file->data + offset;
  return NEOCPU_OK;
}

static neocpu_status read_artifact(const nc_file *file, nc_artifact *artifact) {
  nc_section sections[SECTIONS] = {
      [HEADER] = {.name = ".neocpu"},
      [WEIGHTS] = {.name = ".neocpu.weights"},
      [OUTCOME] = {.name = ".neocpu.outcome"},
      [DIGEST] = {.name = ".neocpu.sha256"},
  };
  const char *machine;
  void *rest;
  if (file->size == 0) return nc_fail(NEOCPU_ARTIFACT, "%s is empty: " REMEDY, file->path);
  neocpu_status status = nc_elf_read(file, sections, SECTIONS, &machine);
  if (status == NEOCPU_OK) status = check_sections(file, sections);
  if (status != NEOCPU_OK) return status;
  const uint64_t start = sections[WEIGHTS].offset + sections[WEIGHTS].size;
  artifact->code_size = sections[WEIGHTS].offset;
  artifact->weights_offset = file->offset + sections[WEIGHTS].offset;
  artifact->weights_size = sections[WEIGHTS].size;
  status = nc_file_read_new(file, 0, artifact->code_size, &artifact->code);
  if (status != NEOCPU_OK) return status;
  status = nc_file_read_new(file, start, file->size - start, &rest);
  if (status != NEOCPU_OK) return status;
  status = read_body(file, sections, rest, machine, artifact);
  free(rest);
  return status;
}

neocpu_status nc_artifact_read(const nc_file *file, const nc_variant *variant,
                               nc_artifact *artifact) {
  nc_file part = *file;
  const size_t room = strlen(file->path) + (variant == NULL ? 0 : strlen(variant->name)) + 4;
  *artifact = (nc_artifact){.where = malloc(room)};
  if (artifact->where == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  strcpy(artifact->where, file->path);
  part.path = artifact->where;
  if (variant != NULL) {
    snprintf(artifact->where, room, "%s (%s)", file->path, variant->name);
    part.offset += variant->offset;
    part.size = variant->size;
  }
  neocpu_status status = read_artifact(&part, artifact);
  if (status == NEOCPU_OK && variant != NULL && !nc_fat_agrees(variant, &artifact->header)) {
    status = nc_fail(NEOCPU_ARTIFACT, "%s: index and header disagree on the target; " REMEDY,
                     artifact->where);
  }
  if (status != NEOCPU_OK) nc_artifact_free(artifact);
  return status;
}

neocpu_status nc_artifact_open(const nc_file *file, nc_artifact *artifact) {
  nc_fat fat;
  *artifact = (nc_artifact){0};
  neocpu_status status = nc_fat_read(file, &fat);
  if (status == NEOCPU_OK && fat.count > 0 && fat.chosen == fat.count) {
    status = nc_fat_refuse(file, &fat);
  }
  if (status == NEOCPU_OK) {
    status = nc_artifact_read(file, fat.count > 0 ? &fat.variants[fat.chosen] : NULL, artifact);
  }
  nc_fat_free(&fat);
  if (status == NEOCPU_OK) status = map_weights(file, artifact);
  if (status != NEOCPU_OK) nc_artifact_free(artifact);
  return status;
}

/* Bytes of inputs and outputs. */
static double bytes_of_ends(const nc_program *program) {
  double bytes = 0;
  for (size_t i = 0; i < program->input_count; ++i) bytes += (double)program->inputs[i].bytes;
  for (size_t i = 0; i < program->output_count; ++i) bytes += (double)program->outputs[i].bytes;
  return bytes;
}

int nc_artifact_obstacle(const nc_artifact *artifact, char *reason, size_t size) {
  const nc_header *header = &artifact->header;
  struct utsname host;
  char missing[256];
  uname(&host);
  if (strcmp(header->machine, host.machine) != 0) {
    snprintf(reason, size, "this host is %s", host.machine);
    return 1;
  }
  if (nc_missing_features(header->features, header->feature_count, missing, sizeof missing) > 0) {
    snprintf(reason, size, "this host lacks %s", missing);
    return 1;
  }
  const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  double needed = 0;
  for (size_t i = 0; i < header->program_count; ++i) {
    const double tensors = bytes_of_ends(&header->programs[i]);
    if (tensors > needed) needed = tensors;
  }
  needed += (double)header->arena_bytes + (double)header->prologue.arena_bytes;
  if (needed <= memory) return 0;
  snprintf(reason, size, "its tensors take %.1f GB and this host has %.1f GB of memory",
           needed / 1e9, memory / 1e9);
  return 1;
}

neocpu_status nc_artifact_check_host(const nc_artifact *artifact) {
  char reason[NC_OBSTACLE_SIZE];
  if (!nc_artifact_obstacle(artifact, reason, sizeof reason)) return NEOCPU_OK;
  return nc_fail(NEOCPU_TARGET,
                 "%s is compiled for %s (%s), %s: compile the model again with --target host",
                 artifact->where, artifact->header.machine, artifact->header.target, reason);
}

neocpu_status nc_artifact_damaged(const nc_artifact *artifact) {
  return nc_fail(NEOCPU_ARTIFACT, "%s: the weights are damaged; " REMEDY, artifact->where);
}

void nc_artifact_free(nc_artifact *artifact) {
  nc_header_free(&artifact->header);
  free(artifact->where);
  free(artifact->metadata);
  free(artifact->code);
  if (artifact->mapping != NULL) munmap(artifact->mapping, artifact->mapping_size);
  *artifact = (nc_artifact){0};
}
