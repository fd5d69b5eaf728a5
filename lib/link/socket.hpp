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

/// The process at the other end, as the kernel knows it: the one that connected, or the one that called listen().
struct Peer {
  pid_t pid = 0;  ///< 0: it is in a PID namespace that this process does not see
  uid_t uid = 0;
};
/// Throws Error(io).
[[nodiscard]] Peer peer_of(int socket);
[[nodiscard]] bool is_allowed(const Peer& peer, const std::vector<uid_t>& more_users) noexcept;
/// Becomes readable when the process ends. A socket alone does not show that when a child of fork() still holds its
/// other end. Empty when the kernel gives none.
[[nodiscard]] UniqueFd watch_process(pid_t pid) noexcept;

/// Another descriptor of the same file. Throws Error(no_resources | io).
[[nodiscard]] UniqueFd copy_of(int fd);

/// An eventfd, by which a thread is woken that polls. Throws Error.
[[nodiscard]] UniqueFd make_bell();

/// Where a socket's file is: its folder, which is held open, and its name there. The path may lead elsewhere when it is
/// looked up again.
struct Spot {
  /// Throws Error(io) when there is no such folder, or no right to it.
  explicit Spot(std::string where);
  std::string path;
  std::string name;
  UniqueFd folder;
};

/// A listening SOCK_SEQPACKET socket and its file, which is removed with it. Thread safety: one thread at a time.
///
/// When two servers start at once, the one that holds the lock on the folder looks whether a server answers at `path`,
/// and replaces a dead server's file or gives up. The lock is held for that moment only: a connection, and not the
/// lock, shows that a server lives. A child of fork() loses the listener as fork() returns. For a listener that a child
/// made by clone() inherited, the server's process shows whether it lives.
class Listener {
 public:
  /// Throws Error(invalid) when the path is too long, is no socket, or has a server; Error(io).
  Listener(std::string path, mode_t mode);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] UniqueFd accept() const noexcept;  ///< empty when no connection waits; never blocks
  [[nodiscard]] const std::string& path() const noexcept { return spot_.path; }
  void leave_file() noexcept { inode_ = 0; }  ///< keeps the file, which belongs to another process

 private:
  void remove_file() noexcept;

  const Spot spot_;
  UniqueFd fd_;
  ino_t inode_ = 0;
};

/// Empty, with errno, when no server answers: ENOENT, ECONNREFUSED, EAGAIN (too many wait), or another error.
/// Throws Error(invalid) for a path that is too long. Never blocks.
[[nodiscard]] UniqueFd connect_to(const std::string& path);

/// The bytes that a socket of this process has room for, as the kernel counts them: more than the largest message where
/// the system allows it (net.core.wmem_max).
int make_room(int socket) noexcept;

/// too_long: the socket never has room for this message.
enum class Sent { ok, full, gone, too_long };
/// Never blocks and raises no signal, even if the other end changes the socket's flags.
[[nodiscard]] Sent send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds = {}) noexcept;

enum class Received { message, nothing, gone, too_long, no_descriptors };
/// Reads one message into `buffer`. At most two descriptors that come with it go to `fds`; the kernel closes further
/// ones, and all when `fds` is null. no_descriptors: this process may not open so many. Never blocks.
[[nodiscard]] Received receive_message(int socket, std::span<std::byte> buffer, std::size_t& bytes,
                                       std::vector<UniqueFd>* fds = nullptr) noexcept;

}  // namespace gpumap::link
