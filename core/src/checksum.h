/* CRC-32C (Castagnoli's polynomial; RFC 3720, appendix B.4) of large data, at the speed of memory. */
#ifndef NEOCPU_CHECKSUM_H_
#define NEOCPU_CHECKSUM_H_

#include <stddef.h>
#include <stdint.h>

#include "neocpu.h"

enum { NC_CHECKED = 16 << 10 /* bytes that have a checksum of their own */ };

/* Write the checksum of every NC_CHECKED bytes; the last ones may be fewer. Whoever writes artifacts
 * calls it too. */
NEOCPU_API void neocpu_checksums(const void *data, size_t size, uint32_t *sums);

#endif
