/* The code of an artifact in memory, ready to run.
 *
 * The dynamic loader would do, but for what we need of it: to load bytes and no file, where nothing
 * is mounted or linked dynamically, as often as asked, whatever else the process has loaded. An
 * artifact is linked for this (position-independent, its entry point is its table of kernels), and
 * calls nothing but a few functions of the C library. */
#ifndef NEOCPU_IMAGE_H_
#define NEOCPU_IMAGE_H_

#include <stddef.h>
#include <stdint.h>

#include "neocpu.h"

enum { NC_MAX_SEGMENTS = 16 /* linkers make four to six */ };

typedef struct nc_segment {
  uintptr_t start;
  uint64_t size; /* bytes */
  int access;    /* as mprotect has it */
} nc_segment;

typedef struct nc_image {
  void *base;
  size_t size;
  void *entry; /* the entry point of the ELF header */
  nc_segment segments[NC_MAX_SEGMENTS];
  size_t segment_count;
} nc_image;

/* Copy the segments of an ELF shared object to where they can be run, and bind what it calls. What
 * it says of itself is checked before it is believed. `path` is for messages. Free with
 * nc_image_free. */
neocpu_status nc_image_load(const char *path, const void *bytes, size_t size, nc_image *image);

/* The number of bytes from `place` to the end of its segment; 0 where no segment that allows
 * such `access` (PROT_EXEC, say) has it. */
uint64_t nc_image_room(const nc_image *image, const void *place, int access);

void nc_image_free(nc_image *image);

#endif
