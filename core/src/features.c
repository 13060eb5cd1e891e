#include "features.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A feature: CPUID leaf and subleaf, register (eax to edx) and bit, or of AVX10 the least version,
 * and the bits of XCR0 that say whether the operating system saves its registers. */
typedef struct feature {
  const char *name;
  unsigned leaf, subleaf, reg, bit, state;
} feature;

enum { EAX, EBX, ECX, EDX };
enum { AVX = 0x6, AVX512 = 0xe6, AMX = 0x60000, APX = 0x80000 };
enum { AVX10_LEAF = 0x24, AVX10_VERSION = 0xff };
enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 /* XFEATURE_XTILEDATA */ };

static const feature features[] = {
    {"sse3", 1, 0, ECX, 0, 0},
    {"ssse3", 1, 0, ECX, 9, 0},
    {"sse4.1", 1, 0, ECX, 19, 0},
    {"sse4.2", 1, 0, ECX, 20, 0},
    {"cx16", 1, 0, ECX, 13, 0},
    {"movbe", 1, 0, ECX, 22, 0},
    {"popcnt", 1, 0, ECX, 23, 0},
    {"fma", 1, 0, ECX, 12, AVX},
    {"avx", 1, 0, ECX, 28, AVX},
    {"f16c", 1, 0, ECX, 29, AVX},
    {"bmi", 7, 0, EBX, 3, 0},
    {"avx2", 7, 0, EBX, 5, AVX},
    {"bmi2", 7, 0, EBX, 8, 0},
    {"avx512f", 7, 0, EBX, 16, AVX512},
    {"avx512dq", 7, 0, EBX, 17, AVX512},
    {"avx512ifma", 7, 0, EBX, 21, AVX512},
    {"avx512cd", 7, 0, EBX, 28, AVX512},
    {"avx512bw", 7, 0, EBX, 30, AVX512},
    {"avx512vl", 7, 0, EBX, 31, AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, AVX512},
    {"avx512vbmi2", 7, 0, ECX, 6, AVX512},
    {"gfni", 7, 0, ECX, 8, 0},
    {"avx512vnni", 7, 0, ECX, 11, AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, AVX512},
    {"avx512vpopcntdq", 7, 0, ECX, 14, AVX512},
    {"avx512fp16", 7, 0, EDX, 23, AVX512},
    {"amx-bf16", 7, 0, EDX, 22, AMX},
    {"amx-tile", 7, 0, EDX, 24, AMX},
    {"amx-int8", 7, 0, EDX, 25, AMX},
    {"avxvnni", 7, 1, EAX, 4, AVX},
    {"avx512bf16", 7, 1, EAX, 5, AVX512},
    {"cmpccxadd", 7, 1, EAX, 7, 0},
    {"avxifma", 7, 1, EAX, 23, AVX},
    {"avxvnniint8", 7, 1, EDX, 4, AVX},
    {"avxneconvert", 7, 1, EDX, 5, AVX},
    {"avxvnniint16", 7, 1, EDX, 10, AVX},
    {"avx10.1", AVX10_LEAF, 0, EBX, 1, AVX512},
    {"avx10.2", AVX10_LEAF, 0, EBX, 2, AVX512},
    {"sahf", 0x80000001, 0, ECX, 0, 0},
    {"lzcnt", 0x80000001, 0, ECX, 5, 0},
    {"sse4a", 0x80000001, 0, ECX, 6, 0},
    {"xop", 0x80000001, 0, ECX, 11, AVX},
    {"fma4", 0x80000001, 0, ECX, 16, AVX},
    {"tbm", 0x80000001, 0, ECX, 21, 0},
    /* LLVM has APX in parts, CPUs have all or none of it. */
    {"ccmp", 7, 1, EDX, 21, APX},
    {"cf", 7, 1, EDX, 21, APX},
    {"egpr", 7, 1, EDX, 21, APX},
    {"ndd", 7, 1, EDX, 21, APX},
    {"nf", 7, 1, EDX, 21, APX},
    {"ppx", 7, 1, EDX, 21, APX},
    {"push2pop2", 7, 1, EDX, 21, APX},
    {"zu", 7, 1, EDX, 21, APX},
};

static unsigned enabled_state(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return a;
}

int neocpu_permit_tiles(void) {
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

static int permitted(unsigned state) { return state != AMX || neocpu_permit_tiles(); }

static int has(const feature *wanted) {
  unsigned r[4];
  if (!__get_cpuid_count(wanted->leaf, wanted->subleaf, &r[0], &r[1], &r[2], &r[3])) return 0;
  const unsigned value = r[wanted->reg];
  const int there = wanted->leaf == AVX10_LEAF ? (value & AVX10_VERSION) >= wanted->bit
                                               : value >> wanted->bit & 1;
  return there && (~enabled_state() & wanted->state) == 0 && permitted(wanted->state);
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

/* A feature: bit of the auxiliary vector's AT_HWCAP, or of AT_HWCAP2. */
typedef struct feature {
  const char *name;
  unsigned long vector;
  unsigned bit;
} feature;

static const feature features[] = {
    {"neon", AT_HWCAP, 1},     {"aes", AT_HWCAP, 3},   {"sha2", AT_HWCAP, 6},
    {"crc", AT_HWCAP, 7},      {"lse", AT_HWCAP, 8},   {"fullfp16", AT_HWCAP, 10},
    {"rdm", AT_HWCAP, 12},     {"jsconv", AT_HWCAP, 13}, {"complxnum", AT_HWCAP, 14},
    {"rcpc", AT_HWCAP, 15},    {"dotprod", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},
    {"fp16fml", AT_HWCAP, 23}, {"sve2", AT_HWCAP2, 1}, {"i8mm", AT_HWCAP2, 13},
    {"bf16", AT_HWCAP2, 14},   {"sha3", AT_HWCAP, 17}, {"lse2", AT_HWCAP, 25},
    {"rcpc-immo", AT_HWCAP, 26}, {"flagm", AT_HWCAP, 27}, {"sve-bitperm", AT_HWCAP2, 4},
    {"sve-sha3", AT_HWCAP2, 5}, {"altnzcv", AT_HWCAP2, 7}, {"fptoint", AT_HWCAP2, 8},
    {"cssc", AT_HWCAP2, 34},   {"mops", AT_HWCAP2, 43}, {"hbc", AT_HWCAP2, 44},
    {"sve-b16b16", AT_HWCAP2, 45}, {"rcpc3", AT_HWCAP2, 46}, {"lut", AT_HWCAP2, 49},
    {"faminmax", AT_HWCAP2, 50}, {"fp8", AT_HWCAP2, 51}, {"fp8fma", AT_HWCAP2, 52},
    {"fp8dot4", AT_HWCAP2, 53}, {"fp8dot2", AT_HWCAP2, 54},
};

static int has(const feature *wanted) { return getauxval(wanted->vector) >> wanted->bit & 1; }

int neocpu_permit_tiles(void) { return 0; }

#else
#error "neocpu runs on x86-64 and AArch64"
#endif

static int host_has(const char *name) {
  for (size_t i = 0; i < sizeof features / sizeof *features; ++i) {
    if (strcmp(features[i].name, name) == 0) return has(&features[i]);
  }
  return 0;
}

size_t nc_missing_features(const char *const *required, size_t count, char *missing, size_t size) {
  size_t found = 0, used = 0;
  missing[0] = '\0';
  for (size_t i = 0; i < count; ++i) {
    if (host_has(required[i])) continue;
    const int length = snprintf(missing + used, size - used, "%s%s", found > 0 ? ", " : "",
                                required[i]);
    used = used + (size_t)length < size ? used + (size_t)length : size - 1;
    ++found;
  }
  return found;
}
