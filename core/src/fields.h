/* Fields of the JSON header, read strictly: what is not as it must be is noted. */
#ifndef NEOCPU_FIELDS_H_
#define NEOCPU_FIELDS_H_

#include "json.h"
#include "neocpu.h"

enum { NC_MAX_RANK = 32 /* of tensors with data */ };

/* The state of reading: the place of results, and the first field that was wrong. */
typedef struct nc_reader {
  char *free; /* next byte of the header's memory, which is large enough for any document */
  const char *wrong;
  const int64_t *values; /* what [k] stands for in a model of many sizes */
  size_t value_count;    /* 0: nothing depends on sizes */
} nc_reader;

/* Note a wrong field, unless one was noted; return 0. */
int nc_wrong(nc_reader *r, const char *field);

/* Memory of so many things, all zero. */
void *nc_new_array(nc_reader *r, size_t count, size_t size);

/* A copy of a string; null if it is none. */
const char *nc_read_string(nc_reader *r, const nc_json *value, const char *field);

/* Write a number of bytes, or of anything else; return whether it is one. */
int nc_read_size(nc_reader *r, const nc_json *value, const char *field, size_t *size);

/* The same of what may depend on sizes: then it is [k], the value of that number. */
int nc_read_sized(nc_reader *r, const nc_json *value, const char *field, size_t *size);

/* Write an integer of any sign, which may be a value too; return whether it is one. */
int nc_read_integer(nc_reader *r, const nc_json *value, const char *field, int64_t *integer);

/* Write the number k of a reference [k]; return whether it is one, and below `count`. */
int nc_read_reference(const nc_json *value, size_t count, size_t *number);

/* Memory for the elements of an array, of `size` bytes each; null if it is none. */
void *nc_read_array(nc_reader *r, const nc_json *value, const char *field, size_t size,
                    size_t *count);

/* Write dtype and shape, whose extents may depend on sizes, and from them bytes; return whether they
 * are such. */
int nc_read_type(nc_reader *r, const nc_json *dtype, const nc_json *shape, const char *field,
                 neocpu_spec *spec);

/* DLPack's type code and bits of a dtype that a header has. */
void nc_dtype(const char *dtype, uint8_t *code, uint8_t *bits);

#endif
