// SPDX-License-Identifier: MIT
#include "screen.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "rows.hpp"

namespace gpumap::top {

// ECMA-48, and xterm's ?1049, ?25 and ?7, which all terminals of today know.
Screen::Screen() {
  print("\x1b[?1049h\x1b[?25l");
}
Screen::~Screen() {
  print("\x1b[?25h\x1b[?1049l");
}

void Screen::show(const std::string& text) const {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
  std::string fits = known ? cut(text, std::max(size.ws_row - 1U, 1U), size.ws_col) : text;
  // Behind it a single line would move up.
  if (known && size.ws_row == 1 && !fits.empty() && fits.back() == '\n') fits.pop_back();
  // Characters that take two columns make a line longer than cut() knows: it does not go on at the next one (?7)
  // meanwhile. What was there is erased ahead of a line: behind one that fills its row that would take its last letter.
  std::string all = "\x1b[?7l\x1b[H\x1b[K";
  for (const char one : fits) all += one == '\n' ? std::string_view("\n\x1b[K") : std::string_view(&one, 1);
  print(all + "\x1b[J\x1b[?7h");
}

bool is_terminal() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

bool print(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

}  // namespace gpumap::top
