// SPDX-License-Identifier: MIT
// The observer's side: where servers are, and what they tell.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/file.hpp"
#include "gpumap/link_report.hpp"
#include "link/server_discovery.hpp"
#include "link/socket.hpp"
#include "link/wire.hpp"

namespace gpumap {
namespace {

using std::chrono::milliseconds;

LinkReport to_report(const link::Message& message, const link::Report& from, pid_t pid) {
  const link::RingFigures& ring = from.ring;
  LinkReport report;
  report.generation = message.generation;
  report.pid = pid;
  report.program = ring.program.data();
  report.at_ns = static_cast<std::int64_t>(ring.at_ns);
  report.transport = static_cast<Transport>(ring.transport);
  report.slots = ring.slots;
  report.slot_bytes = ring.slot_bytes;
  report.queued = ring.queued;
  report.busy = ring.busy;
  report.frames = ring.frames;
  report.bytes = ring.bytes;
  report.unseen = ring.unseen;
  report.dropped = ring.dropped;
  report.stamps = ring.stamps != 0;
  for (std::uint32_t number = 0; number < ring.clients; ++number) {
    const link::ClientFigures one = from.client(number);
    LinkClientReport client;
    client.who.index = one.index;
    client.who.connection = one.connection;
    client.who.pid = static_cast<pid_t>(one.pid);
    client.who.uid = one.uid;
    client.who.name = one.name.data();
    client.who.leak = static_cast<LinkLeak>(one.leak);
    client.who.shown = one.shown;
    client.who.dropped = one.dropped;
    client.who.slots = one.slots;
    client.lag = one.lag;
    client.lag_ns = static_cast<std::int64_t>(one.lag_ns);
    client.timed = one.timed;
    client.timed_ns = static_cast<std::int64_t>(one.timed_ns);
    client.times = one.times;
    report.clients.push_back(std::move(client));
  }
  return report;
}

/// A request to one server.
class Question {
 public:
  explicit Question(const std::string& path) { sight_.path = path; }

  void ask() {
    UniqueFd socket;
    try {
      socket = link::connect_to(sight_.path);
      if (!socket) {
        sight_.trouble = errno == EAGAIN ? "too many wait to be heard there" : std::strerror(errno);
        return;
      }
      peer_ = link::peer_of(socket.get());
    } catch (const Error& error) {
      sight_.trouble = error.what();
      return;
    }
    if (!link::is_allowed(peer_, {})) {
      sight_.trouble = fmt::format("it is of user {}: ask as that user", peer_.uid);
    } else if (peer_.pid > 0 && kill(peer_.pid, 0) != 0 && errno == ESRCH) {
      sight_.trouble = fmt::format("process {} has ended, and a child of it holds the socket", peer_.pid);
    } else {
      // A server that refuses may have closed the socket already, and has said why.
      static_cast<void>(link::send_message(socket.get(), link::encode(0, link::Observe{})));
      socket_ = std::move(socket);
    }
  }
  /// Negative: the request is over.
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  void hear() {
    std::array<std::byte, link::largest_report + 1> buffer;
    std::size_t bytes = 0;
    const link::Received received = link::receive_message(socket_.get(), buffer, bytes);
    if (received == link::Received::nothing) return;
    bool other_version = false;
    const auto message =
        received == link::Received::message ? link::parse({buffer.data(), bytes}, &other_version) : std::nullopt;
    if (received == link::Received::gone) {
      sight_.trouble = "it closed the connection without a report";
    } else if (other_version) {
      sight_.trouble = fmt::format("process {} speaks another version of the link than {}: use the same gpumap",
                                   peer_.pid, link::wire_version);
    } else if (const auto* report = message ? std::get_if<link::Report>(&message->body) : nullptr) {
      sight_.report = to_report(*message, *report, peer_.pid);
    } else if (const auto* refuse = message ? std::get_if<link::Refuse>(&message->body) : nullptr) {
      sight_.trouble = fmt::format("process {} refuses: {}", peer_.pid, refuse->text);
    } else {
      sight_.trouble = fmt::format("process {} sent an invalid report", peer_.pid);
    }
    socket_ = UniqueFd();
  }
  [[nodiscard]] LinkSight take() {
    if (socket_) sight_.trouble = fmt::format("process {} did not answer: it is stopped, or busy", peer_.pid);
    return std::move(sight_);
  }

 private:
  LinkSight sight_;
  link::Peer peer_;
  UniqueFd socket_;
};

}  // namespace

std::vector<std::string> find_links() {
  std::ifstream file("/proc/net/unix", std::ios::binary);
  const std::optional<std::string> table = read_to_end(file);
  if (!table) {
    throw Error(ErrorCode::io, fmt::format("/proc/net/unix, where sockets are listed, cannot be read: {}: mount /proc, "
                                           "or name the socket paths",
                                           std::strerror(errno)));
  }
  std::vector<std::string> paths;
  for (const link::FoundServer& server : link::marked_servers(*table, geteuid())) {
    std::filesystem::path path = server.path;
    if (path.is_relative()) {
      std::error_code error;
      const auto folder = std::filesystem::read_symlink(fmt::format("/proc/{}/cwd", server.pid), error);
      if (error) continue;  // the process has just ended
      path = (folder / path).lexically_normal();
    }
    paths.push_back(path.string());
  }
  // A server whose file was replaced has the same path as the server that replaced it.
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::vector<LinkSight> observe_links(std::span<const std::string> paths, Deadline deadline) {
  std::vector<Question> questions;
  questions.reserve(paths.size());
  for (const std::string& path : paths) questions.emplace_back(path).ask();
  // Only open ones: poll() takes no more rows than this process may have descriptors.
  std::vector<pollfd> polled;
  std::vector<Question*> asked;
  for (;;) {
    polled.clear();
    asked.clear();
    for (Question& question : questions) {
      if (question.fd() < 0) continue;
      polled.push_back({question.fd(), POLLIN, 0});
      asked.push_back(&question);
    }
    if (polled.empty()) break;
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const int patience = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000));
    if (poll(polled.data(), polled.size(), patience) <= 0) {
      if (left.count() <= 0) break;
      continue;
    }
    for (std::size_t n = 0; n < polled.size(); ++n) {
      if (polled[n].revents != 0) asked[n]->hear();
    }
  }
  std::vector<LinkSight> sights;
  sights.reserve(questions.size());
  for (Question& question : questions) sights.push_back(question.take());
  return sights;
}

}  // namespace gpumap
