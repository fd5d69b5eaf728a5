// SPDX-License-Identifier: MIT
#include "link/socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "gpumap/error.hpp"

namespace gpumap::link {
namespace {

constexpr int backlog = 64;

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(ErrorCode::io, fmt::format("{} {}: {}: choose another socket-path, or make its folder writable", what,
                                         path, std::strerror(errno)));
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw Error(ErrorCode::invalid, fmt::format("a socket path of {} bytes requested, 1 to {} allowed: {}", path.size(),
                                                sizeof address.sun_path - 1, "choose a shorter one"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

UniqueFd make_socket() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool is_dead(pid_t pid) noexcept {
  return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

/// Of the time between looking and listening.
UniqueFd lock_beside(const std::string& path) {
  const std::string name = path + ".lock";
  UniqueFd fd(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) fail("cannot open", name);
  // Others hold it for microseconds; one that was stopped meanwhile must not stop us for ever.
  for (int turn = 0; flock(fd.get(), LOCK_EX | LOCK_NB) != 0; ++turn) {
    if (errno != EWOULDBLOCK && errno != EINTR) fail("cannot lock", name);
    if (turn == 1000) {
      throw Error(ErrorCode::invalid,
                  fmt::format("{} is locked by another process for 1 s: end it, or choose another socket-path", name));
    }
    usleep(1000);
  }
  return fd;
}

/// Unlinks what a dead server left. Under the lock.
void clear_place(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return;
    fail("cannot look at", path);
  }
  if (!S_ISSOCK(found.st_mode)) {
    throw Error(ErrorCode::invalid, fmt::format("{} is there and is no socket: choose another socket-path", path));
  }
  const UniqueFd probe = connect_to(path);
  // A full queue is one of a server, too. Whatever else there is to say of the file is not ours to judge.
  const bool refused = !probe && (errno == ECONNREFUSED || errno == ENOENT);
  if (!refused) {
    const pid_t pid = probe ? peer_of(probe.get()).pid : 0;
    if (!is_dead(pid)) {
      throw Error(ErrorCode::invalid,
                  fmt::format("{} is served by process {}: end it, or choose another socket-path", path, pid));
    }
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) fail("cannot remove", path);
}

}  // namespace

Peer peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    throw Error(ErrorCode::io,
                fmt::format("the kernel does not say who is at the other end of a socket: {}", std::strerror(errno)));
  }
  return {credentials.pid, credentials.uid};
}

bool is_allowed(const Peer& peer, const std::vector<uid_t>& more_users) noexcept {
  return peer.uid == geteuid() || std::find(more_users.begin(), more_users.end(), peer.uid) != more_users.end();
}

UniqueFd watch_process(pid_t pid) noexcept {
#ifdef SYS_pidfd_open
  if (pid > 0) return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
#endif
  return {};
}

Listener::Listener(std::string path, mode_t mode) : path_(std::move(path)) {
  const sockaddr_un address = address_of(path_);
  const UniqueFd lock = lock_beside(path_);
  clear_place(path_);
  fd_ = make_socket();
  if (!fd_) fail("no socket for", path_);
  // Before the file is there: it is never there with another mode.
  if (fchmod(fd_.get(), mode) != 0) fail("cannot set the mode of", path_);
  if (bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("cannot bind", path_);
  struct stat made {};
  if (lstat(path_.c_str(), &made) == 0) inode_ = made.st_ino;
  if (chmod(path_.c_str(), mode) != 0 || listen(fd_.get(), backlog) != 0) {
    const int cause = errno;
    unlink(path_.c_str());
    errno = cause;
    fail("cannot listen at", path_);
  }
}

Listener::~Listener() {
  // Not the file of a server that has taken this place.
  struct stat found {};
  if (inode_ != 0 && lstat(path_.c_str(), &found) == 0 && found.st_ino == inode_) unlink(path_.c_str());
}

UniqueFd Listener::accept() const noexcept {
  return UniqueFd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

UniqueFd connect_to(const std::string& path) {
  const sockaddr_un address = address_of(path);
  UniqueFd fd = make_socket();
  if (fd && connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int cause = errno;
    fd = UniqueFd();
    errno = cause;
  }
  return fd;
}

Sent send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) noexcept {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty() && fds.size() <= 2) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::ok;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM ? Sent::full : Sent::gone;
  }
}

Received receive_message(int socket, std::span<std::byte> buffer, std::size_t& bytes,
                         std::vector<UniqueFd>* fds) noexcept {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fds != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  ssize_t got = -1;
  // Where the other end closed with something unread, that is told once, before its last messages.
  for (int resets = 0; resets < 2; ++resets) {
    do got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got >= 0 || errno != ECONNRESET) break;
  }
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Received::nothing : Received::gone;
  if (fds != nullptr) {
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t at = 0; at < count; ++at) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(head) + at * sizeof fd, sizeof fd);
        fds->emplace_back(fd);
      }
    }
  }
  if (got == 0) return Received::gone;  // nobody sends an empty message
  if ((message.msg_flags & MSG_TRUNC) != 0) return Received::too_long;
  bytes = static_cast<std::size_t>(got);
  if (fds != nullptr && fds->size() < 2 && (message.msg_flags & MSG_CTRUNC) != 0) return Received::no_descriptors;
  return Received::message;
}

}  // namespace gpumap::link
