#include "tvm.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "denormals.h"
#include "error.h"
#include "file.h"
#include "header.h"
#include "json.h"

/* TVMFFITypeIndex. From FIRST_OBJECT on, a value is a counted object. */
enum { NONE = 0, INT = 1, BOOL = 2, RAW_STRING = 8, FIRST_OBJECT = 64, TENSOR = 70, ARRAY = 71 };

enum { CPU = 1 /* kDLCPU */, POOLED = 2 /* AllocatorType::kPooled */ };
enum { SHARE_ALL_CORES = -3 /* ThreadGroup::kSpecifyThreadShareAllCore */ };
enum { MAX_VERSIONS = 1 << 16 /* bytes of versions.json */ };
enum { PATH_SIZE = 320 };

/* TVMFFIObject: what an object holds lies behind it. */
typedef struct object {
  uint64_t references;
  int32_t kind;
  uint32_t padding;
  void (*deleter)(void *self, int flags);
} object;

/* TVMFFIByteArray. */
typedef struct bytes {
  const char *data;
  size_t size;
} bytes;

/* The beginnings of TVMFFIErrorCell and TVMFFISeqCell. */
typedef struct error_cell {
  bytes kind, message;
} error_cell;

typedef struct sequence_cell {
  nc_value *values;
  int64_t size;
} sequence_cell;

_Static_assert(sizeof(nc_value) == 16 && sizeof(object) == 24 && sizeof(nc_tensor) == 48,
               "the layout of tvm/ffi/c_api.h");

/* The functions of libtvm_ffi.so, and what is known of the libraries. */
static struct {
  pthread_mutex_t lock; /* see nc_tvm_lock */
  int (*get_global)(const bytes *name, void **function);
  int (*call)(void *function, const nc_value *arguments, int32_t count, nc_value *result);
  int (*create_view)(void *source, const nc_tensor *description, void **tensor);
  int (*release)(void *object);
  void (*move_error)(void **error);
  int open;
  unsigned long loads;
  char tvm_version[64], ffi_version[64];
} tvm = {.lock = PTHREAD_MUTEX_INITIALIZER};

void nc_tvm_lock(void) { pthread_mutex_lock(&tvm.lock); }

void nc_tvm_unlock(void) { pthread_mutex_unlock(&tvm.lock); }

/* Before there is a second thread: a fork that has begun calls no handler that is added after. */
__attribute__((constructor)) static void survive_forks(void) {
  pthread_atfork(nc_tvm_lock, nc_tvm_unlock, nc_tvm_unlock);
}

static nc_value text(const char *string) {
  return (nc_value){.kind = RAW_STRING, .as.string = string};
}

static nc_value number(int64_t integer) { return (nc_value){.kind = INT, .as.integer = integer}; }

/* What a call of the libraries that failed left as its reason. */
static neocpu_status failed(const char *what) {
  void *error = NULL;
  tvm.move_error(&error);
  if (error == NULL) return nc_fail(NEOCPU_FAILURE, "%s failed, TVM gave no reason", what);
  const error_cell *cell = (const error_cell *)((const object *)error + 1);
  const int length = cell->message.size < INT_MAX ? (int)cell->message.size : INT_MAX;
  nc_fail(NEOCPU_FAILURE, "%s failed: %.*s", what, length, cell->message.data);
  tvm.release(error);
  return NEOCPU_FAILURE;
}

neocpu_status nc_tvm_call(const nc_value *function, const nc_value *arguments, size_t count,
                          nc_value *result) {
  *result = (nc_value){.kind = NONE};
  const int error = tvm.call(function->as.object, arguments, (int32_t)count, result);
  return error == 0 ? NEOCPU_OK : failed("a call of TVM's runtime");
}

void nc_tvm_release(nc_value *value) {
  if (value->kind >= FIRST_OBJECT) tvm.release(value->as.object);
  *value = (nc_value){.kind = NONE};
}

/* Call a function that TVM registers under a name. */
static neocpu_status call_global(const char *name, const nc_value *arguments, size_t count,
                                 nc_value *result) {
  const bytes key = {name, strlen(name)};
  nc_value function = {.kind = FIRST_OBJECT};
  if (tvm.get_global(&key, &function.as.object) != 0) return failed(name);
  if (function.as.object == NULL) {
    return nc_fail(NEOCPU_FAILURE, "TVM's runtime has no function '%s'", name);
  }
  const neocpu_status status = nc_tvm_call(&function, arguments, count, result);
  nc_tvm_release(&function);
  return status;
}

/* Call a function of a module. */
static neocpu_status call_member(nc_value module, const char *name, const nc_value *arguments,
                                 size_t count, nc_value *result) {
  nc_value function;
  const nc_value query[] = {module, text(name), {.kind = BOOL}};
  neocpu_status status = call_global("ffi.ModuleGetFunction", query, 3, &function);
  if (status != NEOCPU_OK) return status;
  if (function.kind < FIRST_OBJECT) {
    return nc_fail(NEOCPU_FAILURE, "the module has no function '%s'", name);
  }
  if (arguments == NULL) { /* the function itself is wanted */
    *result = function;
    return NEOCPU_OK;
  }
  status = nc_tvm_call(&function, arguments, count, result);
  nc_tvm_release(&function);
  return status;
}

static neocpu_status open_library(const char *folder, const char *name, void **library) {
  char path[PATH_MAX];
  const int length = snprintf(path, sizeof path, "%s%s%s", folder == NULL ? "" : folder,
                              folder == NULL ? "" : "/", name);
  *library = length < PATH_MAX ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
  if (*library != NULL) return NEOCPU_OK;
  const char *reason = length < PATH_MAX ? dlerror() : "the path is too long";
  return nc_fail(NEOCPU_FAILURE,
                 "cannot load %s: %s; keep it beside the program, or name its folder in "
                 "LD_LIBRARY_PATH",
                 name, reason);
}

static neocpu_status find_functions(void *library) {
  const struct {
    const char *name;
    void *place;
  } functions[] = {{"TVMFFIFunctionGetGlobal", &tvm.get_global},
                   {"TVMFFIFunctionCall", &tvm.call},
                   {"TVMFFITensorCreateUnsafeView", &tvm.create_view},
                   {"TVMFFIObjectDecRef", &tvm.release},
                   {"TVMFFIErrorMoveFromRaised", &tvm.move_error}};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
    void *symbol = dlsym(library, functions[i].name);
    if (symbol == NULL) {
      return nc_fail(NEOCPU_FAILURE, "libtvm_ffi.so has no %s: it is of another version",
                     functions[i].name);
    }
    memcpy(functions[i].place, &symbol, sizeof symbol);
  }
  return NEOCPU_OK;
}

static int read_version(const nc_json *document, const char *package, char *version, size_t size) {
  const nc_json *value = nc_json_member(document, package);
  const char *text = nc_json_text(value);
  if (text == NULL || value->length >= size) return 0;
  strcpy(version, text);
  return 1;
}

/* Read what the libraries are from the file beside them: they do not say it themselves. */
static neocpu_status read_versions(void *library) {
  char path[PATH_MAX];
  nc_file file;
  void *content;
  const char *problem = "a version is missing";
  if (dlinfo(library, RTLD_DI_ORIGIN, path) != 0) return nc_fail(NEOCPU_FAILURE, "%s", dlerror());
  strncat(path, "/versions.json", sizeof path - strlen(path) - 1);
  neocpu_status status = nc_file_open(path, &file);
  if (status != NEOCPU_OK) {
    return nc_fail(NEOCPU_FAILURE, "%s; keep it beside TVM's libraries", neocpu_error());
  }
  if (file.size > MAX_VERSIONS) file.size = MAX_VERSIONS;
  status = nc_file_read_new(&file, 0, file.size, &content);
  close(file.fd);
  if (status != NEOCPU_OK) return status;
  nc_json *document = nc_json_read(content, file.size, &problem);
  const int found =
      read_version(document, "apache-tvm", tvm.tvm_version, sizeof tvm.tvm_version) &&
      read_version(document, "apache-tvm-ffi", tvm.ffi_version, sizeof tvm.ffi_version);
  free(document);
  free(content);
  return found ? NEOCPU_OK : nc_fail(NEOCPU_FAILURE, "cannot read %s: %s", path, problem);
}

/* Called with the lock held. */
static neocpu_status open_libraries(const char *folder) {
  void *ffi, *runtime;
  if (tvm.open) return NEOCPU_OK;
  neocpu_status status = open_library(folder, "libtvm_ffi.so", &ffi);
  if (status == NEOCPU_OK) status = open_library(folder, "libtvm_runtime.so", &runtime);
  if (status == NEOCPU_OK) status = find_functions(ffi);
  if (status == NEOCPU_OK) status = read_versions(ffi);
  tvm.open = status == NEOCPU_OK;
  return status;
}

static neocpu_status check_version(const char *path, const char *package, const char *wanted,
                                   const char *found) {
  if (strcmp(wanted, found) == 0) return NEOCPU_OK;
  return nc_fail(NEOCPU_ARTIFACT,
                 "%s was compiled with %s %s, the libraries here are of %s: compile the model "
                 "again, or bundle it again",
                 path, package, wanted, found);
}

neocpu_status nc_tvm_open(const char *folder, const char *path, const char *tvm_version,
                          const char *ffi_version) {
  nc_tvm_lock();
  neocpu_status status = open_libraries(folder);
  nc_tvm_unlock();
  if (status == NEOCPU_OK) status = check_version(path, "apache-tvm", tvm_version, tvm.tvm_version);
  if (status != NEOCPU_OK) return status;
  return check_version(path, "apache-tvm-ffi", ffi_version, tvm.ffi_version);
}

/* Have TVM use `threads` threads, thread i on CPU `cpus[i % count]` or all of them on all. */
static neocpu_status configure(int threads, int *cpus, int count) {
  char names[CPU_SETSIZE][8];
  nc_value arguments[CPU_SETSIZE], list, result;
  for (int i = 0; i < count; ++i) {
    snprintf(names[i], sizeof *names, "%d", cpus[i] % CPU_SETSIZE);
    arguments[i] = text(names[i]);
  }
  neocpu_status status = call_global("ffi.Array", arguments, (size_t)count, &list);
  if (status != NEOCPU_OK) return status;
  const nc_value settings[] = {number(SHARE_ALL_CORES), number(threads), list};
  status = call_global("runtime.config_threadpool", settings, 3, &result);
  nc_tvm_release(&list);
  return status;
}

neocpu_status nc_tvm_make_pool(int threads) {
  cpu_set_t allowed;
  int cpus[CPU_SETSIZE], cycled[CPU_SETSIZE], count = 0;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return nc_fail(NEOCPU_FAILURE, "cannot read the CPU affinity: %s", strerror(errno));
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus[count++] = cpu;
  }
  const int started = threads < CPU_SETSIZE ? threads : CPU_SETSIZE;
  for (int i = 0; i < started; ++i) cycled[i] = cpus[i % count];
  nc_flush_denormals(); /* before the pool is made, whose threads inherit it */
  /* TVM's pool binds its threads, and the thread that launches it, to single CPUs when it is made;
   * the second call and the affinity take that back. */
  neocpu_status status = configure(threads, cycled, started);
  if (status == NEOCPU_OK && threads > 1) status = configure(threads, cpus, count);
  sched_setaffinity(0, sizeof allowed, &allowed);
  return status;
}

static char *spell(char *path, uint64_t number, int digits) {
  for (int i = 0; i < digits; ++i) path = stpcpy(path, number >> i & 1 ? "./" : "/");
  return path;
}

/* Write the path of an open file, spelled with redundant "/" and "./" as in no load before: given a
 * path it has seen, the dynamic loader would return the old library. The address tells loads by
 * several copies of this code in one process apart. Called with the lock held. */
static void spell_path(int fd, char path[PATH_SIZE]) {
  char *end = spell(stpcpy(path, "/proc/self/fd/"), (uintptr_t)&tvm, 64);
  end = spell(end, ++tvm.loads, 64);
  snprintf(end, PATH_SIZE - (size_t)(end - path), "%d", fd);
}

/* Have TVM load a library from memory: the very bytes whose digest was checked. */
static neocpu_status load_library(const void *code, size_t size, nc_value *library) {
  char path[PATH_SIZE];
  const int fd = memfd_create("neocpu", MFD_CLOEXEC);
  size_t done = 0;
  while (fd >= 0 && done < size) {
    const ssize_t count = write(fd, (const char *)code + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += (size_t)count;
  }
  if (fd < 0 || done < size) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return nc_fail(NEOCPU_FAILURE, "cannot keep the code in memory: %s", strerror(error));
  }
  spell_path(fd, path);
  const nc_value arguments[] = {text(path), text("so")};
  const neocpu_status status =
      call_global("ffi.Module.load_from_file.so", arguments, 2, library);
  close(fd);
  return status;
}

neocpu_status nc_tvm_load(const void *code, size_t size, nc_value *machine) {
  nc_value library, nothing;
  *machine = (nc_value){.kind = NONE};
  neocpu_status status = load_library(code, size, &library);
  if (status != NEOCPU_OK) return status;
  const nc_value setup[] = {number(CPU), number(0), number(POOLED)};
  status = call_member(library, "vm_load_executable", setup, 0, machine);
  nc_tvm_release(&library);
  if (status != NEOCPU_OK) return status;
  status = call_member(*machine, "vm_initialization", setup, 3, &nothing);
  if (status != NEOCPU_OK) nc_tvm_release(machine);
  return status;
}

neocpu_status nc_tvm_function(nc_value machine, const char *name, nc_value *function) {
  *function = (nc_value){.kind = NONE};
  return call_member(machine, name, NULL, 0, function);
}

neocpu_status nc_tvm_shape(const int64_t *numbers, size_t count, nc_value *shape) {
  *shape = (nc_value){.kind = NONE};
  nc_value *arguments = calloc(count + 1, sizeof *arguments);
  if (arguments == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  for (size_t i = 0; i < count; ++i) arguments[i] = number(numbers[i]);
  const neocpu_status status = call_global("ffi.Shape", arguments, count, shape);
  free(arguments);
  return status;
}

neocpu_status nc_tvm_tensor(void *data, const neocpu_spec *spec, nc_value *tensor) {
  int64_t shape[64], strides[64], stride = 1;
  *tensor = (nc_value){.kind = NONE};
  if (spec->rank > 64) return nc_fail(NEOCPU_FAILURE, "a tensor of rank %zu", spec->rank);
  for (size_t i = spec->rank; i-- > 0;) {
    shape[i] = spec->shape[i];
    strides[i] = stride;
    stride *= shape[i];
  }
  nc_tensor description = {.data = data, .device_type = CPU, .rank = (int32_t)spec->rank,
                           .lanes = 1, .shape = shape, .strides = strides};
  nc_dtype(spec->dtype, &description.code, &description.bits);
  /* A view of nothing: TVM copies the description and owns the copy. */
  void *made = NULL;
  if (tvm.create_view(NULL, &description, &made) != 0) return failed("describing a tensor");
  *tensor = (nc_value){.kind = TENSOR, .as.object = made};
  return NEOCPU_OK;
}

nc_tensor *nc_tvm_content(const nc_value *value, size_t index) {
  if (value->kind == ARRAY) {
    const sequence_cell *cell = (const sequence_cell *)((const object *)value->as.object + 1);
    if (index >= (size_t)cell->size) return NULL;
    value = &cell->values[index];
    index = 0;
  }
  if (value->kind != TENSOR || index > 0) return NULL;
  return (nc_tensor *)((object *)value->as.object + 1);
}
