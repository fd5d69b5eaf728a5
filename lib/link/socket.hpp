// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/unique_fd.hpp"

namespace gpumap::link {

/// Who is at the other end, as the kernel knows it: of a connection's maker, or of who called listen().
struct Peer {
  pid_t pid = 0;  ///< 0: in a PID namespace that is not seen from here
  uid_t uid = 0;
};
/// Throws Error(io).
[[nodiscard]] Peer peer_of(int socket);
[[nodiscard]] bool is_allowed(const Peer& peer, const std::vector<uid_t>& more_users) noexcept;
/// Becomes readable when the process ends: a socket alone does not tell where its other end lives on in a child of
/// fork(). Empty where the kernel has none to give.
[[nodiscard]] UniqueFd watch_process(pid_t pid) noexcept;

/// Where a socket's file is: its folder, which is held open, and its name there. The path, looked up anew, may lead
/// elsewhere.
struct Spot {
  /// Throws Error(io): no such folder, or no right to it.
  explicit Spot(std::string where);
  std::string path;
  std::string name;
  UniqueFd folder;
};

/// A listening SOCK_SEQPACKET socket and its file, which goes with it. Thread safety: one thread at a time.
///
/// Two servers that start at once: who holds the lock on `path`.lock looks whether somebody answers at `path`, and
/// takes its place or leaves it alone. The lock, with its file, is there for that moment only, so it tells nothing of
/// who lives: a connection does. A child of fork() loses the listener as fork() returns; of one that a child made by
/// clone() inherited, the server's process tells who lives.
class Listener {
 public:
  /// Throws Error(invalid): the path is too long, no socket, or served; Error(io).
  Listener(std::string path, mode_t mode);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] UniqueFd accept() const noexcept;  ///< empty when nobody waits; never blocks
  [[nodiscard]] const std::string& path() const noexcept { return spot_.path; }
  void leave_file() noexcept { inode_ = 0; }  ///< the file stays: it is another process's business

 private:
  void remove_file() noexcept;

  const Spot spot_;
  UniqueFd fd_;
  ino_t inode_ = 0;
};

/// Empty, with errno, when nobody answers: ENOENT, ECONNREFUSED, EAGAIN (too many wait), or what the system says.
/// Throws Error(invalid) for a path that is too long. Never blocks.
[[nodiscard]] UniqueFd connect_to(const std::string& path);

enum class Sent { ok, full, gone };
/// Never blocks and raises no signal, whatever the other end does to the socket's flags.
[[nodiscard]] Sent send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds = {}) noexcept;

enum class Received { message, nothing, gone, too_long, no_descriptors };
/// One message, into `buffer`. Descriptors that come with it go to `fds`, at most two; with none expected (null), or
/// more, the kernel closes them. no_descriptors: this process may not have so many. Never blocks.
[[nodiscard]] Received receive_message(int socket, std::span<std::byte> buffer, std::size_t& bytes,
                                       std::vector<UniqueFd>* fds = nullptr) noexcept;

}  // namespace gpumap::link
