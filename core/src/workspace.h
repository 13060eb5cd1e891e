/* Scratch memory of the kernels that one thread runs, kept from call to call. */
#ifndef NEOCPU_WORKSPACE_H_
#define NEOCPU_WORKSPACE_H_

#include <stddef.h>

/* The workspaces that a thread may have at a time: eight of each kernel of a launch, and of a
 * task. */
enum { NC_WORKSPACES = 72 };

typedef struct nc_workspaces {
  struct {
    void *data;
    size_t size;
  } blocks[NC_WORKSPACES];
  int used;
} nc_workspaces;

/* Memory of `size` bytes that free gives back; null if there is none. */
void *nc_workspace_make(size_t size);

/* Memory of `size` bytes; null if there is none. The last one taken is the first to be given back. */
void *nc_workspace_take(nc_workspaces *workspaces, size_t size);

/* Return zero, or nonzero if it is not the last one taken. */
int nc_workspace_give(nc_workspaces *workspaces, const void *data);

void nc_workspaces_free(nc_workspaces *workspaces);

#endif
