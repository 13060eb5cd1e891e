#include "workspace.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "header.h"

enum { HUGE_PAGE = 2 << 20 };

void *nc_workspace_make(size_t size) {
  const size_t alignment = size < HUGE_PAGE ? NC_ALIGN : HUGE_PAGE;
  if (size > SIZE_MAX - alignment) return NULL;
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  void *data = aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (data != NULL && alignment == HUGE_PAGE) madvise(data, rounded, MADV_HUGEPAGE);
  return data;
}

void *nc_workspace_take(nc_workspaces *workspaces, size_t size) {
  if (workspaces->used == NC_WORKSPACES) return NULL;
  void **data = &workspaces->blocks[workspaces->used].data;
  size_t *room = &workspaces->blocks[workspaces->used].size;
  if (*data == NULL || *room < size) {
    free(*data);
    *data = nc_workspace_make(size);
    *room = *data == NULL ? 0 : size;
  }
  if (*data != NULL) ++workspaces->used;
  return *data;
}

int nc_workspace_give(nc_workspaces *workspaces, const void *data) {
  if (workspaces->used == 0 || workspaces->blocks[workspaces->used - 1].data != data) return -1;
  --workspaces->used;
  return 0;
}

void nc_workspaces_free(nc_workspaces *workspaces) {
  for (int i = 0; i < NC_WORKSPACES; ++i) free(workspaces->blocks[i].data);
  *workspaces = (nc_workspaces){0};
}
