/* Fat files: artifacts of one model for several CPUs, behind an index.
 *
 *     NEOCPU-FAT 1\n
 *     {"variants": [{"name", "offset", "size", "target", "machine", "isa_features"}, …]}\n
 *     SHA-256 of the two lines above, 64 hexadecimal digits\n
 *
 * Each variant is a complete artifact and starts on a multiple of 64 KiB. */
#ifndef NEOCPU_FAT_H_
#define NEOCPU_FAT_H_

#include "header.h"
#include "json.h"

enum { NC_MAX_VARIANTS = 32 };

/* A variant as the index has it. */
typedef struct nc_variant {
  const nc_json *item;
  const char *name;
  uint64_t offset, size; /* bytes */
} nc_variant;

/* The index of a fat file; zeros of any other. */
typedef struct nc_fat {
  char *text;
  nc_json *values;
  nc_variant variants[NC_MAX_VARIANTS];
  size_t count;
  size_t chosen;       /* of the variants; `count` if this machine can run none */
  char obstacles[768]; /* why it cannot run those that it cannot */
} nc_fat;

/* Read the index of a fat file, and choose the best variant that this machine can run: the one
 * compiled for this very CPU; else the one with the widest vectors, then the most instruction sets,
 * then the first. Free `fat` with nc_fat_free, also after a failure. */
neocpu_status nc_fat_read(const nc_file *file, nc_fat *fat);

/* Refuse a file of which this machine can run nothing. */
neocpu_status nc_fat_refuse(const nc_file *file, const nc_fat *fat);

/* Whether the index says of a variant what its header says. */
int nc_fat_agrees(const nc_variant *variant, const nc_header *header);

void nc_fat_free(nc_fat *fat);

#endif
