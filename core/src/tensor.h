/* Arrays as kernels take them. */
#ifndef NEOCPU_TENSOR_H_
#define NEOCPU_TENSOR_H_

#include <stdint.h>

enum { NC_CPU = 1 /* kDLCPU */, NC_TENSOR = 7 /* TVMFFITypeIndex::kTVMFFIDLTensorPtr */ };

/* DLPack's description of an array (DLTensor). */
typedef struct nc_tensor {
  void *data;
  int32_t device_type, device_id, rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides; /* strides in elements; null: C order without gaps */
  uint64_t byte_offset;
} nc_tensor;

#endif
