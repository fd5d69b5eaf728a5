// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace gpumap::top {

/// A terminal's other screen, as long as it lives: what was on the first one is there again afterwards. Nothing else of
/// the terminal is changed, so whatever ends the program leaves nothing but that screen to be left.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void show(const std::string& text) const;
};

/// Whether standard output is a terminal that knows what a Screen needs.
[[nodiscard]] bool is_terminal();
/// False where standard output takes no more.
bool print(const std::string& text);

}  // namespace gpumap::top
