#include "header.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "program_fields.h"
#include "sized_header.h"

enum { MAX_THREADS = 1024, MAX_PROGRAMS = 64 };

static void read_features(nc_reader *r, const nc_json *array, nc_header *header) {
  header->features = nc_read_array(r, array, "isa_features", sizeof *header->features,
                                   &header->feature_count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < header->feature_count; ++i, item = nc_json_next(item)) {
    header->features[i] = nc_read_string(r, item, "isa_features");
  }
}

/* The end of the last of a program's weights that begin within `size` bytes; `end` or beyond. */
static size_t find_end(const nc_program *program, size_t size, size_t end) {
  for (size_t i = 0; i < program->weight_count; ++i) {
    const nc_placement *weight = &program->weights[i];
    const size_t behind = (weight->offset + weight->spec.bytes + NC_ALIGN - 1) / NC_ALIGN;
    if (weight->offset < size && behind * NC_ALIGN > end) end = behind * NC_ALIGN;
  }
  return end;
}

/* Weights of several programs fill their section together. */
static void check_shared_weights(nc_reader *r, const nc_header *header, size_t size) {
  size_t end = find_end(&header->prologue, size, 0);
  for (size_t i = 0; i < header->program_count && r->wrong == NULL; ++i) {
    end = find_end(&header->programs[i], size, end);
  }
  if (end != size) nc_wrong(r, "weights");
}

static int are_equal(const neocpu_spec *one, const neocpu_spec *other) {
  return one->rank == other->rank &&
         memcmp(one->shape, other->shape, one->rank * sizeof *one->shape) == 0;
}

/* Whether two programs take other shapes of the same inputs, and make outputs of the same names. */
static int are_of_a_set(const nc_program *one, const nc_program *other) {
  int differ = 0;
  if (one->input_count != other->input_count || one->output_count != other->output_count) return 0;
  for (size_t i = 0; i < one->input_count; ++i) {
    const neocpu_spec *mine = &one->inputs[i], *its = &other->inputs[i];
    if (strcmp(mine->name, its->name) != 0 || mine->dtype != its->dtype) return 0;
    differ |= !are_equal(mine, its);
  }
  for (size_t i = 0; i < one->output_count; ++i) {
    const neocpu_spec *mine = &one->outputs[i], *its = &other->outputs[i];
    if (strcmp(mine->name, its->name) != 0 || mine->dtype != its->dtype) return 0;
    if (mine->bounded != its->bounded) return 0;
  }
  return differ;
}

/* One program, whose fields are the header's own; or, not null, all those of `plans`. */
static void read_programs(nc_reader *r, const nc_json *root, const nc_json *plans,
                          nc_header *header) {
  const size_t weights_size = header->weights_size;
  header->program_count = plans == NULL ? 1 : plans->size;
  header->programs = nc_new_array(r, header->program_count, sizeof *header->programs);
  const nc_json *object = plans == NULL ? root : nc_json_first(plans);
  for (size_t i = 0; i < header->program_count && r->wrong == NULL; ++i) {
    nc_program *program = &header->programs[i];
    if (i > 0) object = nc_json_next(object);
    nc_program_read(r, object, weights_size + header->prologue.arena_bytes, plans == NULL, program);
    for (size_t j = 0; j < i && r->wrong == NULL; ++j) {
      if (!are_of_a_set(&header->programs[j], program)) nc_wrong(r, "plans");
    }
    if (program->arena_bytes > header->arena_bytes) header->arena_bytes = program->arena_bytes;
  }
  if (plans != NULL) check_shared_weights(r, header, weights_size);
}

/* A number of threads, or of calls at once. */
static void read_positive(nc_reader *r, const nc_json *value, const char *field) {
  size_t count = 0;
  if (!nc_read_size(r, value, field, &count) || count < 1 || count > MAX_THREADS) {
    nc_wrong(r, field);
  }
}

static void read_fields(nc_reader *r, const nc_json *root, nc_header *header) {
  const nc_json *versions = nc_json_member(root, "versions");
  const nc_json *streams = nc_json_member(root, "streams");
  header->name = nc_read_string(r, nc_json_member(root, "name"), "name");
  header->target = nc_read_string(r, nc_json_member(root, "target"), "target");
  header->machine = nc_read_string(r, nc_json_member(root, "machine"), "machine");
  nc_read_string(r, nc_json_member(versions, "neocpu"), "versions");
  nc_read_string(r, nc_json_member(versions, "apache-tvm"), "versions");
  nc_read_string(r, nc_json_member(versions, "apache-tvm-ffi"), "versions");
  read_positive(r, nc_json_member(root, "threads"), "threads"); /* that it was compiled for */
  if (streams != NULL) read_positive(r, streams, "streams");
  read_features(r, nc_json_member(root, "isa_features"), header);
}

neocpu_status nc_header_malformed(const char *path, const char *problem) {
  return nc_fail(NEOCPU_ARTIFACT,
                 "%s has a malformed header (%s); compile the model again with `neocpu compile`",
                 path, problem);
}

/* Read the format of a document, and find the programs of a set; null if there is one. */
static neocpu_status read_format(const char *path, const nc_json *root, int64_t *format,
                                 const nc_json **plans) {
  *plans = NULL;
  if (!nc_json_integer(nc_json_member(root, "format"), format)) {
    return nc_header_malformed(path, "format");
  }
  if (*format < NC_FORMAT || *format > NC_SIZED_FORMAT) {
    return nc_fail(NEOCPU_ARTIFACT,
                   "%s has artifact format %lld, this neocpu reads formats %d to %d: compile the "
                   "model again with `neocpu compile`",
                   path, (long long)*format, NC_FORMAT, NC_SIZED_FORMAT);
  }
  if (*format == NC_FORMAT || *format == NC_SIZED_FORMAT) return NEOCPU_OK;
  *plans = nc_json_member(root, "plans");
  if (*plans == NULL || (*plans)->kind != NC_JSON_ARRAY || (*plans)->size < 1 ||
      (*plans)->size > MAX_PROGRAMS) {
    return nc_header_malformed(path, "plans");
  }
  return NEOCPU_OK;
}

/* The room of programs that are there. */
static void measure(nc_reader *r, nc_header *header) {
  const size_t inputs = header->programs[0].input_count; /* all have as many */
  header->arena_room = header->arena_bytes;
  header->input_rooms = nc_new_array(r, inputs, sizeof *header->input_rooms);
  for (size_t i = 0; i < header->program_count; ++i) {
    for (size_t j = 0; j < inputs; ++j) {
      const size_t bytes = header->programs[i].inputs[j].bytes;
      if (bytes > header->input_rooms[j]) header->input_rooms[j] = bytes;
    }
  }
}

static neocpu_status read_document(const char *path, size_t length, nc_header *header) {
  const nc_json *root = header->root, *plans;
  int64_t format;
  const neocpu_status status = read_format(path, root, &format, &plans);
  if (status != NEOCPU_OK) return status;
  const size_t count = plans == NULL ? 1 : plans->size;
  /* Each value becomes one placement at most, and each string itself, a zero and padding. */
  const size_t room =
      length + root->extent * (sizeof(nc_placement) + 16) + count * sizeof(nc_program);
  header->memory = calloc(1, room);
  if (header->memory == NULL) {
    return nc_fail(NEOCPU_FAILURE, "out of memory for the header of %s", path);
  }
  nc_reader r = {.free = header->memory};
  read_fields(&r, root, header);
  if (r.wrong == NULL && format == NC_PACKING_FORMAT) {
    nc_prologue_read(&r, nc_json_member(root, "prologue"), header->weights_size,
                     &header->prologue);
  }
  if (r.wrong == NULL && format == NC_SIZED_FORMAT) {
    nc_sized_header_read(&r, root, header);
  } else if (r.wrong == NULL) {
    read_programs(&r, root, plans, header);
  }
  if (r.wrong != NULL) return nc_header_malformed(path, r.wrong);
  measure(&r, header);
  return format == NC_SIZED_FORMAT ? nc_sized_header_measure(path, header) : NEOCPU_OK;
}

static void free_document(nc_header *header) {
  free(header->root);
  free(header->text);
  header->root = NULL;
  header->text = NULL;
}

neocpu_status nc_header_read(const char *path, char *text, size_t length, size_t weights_size,
                             nc_header *header) {
  const char *problem;
  *header = (nc_header){.text = text, .weights_size = weights_size};
  header->root = nc_json_read(text, length, &problem);
  const neocpu_status status = header->root == NULL ? nc_header_malformed(path, problem)
                                                    : read_document(path, length, header);
  if (status != NEOCPU_OK) nc_header_free(header);
  if (header->sizes.count == 0) free_document(header);
  return status;
}

void nc_header_free(nc_header *header) {
  free_document(header);
  free(header->memory);
  *header = (nc_header){0};
}
