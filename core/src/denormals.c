#include "denormals.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

uint64_t nc_flush_denormals(void) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 1u << 15 | 1u << 6); /* FTZ, DAZ */
  return before;
}

void nc_restore_denormals(uint64_t before) {
  const unsigned mask = 1u << 15 | 1u << 6;
  _mm_setcsr((_mm_getcsr() & ~mask) | ((unsigned)before & mask));
}

#elif defined(__aarch64__)

static const uint64_t FZ = 1u << 24;

static uint64_t control(void) {
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}

uint64_t nc_flush_denormals(void) {
  const uint64_t before = control();
  __asm__ volatile("msr fpcr, %0" : : "r"(before | FZ));
  return before;
}

void nc_restore_denormals(uint64_t before) {
  __asm__ volatile("msr fpcr, %0" : : "r"((control() & ~FZ) | (before & FZ)));
}

#endif
