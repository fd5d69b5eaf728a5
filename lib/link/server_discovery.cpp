// SPDX-License-Identifier: MIT
#include "link/server_discovery.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace gpumap::link {
namespace {

constexpr std::string_view prefix = "@gpumap-link/";

/// Takes the text before `end` away, with `end`; all that is left when there is no `end`.
std::string_view take_until(std::string_view& text, char end) noexcept {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view first = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return first;
}

template <typename Number>
std::optional<Number> number(std::string_view text, int base = 10) noexcept {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct Line {
  bool listens = false;
  std::uint64_t inode = 0;
  std::string_view path;
};

/// A line is "Num RefCount Protocol Flags Type St Inode Path". Empty unless it is a SOCK_SEQPACKET socket with a path.
std::optional<Line> read_line(std::string_view text) noexcept {
  std::array<std::string_view, 7> words;
  for (std::string_view& word : words) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    word = take_until(text, ' ');
  }
  const auto flags = number<std::uint32_t>(words[3], 16);
  const auto inode = number<std::uint64_t>(words[6]);
  if (!flags || !inode || text.empty() || number<int>(words[4], 16) != SOCK_SEQPACKET) return std::nullopt;
  constexpr std::uint32_t accepts = 1U << 16U;  // __SO_ACCEPTCON
  return Line{(*flags & accepts) != 0, *inode, text};
}

struct Mark {
  uid_t user = 0;
  pid_t pid = 0;
  std::uint64_t listener = 0;
};
std::optional<Mark> read_mark(std::string_view name) noexcept {
  if (name.substr(0, prefix.size()) != prefix) return std::nullopt;
  name.remove_prefix(prefix.size());
  const auto user = number<uid_t>(take_until(name, '/'));
  const auto pid = number<pid_t>(take_until(name, '/'));
  const auto inode = number<std::uint64_t>(take_until(name, '/'));
  if (!user || !pid || *pid <= 0 || !inode || !number<std::uint64_t>(name, 16)) return std::nullopt;
  return Mark{*user, *pid, *inode};
}

}  // namespace

UniqueFd mark(int listener, std::uint64_t generation) noexcept {
  struct stat found {};
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || fstat(listener, &found) != 0) return {};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // An abstract name begins with a zero, which the table shows as '@'.
  const auto end = fmt::format_to_n(address.sun_path + 1, sizeof address.sun_path - 1, "{}{}/{}/{}/{:x}",
                                    prefix.substr(1), geteuid(), getpid(), found.st_ino, generation);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + end.size);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return {};
  return fd;
}

std::vector<FoundServer> marked_servers(std::string_view table, uid_t user) {
  std::map<std::uint64_t, std::string_view> listeners;
  std::vector<Mark> marks;
  while (!table.empty()) {
    const auto line = read_line(take_until(table, '\n'));
    if (!line) continue;
    if (const auto mark = read_mark(line->path)) {
      if (!line->listens && mark->user == user) marks.push_back(*mark);
    } else if (line->listens) {
      listeners.emplace(line->inode, line->path);
    }
  }
  std::vector<FoundServer> servers;
  for (const Mark& mark : marks) {
    const auto found = listeners.find(mark.listener);
    // A listener with an abstract name is not a server's: servers have files, with a mode.
    if (found == listeners.end() || found->second.front() == '@') continue;
    servers.push_back({mark.pid, std::string(found->second)});
  }
  const auto order = [](const FoundServer& server) { return std::tie(server.path, server.pid); };
  std::sort(servers.begin(), servers.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  servers.erase(
      std::unique(servers.begin(), servers.end(), [&](const auto& a, const auto& b) { return order(a) == order(b); }),
      servers.end());
  return servers;
}

}  // namespace gpumap::link
