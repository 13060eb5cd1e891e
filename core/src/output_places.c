#include "output_places.h"

#include <stdlib.h>

#include "error.h"
#include "memory.h"

/* Bytes [begin, end) of the arena. */
typedef struct extent {
  size_t begin, end;
} extent;

/* The state of the search for one output. */
typedef struct search {
  nc_session *session;
  size_t output;
  extent place; /* the output's */
  size_t begin; /* the first call of those with whose tensors it moves */
  char *early;  /* of each activation: whether a call before those uses it */
  extent *written;
  size_t written_count;
} search;

static extent extent_of(const nc_program *program, size_t activation) {
  const nc_placement *one = &program->activations[activation];
  return (extent){one->offset, one->offset + one->spec.bytes};
}

static int overlap(extent one, extent other) {
  return one.begin < other.end && other.begin < one.end;
}

static int lies_within(extent inner, extent outer) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

/* A tensor's number among the activations; NC_NONE if it is none, or nowhere in the place. */
static uint32_t find_inner(const search *s, uint32_t tensor) {
  const nc_program *program = s->session->program;
  const size_t constant = program->input_count + program->weight_count;
  if (tensor < constant || tensor >= constant + program->activation_count) return NC_NONE;
  const uint32_t activation = (uint32_t)(tensor - constant);
  return overlap(extent_of(program, activation), s->place) ? activation : NC_NONE;
}

/* Whether all bytes were written, by the calls looked at so far. */
static int is_written(const search *s, extent bytes) {
  for (int found = 1; found && bytes.begin < bytes.end;) {
    found = 0;
    for (size_t i = 0; i < s->written_count; ++i) {
      if (s->written[i].begin > bytes.begin || s->written[i].end <= bytes.begin) continue;
      bytes.begin = s->written[i].end;
      found = 1;
    }
  }
  return bytes.begin >= bytes.end;
}

/* Whether a run may leave a call out. */
static int is_repeated(const nc_program *program, size_t call) {
  for (size_t i = 0; i < program->repeat_count; ++i) {
    if (call >= program->repeats[i].first && call < program->repeats[i].end) return 1;
  }
  return 0;
}

/* Find the calls behind all that use a tensor which is in the place in part only. */
static void find_begin(search *s) {
  const nc_program *program = s->session->program;
  s->begin = 0;
  for (size_t i = 0; i < program->call_count; ++i) {
    for (size_t j = 0; j < program->calls[i].count; ++j) {
      const uint32_t inner = find_inner(s, program->calls[i].tensors[j]);
      if (inner != NC_NONE && !lies_within(extent_of(program, inner), s->place)) s->begin = i + 1;
    }
  }
  for (size_t i = 0; i < program->activation_count; ++i) s->early[i] = 0;
  for (size_t i = 0; i < s->begin; ++i) {
    for (size_t j = 0; j < program->calls[i].count; ++j) {
      const uint32_t inner = find_inner(s, program->calls[i].tensors[j]);
      if (inner != NC_NONE) s->early[inner] = 1;
    }
  }
}

/* Whether a call reads nothing of the place but what those since the first one have written. */
static int follows(search *s, size_t call) {
  const nc_program *program = s->session->program;
  const nc_call_spec *spec = &program->calls[call];
  const size_t results = spec->count - s->session->calls[call].kernel->results;
  for (size_t j = 0; j < spec->count; ++j) {
    const uint32_t inner = find_inner(s, spec->tensors[j]);
    if (inner == NC_NONE) continue;
    const extent bytes = extent_of(program, inner);
    if (s->early[inner] || (j < results && !is_written(s, bytes))) return 0;
    if (j >= results && !is_repeated(program, call) && !is_written(s, bytes)) {
      s->written[s->written_count++] = bytes;
    }
  }
  return 1;
}

/* Whether the core itself reads or writes in the place when it repeats calls, or may do so. */
static int is_looked_at(const search *s) {
  const nc_program *program = s->session->program;
  if (program->slice_count > 0) return 1;
  for (size_t i = 0; i < program->repeat_count; ++i) {
    const nc_repeat *one = &program->repeats[i];
    const uint32_t tensors[] = {one->count, one->unless, one->condition, one->index};
    if (one->limit > 1) return 1; /* then what comes later in the list may be called earlier */
    for (size_t j = 0; j < sizeof tensors / sizeof *tensors; ++j) {
      if (tensors[j] != NC_NONE && find_inner(s, tensors[j]) != NC_NONE) return 1;
    }
  }
  return 0;
}

/* Whether an output before this one has moved a tensor of the place. */
static int is_moved(const search *s) {
  for (size_t i = 0; i < s->session->move_count; ++i) {
    if (find_inner(s, s->session->moves[i].tensor) != NC_NONE) return 1;
  }
  return 0;
}

static int can_move(search *s) {
  const nc_program *program = s->session->program;
  const uint32_t tensor = program->returns[s->output];
  const size_t constant = program->input_count + program->weight_count;
  if (program->outputs[s->output].bounded || tensor < constant) return 0;
  s->place = extent_of(program, tensor - constant);
  s->written_count = 0;
  if (is_looked_at(s) || is_moved(s)) return 0;
  find_begin(s);
  for (size_t i = s->begin; i < program->call_count; ++i) {
    if (!follows(s, i)) return 0;
  }
  return !s->early[tensor - constant] && is_written(s, s->place);
}

/* Whether results other than the output lie in its place in part, and so do not move with it. */
static int cuts_results(const search *s) {
  const nc_program *program = s->session->program;
  for (size_t i = 0; i < program->result_count; ++i) {
    const uint32_t inner = find_inner(s, program->returns[i]);
    if (inner == NC_NONE) continue;
    if (s->early[inner] || !lies_within(extent_of(program, inner), s->place)) return 1;
  }
  return 0;
}

static void move(const search *s) {
  nc_session *session = s->session;
  const nc_program *program = session->program;
  const size_t constant = program->input_count + program->weight_count;
  for (size_t i = 0; i < program->activation_count; ++i) {
    const extent bytes = extent_of(program, i);
    if (!overlap(bytes, s->place) || !lies_within(bytes, s->place) || s->early[i]) continue;
    session->moves[session->move_count++] = (nc_move){
        (uint32_t)(constant + i), s->output, bytes.begin - s->place.begin,
        session->tensors[constant + i].data};
  }
}

neocpu_status nc_find_moves(nc_session *session) {
  const nc_program *program = session->program;
  size_t results = 0;
  for (size_t i = 0; i < program->call_count; ++i) results += session->calls[i].kernel->results;
  search s = {.session = session};
  session->move_count = 0;
  if (session->moves == NULL) {
    session->moves = calloc(program->activation_count + 1, sizeof *session->moves);
  }
  s.early = malloc(program->activation_count + 1);
  s.written = calloc(results + 1, sizeof *s.written);
  neocpu_status status = NEOCPU_OK;
  if (session->moves == NULL || s.early == NULL || s.written == NULL) {
    status = nc_memory_missing(results * sizeof *s.written);
  }
  for (; status == NEOCPU_OK && s.output < program->output_count; ++s.output) {
    if (can_move(&s) && !cuts_results(&s)) move(&s);
  }
  free(s.early);
  free(s.written);
  return status;
}

void nc_place_outputs(nc_session *session, const neocpu_output *outputs) {
  for (size_t i = 0; i < session->move_count; ++i) {
    const nc_move *one = &session->moves[i];
    char *to = outputs[one->output].data;
    const int aligned = (uintptr_t)to % NC_ARGUMENT_ALIGN == 0;
    session->tensors[one->tensor].data = aligned ? to + one->offset : one->place;
  }
}
