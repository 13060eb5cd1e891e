#include "fields.h"

#include <string.h>

/* Far more than any network needs, and few enough that nothing overflows or takes long. */
enum { MAX_TENSORS = 1 << 16 };
static const int64_t MAX_BYTES = (int64_t)1 << 40, MAX_ELEMENTS = (int64_t)1 << 37;

static const struct {
  const char *name;
  uint8_t code, bits; /* DLPack's */
} dtypes[] = {{"float32", 2, 32}, {"float64", 2, 64}, {"float16", 2, 16}, {"bfloat16", 4, 16},
              {"int8", 0, 8},     {"int16", 0, 16},   {"int32", 0, 32},   {"int64", 0, 64},
              {"uint8", 1, 8},    {"uint16", 1, 16},  {"uint32", 1, 32},  {"uint64", 1, 64},
              {"bool", 6, 8}};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

void nc_dtype(const char *dtype, uint8_t *code, uint8_t *bits) {
  for (int i = 0; i < DTYPE_COUNT; ++i) {
    if (strcmp(dtypes[i].name, dtype) == 0) *code = dtypes[i].code, *bits = dtypes[i].bits;
  }
}

int nc_wrong(nc_reader *r, const char *field) {
  if (r->wrong == NULL) r->wrong = field;
  return 0;
}

void *nc_new_array(nc_reader *r, size_t count, size_t size) {
  void *array = r->free;
  r->free += (count * size + 7) / 8 * 8;
  return array;
}

const char *nc_read_string(nc_reader *r, const nc_json *value, const char *field) {
  const char *text = nc_json_text(value);
  if (text == NULL) {
    nc_wrong(r, field);
    return NULL;
  }
  return memcpy(nc_new_array(r, value->length + 1, 1), text, value->length + 1);
}

static int write_size(nc_reader *r, int known, int64_t integer, const char *field, size_t *size) {
  if (!known || integer > MAX_BYTES) return nc_wrong(r, field);
  *size = (size_t)integer;
  return 1;
}

int nc_read_size(nc_reader *r, const nc_json *value, const char *field, size_t *size) {
  int64_t integer = 0;
  const int known = nc_json_integer(value, &integer);
  return write_size(r, known, integer, field, size);
}

int nc_read_reference(const nc_json *value, size_t count, size_t *number) {
  int64_t place;
  if (value == NULL || value->kind != NC_JSON_ARRAY || value->size != 1) return 0;
  if (!nc_json_integer(value + 1, &place) || (uint64_t)place >= count) return 0;
  *number = (size_t)place;
  return 1;
}

/* Write an integer of at least 0, which may depend on sizes; return whether the value is one. */
static int find_integer(const nc_reader *r, const nc_json *value, int64_t *integer) {
  size_t number;
  if (!nc_read_reference(value, r->value_count, &number)) return nc_json_integer(value, integer);
  *integer = r->values[number];
  return *integer >= 0;
}

int nc_read_sized(nc_reader *r, const nc_json *value, const char *field, size_t *size) {
  int64_t integer = 0;
  const int known = find_integer(r, value, &integer);
  return write_size(r, known, integer, field, size);
}

int nc_read_integer(nc_reader *r, const nc_json *value, const char *field, int64_t *integer) {
  size_t number;
  if (!nc_read_reference(value, r->value_count, &number)) {
    return nc_json_signed(value, integer) || nc_wrong(r, field);
  }
  *integer = r->values[number];
  return 1;
}

void *nc_read_array(nc_reader *r, const nc_json *value, const char *field, size_t size,
                    size_t *count) {
  if (value == NULL || value->kind != NC_JSON_ARRAY || value->size > MAX_TENSORS) {
    nc_wrong(r, field);
    *count = 0;
    return NULL;
  }
  *count = value->size;
  return nc_new_array(r, value->size, size);
}

int nc_read_type(nc_reader *r, const nc_json *dtype, const nc_json *shape, const char *field,
                 neocpu_spec *spec) {
  int64_t bytes = 0, elements = 1; /* zeros left out, or strides could overflow */
  for (int i = 0; i < DTYPE_COUNT; ++i) {
    if (!nc_json_equals(dtype, dtypes[i].name)) continue;
    spec->dtype = dtypes[i].name;
    bytes = dtypes[i].bits / 8;
  }
  int64_t *extents = nc_read_array(r, shape, field, sizeof *extents, &spec->rank);
  if (bytes == 0 || extents == NULL || spec->rank > NC_MAX_RANK) return nc_wrong(r, field);
  const nc_json *extent = nc_json_first(shape);
  for (size_t i = 0; i < spec->rank; ++i, extent = nc_json_next(extent)) {
    if (!find_integer(r, extent, &extents[i])) return nc_wrong(r, field);
    if (extents[i] > MAX_ELEMENTS / elements) return nc_wrong(r, field);
    if (extents[i] > 0) elements *= extents[i];
    bytes *= extents[i];
  }
  spec->shape = extents;
  spec->bytes = (size_t)bytes;
  return 1;
}
