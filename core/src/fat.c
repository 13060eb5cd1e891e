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

enum { BLOCK = 1 << 16, MAX_FEATURES = 256, MAX_NAME = 63 };

static const char family[] = "NEOCPU-FAT ", magic[] = "NEOCPU-FAT 1\n";

static neocpu_status malformed(const nc_file *file, const char *problem) {
  return nc_fail(NEOCPU_ARTIFACT, "%s has a malformed index: %s; " REMEDY, file->path, problem);
}

/* The criteria between variants. */
typedef struct merit {
  int is_host; /* compiled for this very CPU */
  size_t vector_bytes, feature_count;
} merit;

/* Names of instruction sets; return 0 if the value is no array of such. */
static int read_features(const nc_json *array, const char **features, merit *read) {
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

/* The name of a variant: printable characters, and none of those before has it; null otherwise. */
static const char *read_name(const nc_json *item, const nc_fat *fat) {
  const char *name = nc_json_text(nc_json_member(item, "name"));
  if (name == NULL || *name == '\0' || strlen(name) > MAX_NAME) return NULL;
  for (const char *c = name; *c != '\0'; ++c) {
    if (*c < ' ' || *c > '~') return NULL;
  }
  for (size_t i = 0; i < fat->count; ++i) {
    if (strcmp(fat->variants[i].name, name) == 0) return NULL;
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
static int read_variant(nc_variant *variant, merit *read, char *obstacle, size_t size) {
  const nc_json *item = variant->item;
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
  variant->offset = (uint64_t)offset;
  variant->size = (uint64_t)bytes;
  read->is_host = names_host(target);
  obstacle[0] = '\0';
  uname(&host);
  if (strcmp(machine, host.machine) != 0) {
    snprintf(obstacle, size, "%s (for %s)", variant->name, machine);
  } else if (nc_missing_features(features, read->feature_count, missing, sizeof missing) > 0) {
    snprintf(obstacle, size, "%s (lacks %s)", variant->name, missing);
  }
  return 1;
}

static int better(const merit *one, const merit *other) {
  if (one->is_host != other->is_host) return one->is_host;
  if (one->vector_bytes != other->vector_bytes) return one->vector_bytes > other->vector_bytes;
  return one->feature_count > other->feature_count;
}

static neocpu_status read_variants(const nc_file *file, const nc_json *variants, nc_fat *fat) {
  merit best = {0}, read;
  uint64_t end = 1; /* of the variant before, or of the index */
  size_t chosen = NC_MAX_VARIANTS;
  char obstacle[256];
  const nc_json *item = nc_json_first(variants);
  if (item == NULL || variants->size > NC_MAX_VARIANTS) return malformed(file, "variants");
  for (size_t i = 0; i < variants->size; ++i, item = nc_json_next(item)) {
    nc_variant *variant = &fat->variants[i];
    *variant = (nc_variant){.item = item, .name = read_name(item, fat)};
    if (variant->name == NULL) return malformed(file, "a variant's name");
    if (!read_variant(variant, &read, obstacle, sizeof obstacle)) {
      return malformed(file, "a variant");
    }
    if (variant->size == 0 || variant->offset != (end + BLOCK - 1) / BLOCK * BLOCK ||
        !nc_file_contains(file, variant->offset, variant->size)) {
      return malformed(file, "a variant is not behind the one before, or outside the file");
    }
    end = variant->offset + variant->size;
    fat->count = i + 1;
    if (obstacle[0] == '\0') {
      if (chosen == NC_MAX_VARIANTS || better(&read, &best)) best = read, chosen = i;
    } else if (strlen(fat->obstacles) + strlen(obstacle) + 3 < sizeof fat->obstacles) {
      strcat(strcat(fat->obstacles, fat->obstacles[0] == '\0' ? "" : "; "), obstacle);
    }
  }
  fat->chosen = chosen < fat->count ? chosen : fat->count;
  return end == file->size ? NEOCPU_OK
                           : malformed(file, "the file goes on behind the last variant");
}

/* The index's second line, checked; null after a message. */
static char *find_document(const nc_file *file, char *start, size_t *length) {
  uint8_t digest[NC_SHA256_SIZE];
  char digits[2 * NC_SHA256_SIZE + 1];
  nc_sha256 hash;
  if (strncmp(start, magic, sizeof magic - 1) != 0) {
    malformed(file, "it is a fat file of a version that this neocpu does not read");
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

static neocpu_status read_index(const nc_file *file, nc_fat *fat) {
  const char *problem;
  size_t length;
  char *document = find_document(file, fat->text, &length);
  if (document == NULL) return NEOCPU_ARTIFACT;
  fat->values = nc_json_read(document, length, &problem);
  if (fat->values == NULL) return malformed(file, problem);
  return read_variants(file, nc_json_member(fat->values, "variants"), fat);
}

neocpu_status nc_fat_read(const nc_file *file, nc_fat *fat) {
  char begin[sizeof family - 1];
  *fat = (nc_fat){0};
  if (file->size < sizeof begin) return NEOCPU_OK;
  neocpu_status status = nc_file_read(file, 0, begin, sizeof begin);
  if (status != NEOCPU_OK || memcmp(begin, family, sizeof begin) != 0) return status;
  void *start;
  status = nc_file_read_new(file, 0, file->size < BLOCK ? file->size : BLOCK, &start);
  fat->text = start;
  return status == NEOCPU_OK ? read_index(file, fat) : status;
}

neocpu_status nc_fat_refuse(const nc_file *file, const nc_fat *fat) {
  struct utsname host;
  uname(&host);
  return nc_fail(NEOCPU_TARGET,
                 "%s has no variant that this host (%s) can run: %s: compile the model again with "
                 "--target host, or with one more variant in --fat",
                 file->path, host.machine, fat->obstacles);
}

int nc_fat_agrees(const nc_variant *variant, const nc_header *header) {
  const nc_json *features = nc_json_member(variant->item, "isa_features");
  const nc_json *feature = nc_json_first(features);
  if (!nc_json_equals(nc_json_member(variant->item, "target"), header->target) ||
      !nc_json_equals(nc_json_member(variant->item, "machine"), header->machine) ||
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
  *fat = (nc_fat){0};
}
