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

/* The index of a fat file; nulls of any other. */
typedef struct nc_fat {
  char *text;
  nc_json *values;
  const nc_json *chosen; /* the variant's */
} nc_fat;

/* Narrow the range of a fat file to the best variant that this machine can run: the one compiled
 * for this very CPU; else the one with the widest vectors, then the most instruction sets, then the
 * first. A file that is not fat stays as it is. Free `fat` with nc_fat_free, also after a failure. */
neocpu_status nc_fat_choose(nc_file *file, nc_fat *fat);

/* Whether the index says of the chosen variant what its header says; it does of no variant. */
int nc_fat_agrees(const nc_fat *fat, const nc_header *header);

void nc_fat_free(nc_fat *fat);

#endif
