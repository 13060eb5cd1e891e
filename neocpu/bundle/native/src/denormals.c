#include "denormals.h"

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

void nc_flush_denormals(void) { _mm_setcsr(_mm_getcsr() | 1u << 15 | 1u << 6); /* FTZ, DAZ */ }

#elif defined(__aarch64__)

void nc_flush_denormals(void) {
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  control |= 1u << 24; /* FZ */
  __asm__ volatile("msr fpcr, %0" : : "r"(control));
}

#endif
