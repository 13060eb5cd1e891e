#include "bound_programs.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "sized_header.h"

neocpu_status nc_bound_programs_start(nc_bound_programs *bound, const nc_header *header,
                                      nc_session *typical, nc_weights weights, const char *path) {
  *bound = (nc_bound_programs){
      .header = header, .typical = typical, .weights = weights, .path = path};
  bound->values = calloc(nc_sizes_value_count(&header->sizes), sizeof *bound->values);
  bound->programs = calloc(NC_BOUND_PROGRAMS, sizeof *bound->programs);
  if (bound->values != NULL && bound->programs != NULL) return NEOCPU_OK;
  return nc_fail(NEOCPU_FAILURE, "out of memory");
}

/* Refuse a program for which there is less memory than it needs. */
static neocpu_status check_room(const nc_bound_programs *bound, const int64_t *sizes,
                                const nc_program *program) {
  const nc_header *header = bound->header;
  size_t needed = program->arena_bytes, room = header->arena_room;
  char text[NC_SIZES_TEXT];
  for (size_t i = 0; i < program->input_count && needed <= room; ++i) {
    needed = program->inputs[i].bytes;
    room = header->input_rooms[i];
  }
  if (needed <= room) return NEOCPU_OK;
  nc_sizes_text(&header->sizes, sizes, text);
  return nc_fail(NEOCPU_ARTIFACT,
                 "cannot run %s for %s: this takes %zu bytes, and the largest sizes %zu; compile the "
                 "model again with `neocpu compile`",
                 bound->path, text, needed, room);
}

/* Make a program, which is not in use, the one for these sizes. */
static neocpu_status bind(nc_bound_programs *bound, const int64_t *sizes, nc_bound_program *mine) {
  const nc_header *header = bound->header;
  mine->used = 0;
  if (mine->memory == NULL) mine->memory = malloc(header->program_size);
  if (mine->memory == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  const char *wrong = nc_sizes_evaluate(&header->sizes, sizes, bound->values)
                          ? nc_sized_header_bind(header, bound->values, mine->memory, &mine->program)
                          : "values";
  if (wrong != NULL) return nc_sized_header_malformed(bound->path, header, sizes, wrong);
  neocpu_status status = check_room(bound, sizes, &mine->program);
  if (status != NEOCPU_OK) return status;
  mine->session.program = &mine->program;
  mine->session.shared = bound->typical->shared;
  return nc_session_start(&mine->session, bound->weights, bound->path);
}

neocpu_status nc_bound_programs_find(nc_bound_programs *bound, const int64_t *sizes,
                                     nc_session **session) {
  const nc_sizes *ranges = &bound->header->sizes;
  const size_t bytes = ranges->count * sizeof *sizes;
  int64_t typical[NC_MAX_SIZES];
  nc_bound_program *oldest = bound->programs;
  nc_sizes_typical(ranges, typical);
  *session = bound->typical;
  if (memcmp(typical, sizes, bytes) == 0) return NEOCPU_OK;
  const uint64_t call = ++bound->calls;
  for (nc_bound_program *one = bound->programs; one < bound->programs + NC_BOUND_PROGRAMS; ++one) {
    if (one->used > 0 && memcmp(one->sizes, sizes, bytes) == 0) {
      one->used = call;
      *session = &one->session;
      return NEOCPU_OK;
    }
    if (one->used < oldest->used) oldest = one;
  }
  const neocpu_status status = bind(bound, sizes, oldest);
  if (status != NEOCPU_OK) return status;
  memcpy(oldest->sizes, sizes, bytes);
  oldest->used = call;
  *session = &oldest->session;
  return NEOCPU_OK;
}

void nc_bound_programs_free(nc_bound_programs *bound) {
  for (size_t i = 0; bound->programs != NULL && i < NC_BOUND_PROGRAMS; ++i) {
    nc_session_free(&bound->programs[i].session);
    free(bound->programs[i].memory);
  }
  free(bound->programs);
  free(bound->values);
  *bound = (nc_bound_programs){0};
}
