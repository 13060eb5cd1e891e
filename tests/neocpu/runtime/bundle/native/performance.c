/* performance FOLDER...: the CPUs of performance cores, by what each folder says of CPUs. */
#include "src/cpus.h"

#include <stdio.h>

int main(int count, char **words) {
  for (int i = 1; i < count; ++i) {
    cpu_set_t found;
    printf("%d:", nc_performance_cpus(words[i], &found));
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &found)) printf(" %d", cpu);
    }
    puts("");
  }
  return 0;
}
