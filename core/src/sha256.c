#include "sha256.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

_Alignas(16) static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void blocks_plain(uint32_t state[8], const uint8_t *data, size_t count) {
  for (; count > 0; --count, data += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
      uint32_t word;
      memcpy(&word, data + 4 * i, 4);
      w[i] = __builtin_bswap32(word);
    }
    for (int i = 16; i < 64; ++i) {
      uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
      uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; ++i) {
      uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
      uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i];
      uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
      uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1;
      d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += sums[i];
  }
}

#if defined(__x86_64__)

static int accelerated(void) {
  unsigned a, b, c, d;
  int sse41 = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && (c & bit_SSSE3);
  return sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
}

/* The instructions keep the state as (A, B, E, F) and (C, D, G, H), highest word first. */
__attribute__((target("sha,sse4.1,ssse3"))) static void blocks_accelerated(uint32_t state[8],
                                                                           const uint8_t *data,
                                                                           size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i dcba = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
  __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(dcba, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, dcba, 0xf0);
  for (; count > 0; --count, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4]; /* four words each, the last sixteen */
    for (int i = 0; i < 16; ++i) {
      __m128i next;
      if (i < 4) {
        next = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), swap);
      } else {
        __m128i last = w[(i + 3) & 3], middle = _mm_alignr_epi8(last, w[(i + 2) & 3], 4);
        next = _mm_add_epi32(_mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]), middle);
        next = _mm_sha256msg2_epu32(next, last);
      }
      w[i & 3] = next;
      next = _mm_add_epi32(next, _mm_load_si128((const __m128i *)(K + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, next);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(next, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#elif defined(__aarch64__)

static int accelerated(void) { return (getauxval(AT_HWCAP) & 1ul << 6) != 0; /* HWCAP_SHA2 */ }

__attribute__((target("+crypto"))) static void blocks_accelerated(uint32_t state[8],
                                                                  const uint8_t *data,
                                                                  size_t count) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; count > 0; --count, data += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4]; /* four words each, the last sixteen */
    for (int i = 0; i < 16; ++i) {
      if (i < 4) {
        w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
      } else {
        uint32x4_t partial = vsha256su0q_u32(w[i & 3], w[(i + 1) & 3]);
        w[i & 3] = vsha256su1q_u32(partial, w[(i + 2) & 3], w[(i + 3) & 3]);
      }
      const uint32x4_t words = vaddq_u32(w[i & 3], vld1q_u32(K + 4 * i));
      const uint32x4_t old = abcd;
      abcd = vsha256hq_u32(abcd, efgh, words);
      efgh = vsha256h2q_u32(efgh, old, words);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

#else

static int accelerated(void) { return 0; }
#define blocks_accelerated blocks_plain

#endif

static void blocks(nc_sha256 *hash, const uint8_t *data, size_t count) {
  (hash->accelerated ? blocks_accelerated : blocks_plain)(hash->state, data, count);
}

void nc_sha256_start(nc_sha256 *hash) {
  static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(hash->state, initial, sizeof initial);
  hash->length = 0;
  hash->accelerated = accelerated();
}

void nc_sha256_update(nc_sha256 *hash, const void *data, size_t size) {
  const uint8_t *bytes = data;
  const size_t held = hash->length % 64;
  hash->length += size;
  if (held > 0) {
    const size_t wanted = 64 - held, taken = size < wanted ? size : wanted;
    memcpy(hash->block + held, bytes, taken);
    if (taken < wanted) return;
    blocks(hash, hash->block, 1);
    bytes += taken;
    size -= taken;
  }
  blocks(hash, bytes, size / 64);
  if (size % 64 > 0) memcpy(hash->block, bytes + (size - size % 64), size % 64);
}

void nc_sha256_finish(nc_sha256 *hash, uint8_t digest[NC_SHA256_SIZE]) {
  const uint64_t bits = __builtin_bswap64(hash->length * 8);
  static const uint8_t padding[64] = {0x80};
  nc_sha256_update(hash, padding, 1 + (119 - hash->length % 64) % 64);
  nc_sha256_update(hash, &bits, sizeof bits);
  for (int i = 0; i < 8; ++i) {
    const uint32_t word = __builtin_bswap32(hash->state[i]);
    memcpy(digest + 4 * i, &word, 4);
  }
}
