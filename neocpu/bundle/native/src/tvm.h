/* TVM's runtime, by its stable C interface (tvm/ffi/c_api.h and dlpack.h), as far as running a
 * model needs it. The two libraries are loaded when the first model is, and stay. */
#ifndef NEOCPU_TVM_H_
#define NEOCPU_TVM_H_

#include <stddef.h>
#include <stdint.h>

#include "neocpu.h"

/* TVMFFIAny: a number, or a pointer to a counted object. */
typedef struct nc_value {
  int32_t kind; /* TVMFFITypeIndex */
  uint32_t length;
  union {
    int64_t integer;
    const char *string;
    void *object;
  } as;
} nc_value;

/* DLPack's description of an array. */
typedef struct nc_tensor {
  void *data;
  int32_t device_type, device_id, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides; /* strides in elements */
  uint64_t byte_offset;
} nc_tensor;

/* Loading and freeing take locks of TVM's and of the dynamic loader's, which a child forked meanwhile
 * would inherit taken. This lock is around them, and forks wait for it. */
void nc_tvm_lock(void);
void nc_tvm_unlock(void);

/* Load the libraries from a folder, or where the dynamic loader looks if it is null, and check that
 * the versions.json beside them names the versions that an artifact was compiled with. */
neocpu_status nc_tvm_open(const char *folder, const char *path, const char *tvm_version,
                          const char *ffi_version);

/* Give the calling thread its own pool of exactly `threads` threads, itself included, which compute
 * without denormals and may run on all CPUs that the calling thread may. */
neocpu_status nc_tvm_make_pool(int threads);

/* Load an artifact's code; return a virtual machine for it. To be called with the lock held. */
neocpu_status nc_tvm_load(const void *code, size_t size, nc_value *machine);

/* Get a function of a virtual machine. */
neocpu_status nc_tvm_function(nc_value machine, const char *name, nc_value *function);

/* Make a value of TVM's out of numbers, as it has shapes. */
neocpu_status nc_tvm_shape(const int64_t *numbers, size_t count, nc_value *shape);

/* Describe memory as a tensor. It must outlive the calls that read or write it. */
neocpu_status nc_tvm_tensor(void *data, const neocpu_spec *spec, nc_value *tensor);

/* Call a function; *result then owns what it returned. */
neocpu_status nc_tvm_call(const nc_value *function, const nc_value *arguments, size_t count,
                          nc_value *result);

/* The description in a tensor; of an array of tensors, of the one at `index`. Null if there is
 * none. */
nc_tensor *nc_tvm_content(const nc_value *value, size_t index);

/* Give back an object, and make the value none. */
void nc_tvm_release(nc_value *value);

#endif
