#include "plans.h"

#include <stdio.h>
#include <stdlib.h>

#include "error.h"
#include "memory.h"
#include "threads.h"

enum { LIST_SIZE = 512 /* bytes of a list of shapes */ };

/* Make room for copies of inputs: of chosen sizes all that will ever be needed, else when it is. */
static neocpu_status make_staging(const nc_header *header, nc_shared *shared) {
  const size_t inputs = header->programs[0].input_count; /* all have as many */
  shared->staging = calloc(inputs + 1, sizeof *shared->staging);
  if (shared->staging == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  for (size_t i = 0; i < inputs; ++i) {
    nc_staging *one = &shared->staging[i];
    one->size = header->input_rooms[i];
    if (header->sizes.count == 0 || one->size == 0) continue;
    one->data = nc_memory_reserve(one->size);
    if (one->data == NULL) return nc_memory_missing(one->size);
  }
  return NEOCPU_OK;
}

static void free_staging(const nc_header *header, nc_shared *shared) {
  for (size_t i = 0; shared->staging != NULL && i < header->programs[0].input_count; ++i) {
    nc_staging *one = &shared->staging[i];
    if (header->sizes.count > 0 && one->size > 0) {
      nc_memory_unmap(one->data, one->size);
    } else {
      free(one->data);
    }
  }
  free(shared->staging);
}

static neocpu_status make_memory(nc_plans *plans) {
  const nc_header *header = plans->header;
  nc_shared *shared = &plans->shared;
  const size_t room = header->arena_room;
  if (room > 0) {
    shared->arena = room > header->arena_bytes ? nc_memory_reserve(room) : nc_memory_map(room);
    if (shared->arena == NULL) return nc_memory_missing(room);
  }
  plans->sessions = calloc(header->program_count, sizeof *plans->sessions);
  if (plans->sessions == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  return make_staging(header, shared);
}

/* Pack weights as the artifact's prologue says. */
static neocpu_status pack_weights(const nc_plans *plans, nc_source *source) {
  const nc_program *prologue = &plans->header->prologue;
  if (prologue->arena_bytes == 0 || source->made != NULL) return NEOCPU_OK;
  const uint64_t began = nc_now();
  source->made = nc_memory_map(prologue->arena_bytes);
  if (source->made == NULL) return nc_memory_missing(prologue->arena_bytes);
  nc_pool *pool = plans->shared.pool;
  nc_shared shared = {.pool = pool, .code = plans->shared.code, .arena = source->made};
  nc_session session = {.program = prologue, .shared = &shared};
  neocpu_status status =
      nc_session_start(&session, nc_source_weights(source), source->artifact.where);
  if (status == NEOCPU_OK) {
    nc_pool_enter(pool);
    status = nc_session_run(&session, NULL, NULL);
    nc_pool_leave(pool);
  }
  nc_session_free(&session);
  source->packing = nc_now() - began;
  return status;
}

neocpu_status nc_plans_start(nc_plans *plans, nc_source *source, nc_pool *pool) {
  const nc_artifact *artifact = &source->artifact;
  plans->header = &artifact->header;
  plans->shared.pool = pool;
  neocpu_status status = make_memory(plans);
  if (status != NEOCPU_OK) return status;
  status = nc_code_load(artifact->where, artifact->code, artifact->code_size, &plans->shared.code);
  if (status == NEOCPU_OK) status = pack_weights(plans, source);
  size_t calls = 0;
  for (size_t i = 0; i < plans->header->program_count && status == NEOCPU_OK; ++i) {
    nc_session *session = &plans->sessions[i];
    session->program = &plans->header->programs[i];
    session->shared = &plans->shared;
    session->first_call = calls;
    calls += session->program->call_count;
    status = nc_session_start(session, nc_source_weights(source), artifact->where);
  }
  if (status != NEOCPU_OK || plans->header->sizes.count == 0) return status;
  return nc_bound_programs_start(&plans->bound, plans->header, plans->sessions,
                                 nc_source_weights(source), artifact->where);
}

/* Write the shapes of all programs' inputs, as far as there is room: x[1,3,64,64]; x[4,3,64,64] */
static void list_shapes(const nc_header *header, char *list, size_t size) {
  size_t used = 0;
  for (size_t i = 0; i < header->program_count; ++i) {
    const nc_program *program = &header->programs[i];
    for (size_t j = 0; j < program->input_count; ++j) {
      const neocpu_spec *spec = &program->inputs[j];
      const char *before = j > 0 ? " " : i > 0 ? "; " : "";
      for (size_t k = 0; k <= spec->rank && used < size; ++k) {
        char extent[24] = "]";
        if (k < spec->rank) snprintf(extent, sizeof extent, "%lld", (long long)spec->shape[k]);
        used += (size_t)(k == 0 ? snprintf(list + used, size - used, "%s%s[%s", before, spec->name,
                                           extent)
                                : snprintf(list + used, size - used, "%s%s",
                                           k < spec->rank ? "," : "", extent));
      }
    }
  }
}

static int fits(const nc_program *program, const neocpu_input *inputs) {
  for (size_t i = 0; i < program->input_count; ++i) {
    if (program->inputs[i].bytes != inputs[i].bytes) return 0;
  }
  return 1;
}

neocpu_status nc_plans_find(const nc_plans *plans, const neocpu_input *inputs, size_t *program) {
  const nc_header *header = plans->header;
  char list[LIST_SIZE] = "";
  size_t found = header->program_count;
  *program = 0;
  if (header->program_count == 1) return NEOCPU_OK; /* whose inputs are checked one by one */
  for (size_t i = 0; i < header->program_count; ++i) {
    if (!fits(&header->programs[i], inputs)) continue;
    if (found < header->program_count) {
      return nc_fail(NEOCPU_USAGE,
                     "model '%s' takes several shapes of so many bytes: say which with "
                     "neocpu_run_signature",
                     header->name);
    }
    found = i;
  }
  *program = found;
  if (found < header->program_count) return NEOCPU_OK;
  list_shapes(header, list, sizeof list);
  return nc_fail(NEOCPU_USAGE,
                 "the inputs have none of the shapes that model '%s' is compiled for: %s",
                 header->name, list);
}

void nc_plans_intercept(nc_plans *plans, const nc_interception *interception) {
  plans->shared.interception = *interception;
  nc_code_lend_workspaces(&plans->shared.code, interception->allocate, interception->release);
}

void nc_plans_free(nc_plans *plans) {
  const nc_header *header = plans->header;
  if (header == NULL) return;
  nc_shared *shared = &plans->shared;
  nc_bound_programs_free(&plans->bound);
  for (size_t i = 0; plans->sessions != NULL && i < header->program_count; ++i) {
    nc_session_free(&plans->sessions[i]);
  }
  nc_code_unload(&shared->code);
  free_staging(header, shared);
  free(plans->sessions);
  nc_memory_unmap(shared->arena, header->arena_room);
  *plans = (nc_plans){0};
}
