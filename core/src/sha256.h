/* SHA-256 (FIPS 180-4), in the processor's own instructions where it has them. */
#ifndef NEOCPU_SHA256_H_
#define NEOCPU_SHA256_H_

#include <stddef.h>
#include <stdint.h>

enum { NC_SHA256_SIZE = 32 };

typedef struct nc_sha256 {
  uint32_t state[8];
  uint64_t length; /* bytes so far */
  uint8_t block[64];
  int accelerated;
} nc_sha256;

void nc_sha256_start(nc_sha256 *hash);
void nc_sha256_update(nc_sha256 *hash, const void *data, size_t size);
void nc_sha256_finish(nc_sha256 *hash, uint8_t digest[NC_SHA256_SIZE]);

#endif
