/* What a loaded model consists of. */
#ifndef NEOCPU_MODEL_H_
#define NEOCPU_MODEL_H_

#include <sys/types.h>

#include "neocpu.h"
#include "plans.h"
#include "pool.h"
#include "queue.h"
#include "source.h"

struct neocpu_model {
  pid_t process; /* the one that loaded it: a child has none of its threads */
  nc_source *source;
  nc_pool *pool;
  nc_plans plans;
  nc_trace *trace; /* the last one, or the one in progress; null: none */
  nc_queue queue;
  neocpu_description description;
  neocpu_signature *signatures;
};

/* Refuse a null pointer, and a model of the process that this one was forked from. */
neocpu_status nc_model_check(const neocpu_model *model);

#endif
