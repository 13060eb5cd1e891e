#include "checksum.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

static uint32_t plain(uint32_t sum, const uint8_t *data, size_t size) {
  static const uint32_t table[16] = {
      0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
      0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
  for (size_t i = 0; i < size; ++i) {
    sum ^= data[i];
    sum = sum >> 4 ^ table[sum & 15];
    sum = sum >> 4 ^ table[sum & 15];
  }
  return sum;
}

#if defined(__x86_64__)

#define ACCELERATED __attribute__((target("sse4.2")))

static int accelerated(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
}

ACCELERATED static inline uint32_t add_word(uint32_t sum, uint64_t word) {
  return (uint32_t)_mm_crc32_u64(sum, word);
}

ACCELERATED static inline uint32_t add_byte(uint32_t sum, uint8_t byte) {
  return _mm_crc32_u8(sum, byte);
}

#elif defined(__aarch64__)

#define ACCELERATED __attribute__((target("+crc")))

static int accelerated(void) { return (getauxval(AT_HWCAP) & 1ul << 7) != 0; /* HWCAP_CRC32 */ }

ACCELERATED static inline uint32_t add_word(uint32_t sum, uint64_t word) {
  return __crc32cd(sum, word);
}

ACCELERATED static inline uint32_t add_byte(uint32_t sum, uint8_t byte) {
  return __crc32cb(sum, byte);
}

#else
#define ACCELERATED
static int accelerated(void) { return 0; }
static uint32_t add_word(uint32_t sum, uint64_t word) { return plain(sum, (uint8_t *)&word, 8); }
static uint32_t add_byte(uint32_t sum, uint8_t byte) { return plain(sum, &byte, 1); }
#endif

static inline uint64_t word_at(const uint8_t *data) {
  uint64_t word;
  memcpy(&word, data, sizeof word);
  return word;
}

ACCELERATED static uint32_t fast(uint32_t sum, const uint8_t *data, size_t size) {
  for (; size >= 8; size -= 8, data += 8) sum = add_word(sum, word_at(data));
  for (; size > 0; --size) sum = add_byte(sum, *data++);
  return sum;
}

/* Four ranges are summed side by side: an addition takes three cycles, but one can begin in each. */
ACCELERATED static void fast_four(const uint8_t *data, uint32_t *sums) {
  uint32_t a = ~0u, b = ~0u, c = ~0u, d = ~0u;
  for (size_t i = 0; i < NC_CHECKED; i += 8) {
    a = add_word(a, word_at(data + i));
    b = add_word(b, word_at(data + NC_CHECKED + i));
    c = add_word(c, word_at(data + 2 * NC_CHECKED + i));
    d = add_word(d, word_at(data + 3 * NC_CHECKED + i));
  }
  sums[0] = ~a, sums[1] = ~b, sums[2] = ~c, sums[3] = ~d;
}

void neocpu_checksums(const void *data, size_t size, uint32_t *sums) {
  const uint8_t *bytes = data;
  const int by_instruction = accelerated();
  for (; by_instruction && size >= 4 * NC_CHECKED; size -= 4 * NC_CHECKED) {
    fast_four(bytes, sums);
    bytes += 4 * NC_CHECKED;
    sums += 4;
  }
  while (size > 0) {
    const size_t some = size < NC_CHECKED ? size : NC_CHECKED;
    *sums++ = ~(by_instruction ? fast : plain)(~0u, bytes, some);
    bytes += some;
    size -= some;
  }
}
