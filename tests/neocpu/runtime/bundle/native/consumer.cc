// consumer MODEL: the interface from C++, with every warning an error.
#include <cstdio>
#include <memory>
#include <vector>

#include "neocpu.h"

int main(int, char **words) {
  neocpu_options options{};
  options.threads = 1;
  neocpu_model *loaded = nullptr;
  if (neocpu_load(words[1], &options, &loaded) != NEOCPU_OK) {
    std::fprintf(stderr, "%s\n", neocpu_error());
    return 1;
  }
  const std::unique_ptr<neocpu_model, decltype(&neocpu_free)> model(loaded, neocpu_free);
  const neocpu_description *description = neocpu_describe(model.get());
  std::vector<char> x(description->inputs[0].bytes), y(description->outputs[0].bytes);
  neocpu_input input{x.data(), x.size()};
  neocpu_output output{y.data(), y.size(), 0};
  if (neocpu_run(model.get(), &input, 1, &output, 1) != NEOCPU_OK) return 2;
  std::printf("%s %zu %d\n", description->name, output.rows, description->threads);
  return 0;
}
