/* Headers of models whose calls choose sizes: their program is read anew for each choice. */
#ifndef NEOCPU_SIZED_HEADER_H_
#define NEOCPU_SIZED_HEADER_H_

#include "header.h"

/* Read the sizes and the program for the typical ones of a document, and into `r` what is wrong. */
void nc_sized_header_read(nc_reader *r, const nc_json *root, nc_header *header);

/* Find out how much room the largest sizes need; `path` is for messages. */
neocpu_status nc_sized_header_measure(const char *path, nc_header *header);

/* Read the program for sizes that have these values into `program_size` bytes. Return null, or what
 * field is malformed then. */
const char *nc_sized_header_bind(const nc_header *header, const int64_t *values, void *memory,
                                 nc_program *program);

/* Write the extents of all inputs, one after another, and then of all outputs for sizes that have
 * these values. Return null, or what field is malformed then. */
const char *nc_sized_header_extents(const nc_header *header, const int64_t *values,
                                    int64_t *extents);

/* Refuse a header of which a field is malformed for some sizes. */
neocpu_status nc_sized_header_malformed(const char *path, const nc_header *header,
                                        const int64_t *sizes, const char *field);

#endif
