/* checksums: of data of all sizes, those by instructions and those by table are the same. */
#include <stdlib.h>

#include "src/checksum.c"

int main(void) {
  enum { MOST = 9 * NC_CHECKED };
  static uint8_t data[MOST];
  static uint32_t sums[MOST / NC_CHECKED + 1];
  for (size_t i = 0; i < MOST; ++i) data[i] = (uint8_t)rand();
  for (size_t size = 0; size < MOST; size += size < 100 ? 1 : 3989) {
    neocpu_checksums(data, size, sums);
    for (size_t i = 0; i * NC_CHECKED < size; ++i) {
      const size_t left = size - i * NC_CHECKED, some = left < NC_CHECKED ? left : NC_CHECKED;
      if (sums[i] != ~plain(~0u, data + i * NC_CHECKED, some)) return 1;
    }
  }
  return plain(~0u, (const uint8_t *)"123456789", 9) == ~0xE3069283u ? 0 : 2;
}
