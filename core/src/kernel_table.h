/* The table in an artifact's code of its kernels, and of its variables for the runtime's
 * functions. The compiler writes one such table into every artifact (as C or as C++), of which
 * it is the entry point; nothing that a header says of kernels is believed unless it agrees. */
#ifndef NEOCPU_KERNEL_TABLE_H_
#define NEOCPU_KERNEL_TABLE_H_

#include <stdint.h>

/* The first word of a table: "neocpu", and the version of this file's structures. */
#define NC_KERNEL_TABLE_MAGIC 0x00017570636f656eu

/* The same of an nc_sized_kernel_table. */
#define NC_SIZED_TABLE_MAGIC 0x00027570636f656eu

#ifdef __cplusplus
extern "C" {
#endif

/* TVMFFIAny: here always a tensor, by the address of its DLPack description. */
typedef struct nc_value {
  int32_t kind;
  uint32_t padding;
  union {
    int64_t integer;
    void *pointer;
  } as;
} nc_value;

/* A kernel takes tensors, and returns nonzero if it failed, which is for want of memory. */
typedef int nc_kernel_function(void *self, const nc_value *arguments, int32_t count,
                               nc_value *result);

#define NC_OF_EXTENT 0x80000000u

typedef struct nc_kernel {
  const char *name;
  nc_kernel_function *function;
  const uint64_t *sizes;    /* bytes of each tensor that it takes, or their constant factor */
  const uint16_t *types;    /* of each, DLPack's code << 8 | bits */
  /* Iterations of each of its parallel loops, in turn, or into fewer tasks to cut it; 0: unknown. Of a
   * kernel of any size also NC_OF_EXTENT | position of the extent that they are. */
  const uint32_t *launches;
  uint32_t count;           /* of the tensors */
  uint32_t results;         /* of them, those that it writes: the last ones */
  uint32_t launch_count;
} nc_kernel;

typedef struct nc_kernel_table {
  uint64_t magic;
  uint64_t count;
  const nc_kernel *kernels; /* in the order of their names, by strcmp */
  /* Variables of the code that hold the runtime's functions; null where it needs none. */
  void **launch, **allocate, **release;
} nc_kernel_table;

/* A table with kernels of any size. Such a kernel takes its extents as the shape of its first tensor,
 * which has no data. The bytes of each tensor are its size in the kernel times some of the extents. */
typedef struct nc_sized_kernel_table {
  nc_kernel_table table;
  uint64_t factor_count; /* the number of words below */
  /* For each tensor of each kernel: how many extents, and their positions. The first tensor of a kernel
   * of any size names the last one, so that their number is known. */
  const uint32_t *factors;
} nc_sized_kernel_table;

#ifdef __cplusplus
}
#endif

#endif
