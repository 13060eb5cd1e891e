#include "header.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "json.h"

/* Far more than any network needs, and few enough that nothing overflows or takes long. */
enum { MAX_RANK = 32, MAX_SPECS = 4096, MAX_TENSORS = 1 << 16, MAX_THREADS = 1024, MAX_REPEATS = 1024 };
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

/* What reading needs: where results go, and the first field that was wrong. */
typedef struct reader {
  char *free; /* next byte of the header's memory, which is large enough for any document */
  const char *wrong;
} reader;

static int wrong(reader *r, const char *field) {
  if (r->wrong == NULL) r->wrong = field;
  return 0;
}

static void *new_array(reader *r, size_t count, size_t size) {
  void *array = r->free;
  r->free += (count * size + 7) / 8 * 8;
  return array;
}

/* Null unless it is a string; then a copy. */
static const char *read_string(reader *r, const nc_json *value, const char *field) {
  const char *text = nc_json_text(value);
  if (text == NULL) {
    wrong(r, field);
    return NULL;
  }
  return memcpy(new_array(r, value->length + 1, 1), text, value->length + 1);
}

static int read_size(reader *r, const nc_json *value, const char *field, size_t *size) {
  int64_t integer;
  if (!nc_json_integer(value, &integer) || integer > MAX_BYTES) return wrong(r, field);
  *size = (size_t)integer;
  return 1;
}

/* The elements of an array, in memory of that many of `size` bytes; null if it is none. */
static void *read_array(reader *r, const nc_json *value, const char *field, size_t size,
                        size_t *count) {
  if (value == NULL || value->kind != NC_JSON_ARRAY || value->size > MAX_TENSORS) {
    wrong(r, field);
    *count = 0;
    return NULL;
  }
  *count = value->size;
  return new_array(r, value->size, size);
}

/* dtype and shape, and from them bytes. */
static int read_type(reader *r, const nc_json *dtype, const nc_json *shape, const char *field,
                     neocpu_spec *spec) {
  int64_t bytes = 0, elements = 1; /* zeros left out, or strides could overflow */
  for (int i = 0; i < DTYPE_COUNT; ++i) {
    if (!nc_json_equals(dtype, dtypes[i].name)) continue;
    spec->dtype = dtypes[i].name;
    bytes = dtypes[i].bits / 8;
  }
  int64_t *extents = read_array(r, shape, field, sizeof *extents, &spec->rank);
  if (bytes == 0 || extents == NULL || spec->rank > MAX_RANK) return wrong(r, field);
  const nc_json *extent = nc_json_first(shape);
  for (size_t i = 0; i < spec->rank; ++i, extent = nc_json_next(extent)) {
    if (!nc_json_integer(extent, &extents[i])) return wrong(r, field);
    if (extents[i] > MAX_ELEMENTS / elements) return wrong(r, field);
    if (extents[i] > 0) elements *= extents[i];
    bytes *= extents[i];
  }
  spec->shape = extents;
  spec->bytes = (size_t)bytes;
  return 1;
}

/* Inputs or outputs. */
static neocpu_spec *read_specs(reader *r, const nc_json *array, const char *field, size_t *count) {
  neocpu_spec *specs = read_array(r, array, field, sizeof *specs, count);
  if (*count > MAX_SPECS) wrong(r, field);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < *count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    specs[i].name = read_string(r, nc_json_member(item, "name"), field);
    read_type(r, nc_json_member(item, "dtype"), nc_json_member(item, "shape"), field, &specs[i]);
    const nc_json *bounded = nc_json_member(item, "bounded");
    specs[i].bounded = bounded != NULL && bounded->kind == NC_JSON_TRUE;
    if (bounded != NULL && !specs[i].bounded && bounded->kind != NC_JSON_FALSE) wrong(r, field);
    if (specs[i].bounded && specs[i].rank == 0) wrong(r, field);
    for (size_t j = 0; j < i && r->wrong == NULL; ++j) {
      if (strcmp(specs[i].name, specs[j].name) == 0) wrong(r, field);
    }
  }
  return specs;
}

/* Weights fill their section, one behind the other. */
static void check_weights(reader *r, const nc_header *header, size_t size) {
  size_t end = 0;
  for (size_t i = 0; i < header->weight_count && r->wrong == NULL; ++i) {
    const nc_placement *weight = &header->weights[i];
    if (weight->offset != end) wrong(r, "weights");
    end = (weight->offset + weight->spec.bytes + NC_ALIGN - 1) / NC_ALIGN * NC_ALIGN;
  }
  if (end != size) wrong(r, "weights");
}

/* Weights or activations, which lie in `room` bytes and start on multiples of `align`. */
static nc_placement *read_placements(reader *r, const nc_json *array, const char *field,
                                     size_t room, size_t align, size_t *count) {
  nc_placement *placements = read_array(r, array, field, sizeof *placements, count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < *count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    nc_placement *placement = &placements[i];
    const nc_json *offset = nc_json_first(item);
    if (offset == NULL || item->size != 3) {
      wrong(r, field);
      break;
    }
    const nc_json *dtype = nc_json_next(offset);
    if (!read_size(r, offset, field, &placement->offset)) break;
    if (!read_type(r, dtype, nc_json_next(dtype), field, &placement->spec)) break;
    const size_t bytes = placement->spec.bytes;
    const int inside = bytes <= room && placement->offset <= room - bytes;
    if (!inside || placement->offset % align != 0) wrong(r, field);
  }
  return placements;
}

static void read_features(reader *r, const nc_json *array, nc_header *header) {
  header->features = read_array(r, array, "isa_features", sizeof *header->features,
                                &header->feature_count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < header->feature_count; ++i, item = nc_json_next(item)) {
    header->features[i] = read_string(r, item, "isa_features");
  }
}

static void read_row_counts(reader *r, const nc_json *array, nc_header *header) {
  size_t count, distinct = 0;
  char *seen = new_array(r, header->output_count, 1);
  header->result_count = header->output_count;
  header->row_counts = new_array(r, header->output_count, sizeof *header->row_counts);
  read_array(r, array, "row_counts", 0, &count);
  if (count != 0 && count != header->output_count) wrong(r, "row_counts");
  for (size_t i = 0; i < header->output_count && count == 0; ++i) {
    if (header->outputs[i].bounded) wrong(r, "row_counts");
  }
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    size_t *position = &header->row_counts[i];
    if ((item->kind == NC_JSON_NULL) == header->outputs[i].bounded) wrong(r, "row_counts");
    if (item->kind == NC_JSON_NULL || !read_size(r, item, "row_counts", position)) continue;
    /* Counts come behind the outputs, and there are not more of them. */
    if (*position < header->output_count || *position >= 2 * header->output_count) {
      wrong(r, "row_counts");
      break;
    }
    if (*position >= header->result_count) header->result_count = *position + 1;
    distinct += !seen[*position - header->output_count];
    seen[*position - header->output_count] = 1;
  }
  /* None of them is left out. */
  if (header->result_count > header->output_count + distinct) wrong(r, "row_counts");
}

/* The number of a tensor, below `count`. */
static void read_tensor(reader *r, const nc_json *value, const char *field, size_t count,
                        uint32_t *tensor) {
  size_t number = 0;
  if (read_size(r, value, field, &number) && number >= count) wrong(r, field);
  *tensor = (uint32_t)number;
}

static size_t count_wholes(const nc_header *header) {
  return header->input_count + header->weight_count + header->activation_count;
}

/* [repeat, tensor, whether backward, dtype, shape] */
static void read_slices(reader *r, const nc_json *array, nc_header *header) {
  if (array == NULL) return; /* most models have none */
  header->slices = read_array(r, array, "slices", sizeof *header->slices, &header->slice_count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < header->slice_count && r->wrong == NULL;
       ++i, item = nc_json_next(item)) {
    nc_slice *slice = &header->slices[i];
    const nc_json *repeat = nc_json_first(item);
    if (repeat == NULL || item->size != 5) {
      wrong(r, "slices");
      return;
    }
    const nc_json *tensor = nc_json_next(repeat), *backward = nc_json_next(tensor);
    const nc_json *dtype = nc_json_next(backward);
    read_size(r, repeat, "slices", &slice->repeat);
    read_tensor(r, tensor, "slices", count_wholes(header), &slice->tensor);
    slice->backward = backward->kind == NC_JSON_TRUE;
    if (!slice->backward && backward->kind != NC_JSON_FALSE) wrong(r, "slices");
    read_type(r, dtype, nc_json_next(dtype), "slices", &slice->spec);
    if (slice->spec.bytes % NC_ARGUMENT_ALIGN != 0) wrong(r, "slices");
  }
}

static void read_calls(reader *r, const nc_json *array, nc_header *header) {
  header->calls = read_array(r, array, "calls", sizeof *header->calls, &header->call_count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < header->call_count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    nc_call_spec *call = &header->calls[i];
    const nc_json *part = nc_json_first(item);
    call->kernel = read_string(r, part, "calls");
    if (call->kernel == NULL) return;
    call->count = item->size - 1;
    call->tensors = new_array(r, call->count, sizeof *call->tensors);
    for (size_t j = 0; j < call->count && r->wrong == NULL; ++j) {
      part = nc_json_next(part);
      read_tensor(r, part, "calls", nc_header_tensor_count(header), &call->tensors[j]);
    }
  }
}

/* A tensor of one element that decides on a repeat; NC_NONE if the member is missing. */
static uint32_t read_decider(reader *r, const nc_json *repeat, const char *member,
                             const nc_header *header, int integer, int boolean) {
  const nc_json *value = nc_json_member(repeat, member);
  uint32_t tensor;
  if (value == NULL || r->wrong != NULL) return NC_NONE;
  read_tensor(r, value, "repeats", count_wholes(header), &tensor);
  if (r->wrong != NULL) return NC_NONE;
  const neocpu_spec *spec = nc_header_tensor(header, tensor);
  const int fits = (integer && strcmp(spec->dtype, "int64") == 0 && spec->bytes == 8) ||
                   (boolean && strcmp(spec->dtype, "bool") == 0 && spec->bytes == 1);
  if (!fits) wrong(r, "repeats");
  return tensor;
}

/* Whether a repeat is of calls there are, and within every one before that is not over. */
static int is_nested(const nc_header *header, size_t index) {
  const nc_repeat *mine = &header->repeats[index];
  if (mine->first >= mine->end || mine->end > header->call_count) return 0;
  if (index > 0 && mine->first < header->repeats[index - 1].first) return 0;
  for (size_t i = 0; i < index; ++i) {
    if (header->repeats[i].end > mine->first && header->repeats[i].end < mine->end) return 0;
  }
  return 1;
}

/* {"first", "end", "limit"} and perhaps {"count", "unless", "while", "index"} */
static void read_repeats(reader *r, const nc_json *array, nc_header *header) {
  if (array == NULL) return;
  header->repeats = read_array(r, array, "repeats", sizeof *header->repeats, &header->repeat_count);
  if (header->repeat_count > MAX_REPEATS) wrong(r, "repeats");
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < header->repeat_count && r->wrong == NULL;
       ++i, item = nc_json_next(item)) {
    nc_repeat *repeat = &header->repeats[i];
    read_size(r, nc_json_member(item, "first"), "repeats", &repeat->first);
    read_size(r, nc_json_member(item, "end"), "repeats", &repeat->end);
    read_size(r, nc_json_member(item, "limit"), "repeats", &repeat->limit);
    repeat->count = read_decider(r, item, "count", header, 1, 1);
    repeat->unless = read_decider(r, item, "unless", header, 0, 1);
    repeat->condition = read_decider(r, item, "while", header, 0, 1);
    repeat->index = read_decider(r, item, "index", header, 1, 0);
    if (r->wrong == NULL && !is_nested(header, i)) wrong(r, "repeats");
    /* It is written, which weights and inputs are not. */
    if (repeat->index < header->input_count + header->weight_count) wrong(r, "repeats");
  }
}

/* Slices lie in their tensors, and are used where they move. */
static void check_slices(reader *r, const nc_header *header) {
  for (size_t i = 0; i < header->slice_count && r->wrong == NULL; ++i) {
    const nc_slice *slice = &header->slices[i];
    const size_t room = nc_header_tensor(header, slice->tensor)->bytes;
    if (slice->repeat >= header->repeat_count) {
      wrong(r, "slices");
    } else if (slice->spec.bytes > 0 &&
               header->repeats[slice->repeat].limit > room / slice->spec.bytes) {
      wrong(r, "slices");
    }
  }
  for (size_t i = 0; i < header->call_count && r->wrong == NULL; ++i) {
    for (size_t j = 0; j < header->calls[i].count; ++j) {
      const size_t tensor = header->calls[i].tensors[j], wholes = count_wholes(header);
      if (tensor < wholes) continue;
      const nc_repeat *repeat = &header->repeats[header->slices[tensor - wholes].repeat];
      if (i < repeat->first || i >= repeat->end) wrong(r, "slices");
    }
  }
}

size_t nc_header_tensor_count(const nc_header *header) {
  return count_wholes(header) + header->slice_count;
}

uint32_t nc_header_whole(const nc_header *header, uint32_t tensor) {
  const size_t wholes = count_wholes(header);
  return tensor < wholes ? tensor : header->slices[tensor - wholes].tensor;
}

const neocpu_spec *nc_header_tensor(const nc_header *header, size_t tensor) {
  if (tensor < header->input_count) return &header->inputs[tensor];
  tensor -= header->input_count;
  if (tensor < header->weight_count) return &header->weights[tensor].spec;
  tensor -= header->weight_count;
  if (tensor < header->activation_count) return &header->activations[tensor].spec;
  return &header->slices[tensor - header->activation_count].spec;
}

/* The tensors of outputs and of the counts behind them, each of one int64. */
static void read_returns(reader *r, const nc_json *array, nc_header *header) {
  size_t count;
  header->returns = read_array(r, array, "returns", sizeof *header->returns, &count);
  if (count != header->result_count) wrong(r, "returns");
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    read_tensor(r, item, "returns", count_wholes(header), &header->returns[i]);
    const size_t bytes =
        i < header->output_count ? header->outputs[i].bytes : sizeof(int64_t);
    if (r->wrong == NULL && nc_header_tensor(header, header->returns[i])->bytes != bytes) {
      wrong(r, "returns");
    }
  }
}

/* Of threads, or of calls at once. */
static void read_positive(reader *r, const nc_json *value, const char *field) {
  size_t count = 0;
  if (!read_size(r, value, field, &count) || count < 1 || count > MAX_THREADS) wrong(r, field);
}

static void read_fields(reader *r, const nc_json *root, size_t weights_size, nc_header *header) {
  const nc_json *versions = nc_json_member(root, "versions"), *plan = nc_json_member(root, "plan");
  const nc_json *streams = nc_json_member(root, "streams");
  header->name = read_string(r, nc_json_member(root, "name"), "name");
  header->target = read_string(r, nc_json_member(root, "target"), "target");
  header->machine = read_string(r, nc_json_member(root, "machine"), "machine");
  read_string(r, nc_json_member(versions, "neocpu"), "versions");
  read_string(r, nc_json_member(versions, "apache-tvm"), "versions");
  read_string(r, nc_json_member(versions, "apache-tvm-ffi"), "versions");
  read_positive(r, nc_json_member(root, "threads"), "threads"); /* that it was compiled for */
  if (streams != NULL) read_positive(r, streams, "streams");
  read_features(r, nc_json_member(root, "isa_features"), header);
  header->inputs = read_specs(r, nc_json_member(root, "inputs"), "inputs", &header->input_count);
  header->outputs =
      read_specs(r, nc_json_member(root, "outputs"), "outputs", &header->output_count);
  if (header->output_count == 0) wrong(r, "outputs");
  if (plan == NULL || plan->kind != NC_JSON_OBJECT) wrong(r, "plan");
  if (r->wrong != NULL) return;
  read_row_counts(r, nc_json_member(root, "row_counts"), header);
  header->weights = read_placements(r, nc_json_member(root, "weights"), "weights", weights_size,
                                    NC_ALIGN, &header->weight_count);
  check_weights(r, header, weights_size);
  read_size(r, nc_json_member(root, "arena_bytes"), "arena_bytes", &header->arena_bytes);
  header->activations = read_placements(r, nc_json_member(root, "activations"), "activations",
                                        header->arena_bytes, NC_ARGUMENT_ALIGN,
                                        &header->activation_count);
  if (r->wrong != NULL) return;
  read_slices(r, nc_json_member(root, "slices"), header);
  read_calls(r, nc_json_member(root, "calls"), header);
  read_repeats(r, nc_json_member(root, "repeats"), header);
  check_slices(r, header);
  read_returns(r, nc_json_member(root, "returns"), header);
}

static neocpu_status malformed(const char *path, const char *problem) {
  return nc_fail(NEOCPU_ARTIFACT,
                 "%s has a malformed header (%s); compile the model again with `neocpu compile`",
                 path, problem);
}

static neocpu_status read_document(const char *path, const nc_json *root, size_t length,
                                   size_t weights_size, nc_header *header) {
  int64_t format;
  if (!nc_json_integer(nc_json_member(root, "format"), &format)) return malformed(path, "format");
  if (format != NC_FORMAT) {
    return nc_fail(NEOCPU_ARTIFACT,
                   "%s has artifact format %lld, this neocpu reads format %d: compile the model "
                   "again with `neocpu compile`",
                   path, (long long)format, NC_FORMAT);
  }
  /* Each value becomes one placement at most, and each string itself, a zero and padding. */
  const size_t room = length + root->extent * (sizeof(nc_placement) + 16);
  header->memory = calloc(1, room);
  if (header->memory == NULL) {
    return nc_fail(NEOCPU_FAILURE, "out of memory for the header of %s", path);
  }
  reader r = {.free = header->memory};
  read_fields(&r, root, weights_size, header);
  if (r.wrong == NULL) return NEOCPU_OK;
  nc_header_free(header);
  return malformed(path, r.wrong);
}

neocpu_status nc_header_read(const char *path, char *text, size_t length, size_t weights_size,
                             nc_header *header) {
  const char *problem;
  *header = (nc_header){0};
  nc_json *root = nc_json_read(text, length, &problem);
  if (root == NULL) return malformed(path, problem);
  const neocpu_status status = read_document(path, root, length, weights_size, header);
  free(root);
  return status;
}

void nc_header_free(nc_header *header) {
  free(header->memory);
  *header = (nc_header){0};
}
