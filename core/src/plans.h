/* A model's sessions: one for each signature that it was compiled for. They share code, threads
 * and memory, which is as much as the largest takes: the next call may be of any of them. Of a model
 * whose calls choose sizes there is one session, for the typical sizes, and those that came last. */
#ifndef NEOCPU_PLANS_H_
#define NEOCPU_PLANS_H_

#include "bound_programs.h"
#include "session.h"
#include "source.h"

typedef struct nc_plans {
  const nc_header *header;
  nc_shared shared;
  nc_session *sessions; /* one for each program */
  nc_bound_programs bound; /* for other sizes; all zero: all shapes are fixed */
} nc_plans;

/* Get memory, and load the code of a source that stays as long; the first plans of a source have its
 * weights packed that are not in the file. Free with nc_plans_free, also after a failure. */
neocpu_status nc_plans_start(nc_plans *plans, nc_source *source, nc_pool *pool);

/* Find the only program whose inputs are of so many bytes as these. */
neocpu_status nc_plans_find(const nc_plans *plans, const neocpu_input *inputs, size_t *program);

/* Have calls of kernels made, and their workspaces lent, by somebody else from now on. */
void nc_plans_intercept(nc_plans *plans, const nc_interception *interception);

void nc_plans_free(nc_plans *plans);

#endif
