/* fuzz ARTIFACT CASES: open damaged copies of an artifact whose digests are right again, so that
 * every parser is reached, and .npy files with damaged headers. Prints how many of each were
 * accepted; that none crashed is for the sanitizers to say. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "neocpu.h"
#include "src/artifact.h"
#include "src/code.h"
#include "src/elf.h"
#include "src/npy.h"

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t draw(uint64_t limit) { /* xorshift64 */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % limit;
}

/* Damage a text in place, mostly to what its grammar still allows. */
static void damage(char *text, size_t size) {
  static const char likely[] = "0123456789-+.eE,:[]{}\"\\ntfu \n\x80\xff";
  for (uint64_t edits = 1 + draw(4); edits > 0; --edits) {
    const size_t at = draw(size), length = 1 + draw(24);
    switch (draw(4)) {
      case 0:
        text[at] = (char)draw(256);
        break;
      case 1:
        text[at] = likely[draw(sizeof likely - 1)];
        break;
      case 2: /* a number becomes a long one */
        for (size_t i = at; i < size && i < at + length; ++i) {
          if (text[i] >= '0' && text[i] <= '9') text[i] = (char)('0' + draw(10));
          if (text[i] == ',' && draw(3) == 0) text[i] = '9';
        }
        break;
      default: { /* a piece is repeated elsewhere */
        const size_t from = draw(size), end = from > at ? from : at;
        if (end + length <= size) memmove(text + at, text + from, length);
      }
    }
  }
}

static void put(int fd, const void *data, size_t size) {
  if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
}

static void sign(char *data, const nc_section *weights, const nc_section *digest) {
  const uint64_t end = weights->offset + weights->size;
  nc_sha256 hash;
  nc_sha256_start(&hash);
  nc_sha256_update(&hash, data, weights->offset);
  nc_sha256_update(&hash, data + end, digest->offset - end);
  nc_sha256_finish(&hash, (uint8_t *)data + digest->offset);
}

static void look_into(const char *path) {
  neocpu_contents *contents;
  if (neocpu_inspect(path, &contents) != NEOCPU_OK) return;
  for (size_t i = 0; i < contents->count; ++i) {
    uint64_t checked = 0;
    const neocpu_variant *variant = &contents->variants[i];
    while (neocpu_check_weights(contents, i, &checked) == NEOCPU_OK &&
           checked < variant->weights_size) {
    }
  }
  neocpu_contents_free(contents);
}

static int accepted(const char *path) {
  nc_artifact artifact;
  nc_file file;
  if (nc_file_open(path, &file) != NEOCPU_OK) return 0;
  const int read = nc_artifact_open(&file, &artifact) == NEOCPU_OK;
  if (read) nc_artifact_check_host(&artifact);
  nc_artifact_free(&artifact);
  nc_file_close(&file);
  look_into(path);
  return read;
}

enum { BLOCK = 1 << 16 };

/* A fat file of the artifact for this machine and of nothing for another; its index is damaged. */
static size_t write_fat(char *fat, const char *artifact, size_t size, const char *machine) {
  char document[512];
  const size_t second = BLOCK + (size + BLOCK - 1) / BLOCK * BLOCK;
  snprintf(document, sizeof document,
           "{\"variants\":[{\"name\":\"a\",\"offset\":%d,\"size\":%zu,\"target\":\"llvm\","
           "\"machine\":\"%s\",\"isa_features\":[]},{\"name\":\"b\",\"offset\":%zu,\"size\":64,"
           "\"target\":\"llvm\",\"machine\":\"other\",\"isa_features\":[\"neon\"]}]}",
           BLOCK, size, machine, second);
  damage(document, strlen(document));
  memset(fat, 0, BLOCK);
  size_t used = (size_t)sprintf(fat, "NEOCPU-FAT 1\n%s\n", document);
  uint8_t digest[NC_SHA256_SIZE];
  nc_sha256 hash;
  nc_sha256_start(&hash);
  nc_sha256_update(&hash, fat, used);
  nc_sha256_finish(&hash, digest);
  for (int i = 0; i < NC_SHA256_SIZE; ++i) used += (size_t)sprintf(fat + used, "%02x", digest[i]);
  fat[used] = '\n';
  memcpy(fat + BLOCK, artifact, size);
  return second + 64;
}

static int read_array(int fd, const char *path) {
  static const int64_t shape[] = {2, 3};
  const neocpu_spec spec = {"x", "float32", shape, 2, 24, 0, NULL};
  char file[128] =
      "\x93NUMPY\x01\x00\x56\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  char problem[256];
  void *data;
  const size_t used = 10 + strlen(file + 10);
  memset(file + used, ' ', 96 - used);
  damage(file + 6, 90);
  put(fd, file, draw(8) == 0 ? draw(120) : 120);
  const int read = npy_read(path, &spec, &data, problem, sizeof problem);
  free(data);
  return read;
}

/* Read all that the runtime may, of what the table of kernels names, and call nothing. */
static void follow(const nc_code *code) {
  static volatile uint64_t sum __attribute__((unused));
  nc_code_kernel(code, "");
  for (uint64_t i = 0; i < code->table->count; ++i) {
    const nc_kernel *kernel = &code->table->kernels[i];
    sum += strlen(kernel->name) + (nc_code_kernel(code, kernel->name) != NULL);
    for (uint32_t j = 0; j < kernel->count; ++j) sum += kernel->sizes[j] + kernel->types[j];
    for (uint32_t j = 0; j < kernel->launch_count; ++j) sum += kernel->launches[j];
    for (uint32_t j = kernel->count - kernel->results; j < kernel->count; ++j) {
      sum += kernel->sizes[j];
    }
  }
}

/* Whether code is loaded whose headers and tables are damaged. None of it is run. */
static int load_code(char *bytes, size_t size) {
  nc_code code;
  const neocpu_status status = nc_code_load("damaged", bytes, size, &code);
  if (status == NEOCPU_OK) follow(&code);
  nc_code_unload(&code);
  return status == NEOCPU_OK;
}

/* Damage the words of a segment, mostly to what could be an address or an offset. */
static void damage_words(char *place, size_t size) {
  for (uint64_t edits = 1 + draw(4); size >= 8 && edits > 0; --edits) {
    uint64_t word, at = draw(size / 8) * 8;
    memcpy(&word, place + at, 8);
    switch (draw(5)) {
      case 0: word = draw(1 << 16); break;
      case 1: word += draw(64) - 32; break;
      case 2: word ^= (uint64_t)1 << draw(64); break;
      case 3: word = word << 32 | word >> 32; break;
      default: word = (uint64_t)0 - draw(4096);
    }
    memcpy(place + at, &word, 8);
  }
}

static int load_damaged_words(char *code, size_t size) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)code;
  const Elf64_Phdr *segments = (const Elf64_Phdr *)(code + header->e_phoff);
  const Elf64_Phdr *segment;
  do {
    segment = &segments[draw(header->e_phnum)];
  } while (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) != 0);
  /* The first one begins with the ELF header. */
  const size_t before = segment->p_offset == 0 ? 1024 : 0;
  if (segment->p_filesz > before) {
    damage_words(code + segment->p_offset + before, segment->p_filesz - before);
  }
  return load_code(code, size);
}

static int load_damaged_text(char *code, size_t size) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)code;
  const Elf64_Phdr *segments = (const Elf64_Phdr *)(code + header->e_phoff);
  char *place = code;
  size_t room = sizeof *header + header->e_phnum * sizeof *segments;
  for (int i = 0; i < header->e_phnum && draw(2); ++i) {
    const int is_table = segments[i].p_type == PT_DYNAMIC || (segments[i].p_type == PT_LOAD && i == 0);
    if (!is_table || segments[i].p_filesz == 0) continue;
    place = code + segments[i].p_offset;
    room = segments[i].p_filesz;
  }
  damage(place, room);
  return load_code(code, draw(16) ? size : draw(size));
}

int main(int count, char **words) {
  const long cases = count > 2 ? atol(words[2]) : 0;
  long headers = 0, tables = 0, images = 0, kernels = 0, indices = 0, arrays = 0;
  nc_file file;
  nc_section sections[] = {
      {.name = ".neocpu"}, {.name = ".neocpu.weights"}, {.name = ".neocpu.sha256"}};
  const char *machine;
  void *original;
  char path[64];
  const int fd = memfd_create("fuzz", 0);
  if (nc_file_open(words[1], &file) != NEOCPU_OK) return 1;
  if (nc_elf_read(&file, sections, 3, &machine) != NEOCPU_OK) return 2;
  if (nc_file_read_new(&file, 0, file.size, &original) != NEOCPU_OK) return 3;
  char *data = malloc(file.size), *fat = calloc(1, file.size + 4 * BLOCK);
  const size_t end = sections[1].offset + sections[1].size;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  memcpy(data, original, file.size);
  put(fd, data, file.size);
  if (!accepted(path)) return 4;
  for (long i = 0; i < cases; ++i) {
    memcpy(data, original, file.size);
    damage(data + sections[0].offset, sections[0].size);
    sign(data, &sections[1], &sections[2]);
    put(fd, data, file.size);
    headers += accepted(path);

    memcpy(data, original, file.size);
    damage(draw(2) ? data : data + end + sections[0].size,
           draw(2) ? 64 : sections[2].offset - end - sections[0].size);
    sign(data, &sections[1], &sections[2]);
    put(fd, data, draw(16) == 0 ? draw(file.size) : file.size);
    tables += accepted(path);

    memcpy(data, original, file.size);
    images += load_damaged_text(data, sections[1].offset);

    memcpy(data, original, file.size);
    kernels += load_damaged_words(data, sections[1].offset);

    put(fd, fat, write_fat(fat, original, file.size, machine));
    indices += accepted(path);
    arrays += read_array(fd, path);
  }
  printf("%ld cases accepted: headers %ld, tables %ld, images %ld, kernels %ld, indices %ld, "
         "arrays %ld\n",
         cases, headers, tables, images, kernels, indices, arrays);
  free(original), free(data), free(fat);
  close(fd), close(file.fd);
  return 0;
}
