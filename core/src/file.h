/* A range of a regular file, read without mapping it (a file cut short meanwhile is an error then,
 * not a signal), or of memory. */
#ifndef NEOCPU_FILE_H_
#define NEOCPU_FILE_H_

#include <stddef.h>
#include <stdint.h>

#include "neocpu.h"

typedef struct nc_file {
  int fd;              /* or -1 */
  const uint8_t *data; /* of memory */
  const char *path;    /* for messages */
  uint64_t offset; /* of the range, bytes */
  uint64_t size;
} nc_file;

/* Open a regular file, all of it. */
neocpu_status nc_file_open(const char *path, nc_file *file);

/* Memory as a file. */
nc_file nc_file_of_memory(const void *data, size_t size);

void nc_file_close(nc_file *file);

/* Read `size` bytes at an offset in the range, which must contain them. */
neocpu_status nc_file_read(const nc_file *file, uint64_t offset, void *data, size_t size);

/* The same, into new memory (never null, one zero byte longer) to be freed by free(). */
neocpu_status nc_file_read_new(const nc_file *file, uint64_t offset, uint64_t size, void **data);

/* Whether `size` bytes at an offset lie in the range. */
int nc_file_contains(const nc_file *file, uint64_t offset, uint64_t size);

#endif
