// SPDX-License-Identifier: MIT
#include "screen.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "rows.hpp"

namespace gpumap::top {

// ECMA-48, and xterm's ?1049 and ?25, which all terminals of today know.
Screen::Screen() {
  print("\x1b[?1049h\x1b[?25l");
}
Screen::~Screen() {
  print("\x1b[?25h\x1b[?1049l");
}

void Screen::show(const std::string& text) const {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 && size.ws_col > 0;
  const std::string fits = known ? cut(text, size.ws_row - 1U, size.ws_col) : text;
  std::string all = "\x1b[H";
  for (const char one : fits) all += one == '\n' ? std::string_view("\x1b[K\n") : std::string_view(&one, 1);
  print(all + "\x1b[J");
}

bool is_terminal() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

bool print(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

}  // namespace gpumap::top
