/* Large anonymous memory. */
#ifndef NEOCPU_MEMORY_H_
#define NEOCPU_MEMORY_H_

#include <stddef.h>

#include "neocpu.h"

/* Zeros, on huge pages where the kernel has them; null if there is no memory. Nobody has touched them
 * yet: on a machine of several nodes each page will lie with the thread that first writes to it. */
void *nc_memory_map(size_t size);

/* The same of as much as will ever be needed: what nobody touches costs nothing. */
void *nc_memory_reserve(size_t size);

/* Give it back; null is ignored. */
void nc_memory_unmap(void *memory, size_t size);

/* Fail for want of so much memory. */
neocpu_status nc_memory_missing(size_t size);

#endif
