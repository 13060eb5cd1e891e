/* Calls one kernel where there is neither a C library nor an operating system: parallel loops run
 * one task after the other, workspaces come from a heap, and HLT ends it with the status in RAX. */
#include "kernel_table.h"

typedef int task_function(int task, void *environment, void *closure);

enum { LINE = 64, HEAP = 1 << 22 };

extern nc_kernel_function KERNEL;

static _Alignas(4096) char heap[HEAP];
static uint64_t used;

static int launch(task_function *run, void *closure, int tasks) {
  struct {
    void *unused;
    int32_t tasks;
  } environment = {0, tasks ? tasks : THREADS};
  for (int task = 0; task < environment.tasks; ++task) {
    int status = run(task, &environment, closure);
    if (status) return status;
  }
  return 0;
}

static void *allocate(int type, int device, uint64_t size, int code, int bits) {
  (void)type, (void)device, (void)code, (void)bits;
  char *found = heap + used;
  used += (size + LINE - 1) / LINE * LINE;
  return used <= HEAP ? found : 0;
}

/* What was allocated last is released first. */
static int release(int type, int device, void *workspace) {
  (void)type, (void)device;
  used = (uint64_t)((char *)workspace - heap);
  return 0;
}

void *__TVMBackendParallelLaunch = (void *)launch;
void *__TVMBackendAllocWorkspace = (void *)allocate;
void *__TVMBackendFreeWorkspace = (void *)release;

/* What compilers call of a C library, whatever they are told. */
void *memset(void *to, int byte, uint64_t size) {
  void *at = to;
  __asm__ volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(byte) : "memory");
  return to;
}

void *memcpy(void *to, const void *from, uint64_t size) {
  void *at = to;
  __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(size) : : "memory");
  return to;
}

void start(const nc_value *arguments, int32_t count) {
  nc_value result = {0};
  int status = KERNEL(0, arguments, count, &result);
  __asm__ volatile("hlt" : : "a"(status));
}
