// SPDX-License-Identifier: MIT
#include "gst/channel/access.hpp"

#include <fmt/format.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "gpumap/error.hpp"

namespace gpumap::gst {

namespace {

/// The number that all of `text` is. Empty: it is no number, or too large.
template <typename Value>
std::optional<Value> number_of(std::string_view text, int base) {
  Value value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uid_t> look_up(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16384> buffer{};
  if (getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return {};
  return found->pw_uid;
}

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view spaces = " \t";
  const std::size_t begin = text.find_first_not_of(spaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

}  // namespace

std::vector<uid_t> users_of(const std::string& text) {
  std::vector<uid_t> users;
  if (without_spaces(text).empty()) return users;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string name(without_spaces(std::string_view(text).substr(begin, end - begin)));
    auto user = number_of<uid_t>(name, 10);
    if (!user && !name.empty()) user = look_up(name);
    if (!user || *user == std::numeric_limits<uid_t>::max()) {  // this number means "no user"
      throw Error(
          ErrorCode::invalid,
          fmt::format("allowed-users \"{}\": there is no user \"{}\" here: give names or numbers of users, with "
                      "commas between them, as in \"alice,1001\"",
                      text, name));
    }
    users.push_back(*user);
    begin = end + 1;
  }
  return users;
}

mode_t mode_of(const std::string& text) {
  constexpr mode_t most = 0777;
  const auto mode = number_of<mode_t>(text, 8);
  if (!mode || *mode > most) {
    throw Error(ErrorCode::invalid,
                fmt::format("socket-mode \"{}\" is no mode of a file: give octal digits up to 0777, as in 0660", text));
  }
  return *mode;
}

}  // namespace gpumap::gst
