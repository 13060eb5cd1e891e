/* The JSON header of an artifact, read strictly: whatever it says is in range, or refused. */
#ifndef NEOCPU_HEADER_H_
#define NEOCPU_HEADER_H_

#include "file.h"
#include "sizes.h"

#define NC_NONE UINT32_MAX /* no tensor */

enum {
  NC_FORMAT = 7, /* of artifacts of one signature */
  NC_SET_FORMAT = 8, /* of a set of them */
  NC_PACKING_FORMAT = 9, /* of a set whose weights are packed, in part, when it is loaded */
  NC_SIZED_FORMAT = 10, /* of artifacts whose calls choose sizes of their inputs */
  NC_WEIGHTS_PIECE = 4 << 20, /* bytes of weights that are checked at a time */
  NC_ALIGN = 128, /* bytes that weights start on a multiple of */
  NC_ARGUMENT_ALIGN = 64, /* bytes that generated code assumes of every tensor's start */
  NC_MAX_LAUNCH = 8 /* calls that are launched together */
};

/* The place of a weight or an activation: bytes from the start of the weights, behind which are those
 * that a prologue makes, or of the arena. */
typedef struct nc_placement {
  size_t offset;
  neocpu_spec spec; /* without a name */
} nc_placement;

/* A call of a kernel. Tensors go by number: first inputs, then weights, activations, extents and
 * slices. */
typedef struct nc_call_spec {
  const char *kernel;
  uint32_t *tensors;
  size_t count;
} nc_call_spec;

/* Calls that are made again and again: those from `first` to before `end`, at most `limit` times. A
 * branch is one whose limit is 1. Tensors are NC_NONE if they have no say. */
typedef struct nc_repeat {
  size_t first, end, limit;
  uint32_t count;     /* the number of times, int64; or whether at all, bool */
  uint32_t unless;    /* whether not at all, bool */
  uint32_t condition; /* whether once more, bool: looked at after each time */
  uint32_t index;     /* int64, an activation: is given the number of the time, from 0 */
} nc_repeat;

/* Calls whose loops are shared out together: `count` of them, from `first` on. No call needs another,
 * and no repeat begins or ends between them. */
typedef struct nc_launch {
  size_t first, count;
} nc_launch;

/* A part of a tensor that moves on with each time that calls are repeated: a tensor of itself. */
typedef struct nc_slice {
  uint32_t tensor;  /* an input, a weight or an activation */
  size_t repeat;    /* among the repeats */
  int backward;     /* the first time is given the last part that there is room for */
  neocpu_spec spec; /* without a name; as many as the limit lie in the tensor, one after another */
} nc_slice;

/* The calls that the code makes for inputs of one signature, or of some sizes. */
typedef struct nc_program {
  neocpu_spec *inputs, *outputs;
  size_t input_count, output_count;
  size_t *row_counts;  /* of each output: the place in `returns` of the count of its rows, or 0 */
  size_t result_count; /* outputs and counts */
  nc_placement *weights, *activations;
  size_t weight_count, activation_count;
  neocpu_spec *extents; /* tensors without data, whose shapes kernels of any size read */
  size_t extent_count;
  nc_slice *slices;
  size_t slice_count;
  nc_call_spec *calls;
  size_t call_count;
  nc_repeat *repeats; /* each within the one before, or behind it */
  size_t repeat_count;
  nc_launch *launches; /* each behind the one before */
  size_t launch_count;
  uint32_t *returns; /* the tensors that hold outputs and counts */
  size_t arena_bytes;
} nc_program;

typedef struct nc_header {
  const char *name, *target, *machine;
  const char **features; /* instruction sets, as LLVM calls them */
  size_t feature_count;
  nc_program *programs; /* one, or as many as there are signatures: of inputs and outputs of the same
                           names and types, no two of the same shapes */
  size_t program_count;
  nc_program prologue; /* what makes weights of others when they are loaded: they are its activations,
                          and its arena lies behind the weights; all zero if there is none */
  size_t arena_bytes; /* of the program that needs most */
  size_t arena_room;  /* the same for the largest sizes, if there are any */
  size_t *input_rooms; /* bytes of each input, of the program or the sizes that have most */
  nc_sizes sizes;      /* those that calls choose; then the only program is of the typical ones */
  size_t weights_size;
  size_t program_size; /* bytes that a program for chosen sizes takes */
  nc_json *root;       /* the document, if programs for other sizes will be read of it */
  char *text;          /* of it */
  void *memory;        /* all of the above */
} nc_header;

/* Read a header of a text that malloc() made, and take the text, whatever comes of it. Its weights lie
 * in `weights_size` bytes. Free with nc_header_free. */
neocpu_status nc_header_read(const char *path, char *text, size_t length, size_t weights_size,
                             nc_header *header);

/* Refuse a header of which a field is malformed. */
neocpu_status nc_header_malformed(const char *path, const char *field);

/* The number of tensors that calls may name. */
size_t nc_program_tensor_count(const nc_program *program);

/* Whether a tensor has a place in the arena, itself or that of which it is a slice. */
int nc_program_is_activation(const nc_program *program, uint32_t tensor);

/* The tensor of which another one is a slice; itself if it is none. */
uint32_t nc_program_whole(const nc_program *program, uint32_t tensor);

/* The description of a tensor by its number; its name is null unless it is an input. */
const neocpu_spec *nc_program_tensor(const nc_program *program, size_t tensor);

void nc_header_free(nc_header *header);

#endif
