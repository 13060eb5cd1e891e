#include "host_cpu.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A range of CPUs as /proc/cpuinfo has them: on x86 family, models and steppings, on AArch64
 * implementer and part. The first line that fits counts. */
typedef struct cpu {
  const char *maker;
  long family, first, last, stepping;
  const char *name;
} cpu;

enum { ANY = 0xff };

static const cpu cpus[] = {
    {"AuthenticAMD", 0x17, 0x00, 0x2f, ANY, "znver1"},
    {"AuthenticAMD", 0x17, 0x30, 0xff, ANY, "znver2"},
    {"AuthenticAMD", 0x19, 0x10, 0x1f, ANY, "znver4"},
    {"AuthenticAMD", 0x19, 0x60, 0x7f, ANY, "znver4"},
    {"AuthenticAMD", 0x19, 0xa0, 0xaf, ANY, "znver4"},
    {"AuthenticAMD", 0x19, 0x00, 0xff, ANY, "znver3"},
    {"AuthenticAMD", 0x1a, 0x00, 0xff, ANY, "znver5"},
    {"GenuineIntel", 6, 0x3c, 0x3c, ANY, "haswell"},
    {"GenuineIntel", 6, 0x3f, 0x3f, ANY, "haswell"},
    {"GenuineIntel", 6, 0x45, 0x46, ANY, "haswell"},
    {"GenuineIntel", 6, 0x3d, 0x3d, ANY, "broadwell"},
    {"GenuineIntel", 6, 0x47, 0x47, ANY, "broadwell"},
    {"GenuineIntel", 6, 0x4f, 0x4f, ANY, "broadwell"},
    {"GenuineIntel", 6, 0x56, 0x56, ANY, "broadwell"},
    {"GenuineIntel", 6, 0x4e, 0x4e, ANY, "skylake"},
    {"GenuineIntel", 6, 0x5e, 0x5e, ANY, "skylake"},
    {"GenuineIntel", 6, 0x8e, 0x8e, ANY, "skylake"},
    {"GenuineIntel", 6, 0x9e, 0x9e, ANY, "skylake"},
    {"GenuineIntel", 6, 0xa5, 0xa6, ANY, "skylake"},
    {"GenuineIntel", 6, 0x55, 0x55, 4, "skylake-avx512"},
    {"GenuineIntel", 6, 0x55, 0x55, 9, "cascadelake"},
    {"GenuineIntel", 6, 0x55, 0x55, ANY, "cooperlake"},
    {"GenuineIntel", 6, 0x6a, 0x6a, ANY, "icelake-server"},
    {"GenuineIntel", 6, 0x6c, 0x6c, ANY, "icelake-server"},
    {"GenuineIntel", 6, 0x7d, 0x7e, ANY, "icelake-client"},
    {"GenuineIntel", 6, 0x8c, 0x8d, ANY, "tigerlake"},
    {"GenuineIntel", 6, 0x97, 0x97, ANY, "alderlake"},
    {"GenuineIntel", 6, 0x9a, 0x9a, ANY, "alderlake"},
    {"GenuineIntel", 6, 0xb7, 0xb7, ANY, "raptorlake"},
    {"GenuineIntel", 6, 0xba, 0xba, ANY, "raptorlake"},
    {"GenuineIntel", 6, 0xbf, 0xbf, ANY, "raptorlake"},
    {"GenuineIntel", 6, 0xa7, 0xa7, ANY, "rocketlake"},
    {"GenuineIntel", 6, 0x8f, 0x8f, ANY, "sapphirerapids"},
    {"GenuineIntel", 6, 0xcf, 0xcf, ANY, "emeraldrapids"},
    {"GenuineIntel", 6, 0xad, 0xad, ANY, "graniterapids"},
    {"0x41", 0, 0xd03, 0xd03, ANY, "cortex-a53"},
    {"0x41", 0, 0xd05, 0xd05, ANY, "cortex-a55"},
    {"0x41", 0, 0xd07, 0xd07, ANY, "cortex-a57"},
    {"0x41", 0, 0xd08, 0xd08, ANY, "cortex-a72"},
    {"0x41", 0, 0xd09, 0xd09, ANY, "cortex-a73"},
    {"0x41", 0, 0xd0b, 0xd0b, ANY, "cortex-a76"},
    {"0x41", 0, 0xd42, 0xd42, ANY, "cortex-a78ae"},
    {"0x41", 0, 0xd0c, 0xd0c, ANY, "neoverse-n1"},
    {"0x41", 0, 0xd49, 0xd49, ANY, "neoverse-n2"},
    {"0x41", 0, 0xd40, 0xd40, ANY, "neoverse-v1"},
    {"0x41", 0, 0xd4f, 0xd4f, ANY, "neoverse-v2"},
    {"0xc0", 0, 0xac3, 0xac3, ANY, "ampere1"},
};

/* The value of the first line "name : value" in `text`; null if there is none. */
static const char *field(const char *text, const char *name) {
  const size_t length = strlen(name);
  for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
    line += *line == '\n';
    const char *value = line + length;
    if (strncmp(line, name, length) != 0) continue;
    value += strspn(value, " \t");
    if (*value == ':') return value + 1 + strspn(value + 1, " \t");
  }
  return NULL;
}

static long number(const char *text, const char *name) {
  const char *value = field(text, name);
  return value == NULL ? -1 : strtol(value, NULL, 0);
}

/* The real name of a CPU of this name if it has AMX: hypervisors may give their guests an older CPU's
 * model number, but no instruction set that the real one lacks. */
static const char *unmasked(const char *name, const char *text) {
  const char *flags = field(text, "flags");
  const char *amx = flags == NULL ? NULL : strstr(flags, " amx_tile");
  if (amx == NULL || amx > flags + strcspn(flags, "\n")) return name;
  return strstr(name, "rapids") != NULL ? name : "sapphirerapids";
}

const char *nc_host_cpu(void) {
  char text[4096]; /* the first CPU: hundreds would take milliseconds */
  const int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  text[size < 0 ? 0 : size] = '\0';
  const int x86 = field(text, "vendor_id") != NULL;
  const char *maker = field(text, x86 ? "vendor_id" : "CPU implementer");
  const long family = x86 ? number(text, "cpu family") : 0;
  const long model = number(text, x86 ? "model" : "CPU part");
  const long stepping = x86 ? number(text, "stepping") : 0;
  for (size_t i = 0; maker != NULL && i < sizeof cpus / sizeof *cpus; ++i) {
    const size_t length = strlen(cpus[i].maker);
    if (strncmp(maker, cpus[i].maker, length) == 0 && maker[length] == '\n' &&
        family == cpus[i].family && cpus[i].first <= model && model <= cpus[i].last &&
        stepping <= cpus[i].stepping) {
      return unmasked(cpus[i].name, text);
    }
  }
  return "";
}
