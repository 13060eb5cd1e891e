#include "fat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "error.h"
#include "features.h"
#include "host_cpu.h"
#include "json.h"
#include "sha256.h"

#define REMEDY "compile the model again with `neocpu compile`"

enum { BLOCK = 1 << 16, MAX_VARIANTS = 32, MAX_FEATURES = 256, MAX_NAME = 63 };

static const char family[] = "NEOCPU-FAT ", magic[] = "NEOCPU-FAT 1\n";

static neocpu_status malformed(const nc_file *file, const char *problem) {
  return nc_fail(NEOCPU_ARTIFACT, "%s has a malformed index: %s; " REMEDY, file->path, problem);
}

/* What decides between variants. */
typedef struct variant {
  uint64_t offset, size;
  int is_host; /* compiled for this very CPU */
  size_t vector_bytes, feature_count;
} variant;

/* Names of instruction sets; return 0 if the value is no array of such. */
static int read_features(const nc_json *array, const char **features, variant *read) {
  const nc_json *item = nc_json_first(array);
  read->vector_bytes = 16;
  read->feature_count = array != NULL && array->kind == NC_JSON_ARRAY ? array->size : SIZE_MAX;
  if (read->feature_count > MAX_FEATURES) return 0;
  for (size_t i = 0; i < read->feature_count; ++i, item = nc_json_next(item)) {
    features[i] = nc_json_text(item);
    if (features[i] == NULL) return 0;
    const size_t bytes =
        strcmp(features[i], "avx512f") == 0 ? 64 : strcmp(features[i], "avx2") == 0 ? 32 : 16;
    if (bytes > read->vector_bytes) read->vector_bytes = bytes;
  }
  return 1;
}

/* The name of a variant: printable characters, and none of the `count` items of `variants` before
 * has it; null otherwise. */
static const char *read_name(const nc_json *item, const nc_json *variants, uint32_t count) {
  const char *name = nc_json_text(nc_json_member(item, "name"));
  if (name == NULL || *name == '\0' || strlen(name) > MAX_NAME) return NULL;
  for (const char *c = name; *c != '\0'; ++c) {
    if (*c < ' ' || *c > '~') return NULL;
  }
  const nc_json *other = nc_json_first(variants);
  for (uint32_t i = 0; i < count; ++i, other = nc_json_next(other)) {
    if (nc_json_equals(nc_json_member(other, "name"), name)) return NULL;
  }
  return name;
}

/* Whether a target, such as "llvm -mtriple=… -mcpu=znver4", is this machine's CPU. */
static int names_host(const char *target) {
  static const char option[] = " -mcpu=";
  const char *cpu = strstr(target, option), *host = nc_host_cpu();
  if (cpu == NULL || *host == '\0') return 0;
  cpu += sizeof option - 1;
  return strcspn(cpu, " ") == strlen(host) && strncmp(cpu, host, strlen(host)) == 0;
}

/* Read a variant. `obstacle` becomes why this machine cannot run it, or empty. */
static int read_variant(const nc_json *item, const char *name, variant *read, char *obstacle,
                        size_t size) {
  const char *features[MAX_FEATURES], *machine = nc_json_text(nc_json_member(item, "machine"));
  const char *target = nc_json_text(nc_json_member(item, "target"));
  char missing[128];
  struct utsname host;
  int64_t offset, bytes;
  if (machine == NULL || target == NULL ||
      !nc_json_integer(nc_json_member(item, "offset"), &offset) ||
      !nc_json_integer(nc_json_member(item, "size"), &bytes) ||
      !read_features(nc_json_member(item, "isa_features"), features, read)) {
    return 0;
  }
  read->offset = (uint64_t)offset;
  read->size = (uint64_t)bytes;
  read->is_host = names_host(target);
  obstacle[0] = '\0';
  uname(&host);
  if (strcmp(machine, host.machine) != 0) {
    snprintf(obstacle, size, "%s (for %s)", name, machine);
  } else if (nc_missing_features(features, read->feature_count, missing, sizeof missing) > 0) {
    snprintf(obstacle, size, "%s (lacks %s)", name, missing);
  }
  return 1;
}

static int better(const variant *one, const variant *other) {
  if (one->is_host != other->is_host) return one->is_host;
  if (one->vector_bytes != other->vector_bytes) return one->vector_bytes > other->vector_bytes;
  return one->feature_count > other->feature_count;
}

static neocpu_status choose(nc_file *file, const nc_json *variants, const nc_json **chosen) {
  variant best = {0}, read;
  uint64_t end = 1; /* of the variant before, or of the index */
  char obstacle[256], obstacles[768] = "";
  struct utsname host;
  const nc_json *item = nc_json_first(variants);
  uname(&host);
  if (item == NULL || variants->size > MAX_VARIANTS) return malformed(file, "variants");
  for (uint32_t i = 0; i < variants->size; ++i, item = nc_json_next(item)) {
    const char *name = read_name(item, variants, i);
    if (name == NULL) return malformed(file, "a variant's name");
    if (!read_variant(item, name, &read, obstacle, sizeof obstacle)) {
      return malformed(file, "a variant");
    }
    if (read.size == 0 || read.offset != (end + BLOCK - 1) / BLOCK * BLOCK ||
        !nc_file_contains(file, read.offset, read.size)) {
      return malformed(file, "a variant is not behind the one before, or outside the file");
    }
    end = read.offset + read.size;
    if (obstacle[0] == '\0') {
      if (best.size == 0 || better(&read, &best)) best = read, *chosen = item;
    } else if (strlen(obstacles) + strlen(obstacle) + 3 < sizeof obstacles) {
      strcat(strcat(obstacles, obstacles[0] == '\0' ? "" : "; "), obstacle);
    }
  }
  if (end != file->size) {
    return malformed(file, "the file goes on behind the last variant");
  }
  if (best.size == 0) {
    return nc_fail(NEOCPU_TARGET,
                   "%s has no variant that this host (%s) can run: %s: compile the model again with "
                   "--target host, or with one more variant in --fat",
                   file->path, host.machine, obstacles);
  }
  file->offset += best.offset;
  file->size = best.size;
  return NEOCPU_OK;
}

/* The index's second line, checked; null after a message. */
static char *find_document(const nc_file *file, char *start, size_t *length) {
  uint8_t digest[NC_SHA256_SIZE];
  char digits[2 * NC_SHA256_SIZE + 1];
  nc_sha256 hash;
  if (strncmp(start, magic, sizeof magic - 1) != 0) {
    malformed(file, "it is a fat file of another version");
    return NULL;
  }
  char *document = start + sizeof magic - 1;
  const char *end = strchr(document, '\n');
  if (end == NULL || strlen(end) < sizeof digits) {
    malformed(file, "it is truncated");
    return NULL;
  }
  nc_sha256_start(&hash);
  nc_sha256_update(&hash, start, (size_t)(end + 1 - start));
  nc_sha256_finish(&hash, digest);
  for (size_t i = 0; i < sizeof digest; ++i) sprintf(digits + 2 * i, "%02x", digest[i]);
  if (memcmp(end + 1, digits, sizeof digits - 1) != 0 || end[sizeof digits] != '\n') {
    malformed(file, "its checksum does not match");
    return NULL;
  }
  *length = (size_t)(end - document);
  return document;
}

static neocpu_status choose_by_index(nc_file *file, nc_fat *fat) {
  const char *problem;
  size_t length;
  char *document = find_document(file, fat->text, &length);
  if (document == NULL) return NEOCPU_ARTIFACT;
  fat->values = nc_json_read(document, length, &problem);
  if (fat->values == NULL) return malformed(file, problem);
  return choose(file, nc_json_member(fat->values, "variants"), &fat->chosen);
}

neocpu_status nc_fat_choose(nc_file *file, nc_fat *fat) {
  char begin[sizeof family - 1];
  *fat = (nc_fat){0};
  if (file->size < sizeof begin) return NEOCPU_OK;
  neocpu_status status = nc_file_read(file, 0, begin, sizeof begin);
  if (status != NEOCPU_OK || memcmp(begin, family, sizeof begin) != 0) return status;
  void *start;
  status = nc_file_read_new(file, 0, file->size < BLOCK ? file->size : BLOCK, &start);
  fat->text = start;
  return status == NEOCPU_OK ? choose_by_index(file, fat) : status;
}

int nc_fat_agrees(const nc_fat *fat, const nc_header *header) {
  if (fat->chosen == NULL) return 1;
  const nc_json *features = nc_json_member(fat->chosen, "isa_features");
  const nc_json *feature = nc_json_first(features);
  if (!nc_json_equals(nc_json_member(fat->chosen, "target"), header->target) ||
      !nc_json_equals(nc_json_member(fat->chosen, "machine"), header->machine) ||
      features->size != header->feature_count) {
    return 0;
  }
  for (size_t i = 0; i < header->feature_count; ++i, feature = nc_json_next(feature)) {
    if (!nc_json_equals(feature, header->features[i])) return 0;
  }
  return 1;
}

void nc_fat_free(nc_fat *fat) {
  free(fat->values);
  free(fat->text);
}
