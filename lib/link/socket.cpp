// SPDX-License-Identifier: MIT
#include "link/socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"
#include "link/wire.hpp"

namespace gpumap::link {
namespace {

constexpr int backlog = 64;

constexpr const char* more_files = "raise the limits on open files and on memory (ulimit -n, ulimit -v)";

[[noreturn]] void fail(const std::string& what, const std::string& path, int cause = errno,
                       const SourcePlace& where = SourcePlace::here()) {
  const bool missing = cause == ENOENT || cause == ENOTDIR;
  const bool forbidden = cause == EACCES || cause == EPERM || cause == EROFS;
  const bool ran_out = code_of_errno(cause) == ErrorCode::no_resources && cause != ENOSPC;
  throw Error(missing     ? ErrorCode::not_found
              : forbidden ? ErrorCode::open_write
                          : code_of_errno(cause),
              fmt::format("{} {}: {}", what, printable(path), std::strerror(cause)),
              missing     ? "make the folder, or choose another socket-path"
              : forbidden ? "let this user read and write the folder, or choose another socket-path"
              : ran_out   ? more_files
                          : "choose another socket-path",
              where);
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
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd) make_room(fd.get());
  return fd;
}

/// Whether it has ended, or does in `patience`.
bool has_ended(pid_t pid, std::chrono::milliseconds patience = {}) noexcept {
  if (pid <= 0 || pid == getpid()) return false;
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  const UniqueFd watch = watch_process(pid);
  if (!watch) return false;
  pollfd ends{watch.get(), POLLIN, 0};
  const auto latest = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(latest - std::chrono::steady_clock::now());
    const int ended = poll(&ends, 1, std::max(static_cast<int>(left.count()), 0));
    if (ended >= 0 || errno != EINTR) return ended > 0;
  }
}

/// Listeners of this process, each plus one; 0: a free place.
std::array<std::atomic<int>, 256> listeners;

/// A child of fork() that keeps a listener would answer for its parent after the parent's death, and keep its place.
void let_go_of_listeners() noexcept {
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (auto& listener : listeners) {
    const int fd = listener.exchange(0) - 1;
    if (fd >= 0 && nothing >= 0) dup3(nothing, fd, O_CLOEXEC);  // its owner still closes the number
  }
  if (nothing >= 0) close(nothing);
}

/// Children keep a listener for which there is no place.
void keep_from_children(int fd) noexcept {
  static const int watching = pthread_atfork(nullptr, nullptr, let_go_of_listeners);
  static_cast<void>(watching);
  for (auto& listener : listeners) {
    int free = 0;
    if (listener.compare_exchange_strong(free, fd + 1)) return;
  }
}
void leave_to_children(int fd) noexcept {
  for (auto& listener : listeners) {
    int own = fd + 1;
    if (listener.compare_exchange_strong(own, 0)) return;
  }
}

bool is_there(const Spot& spot, const std::string& name, struct stat& found) noexcept {
  return fstatat(spot.folder.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
}

/// Held from the look at the path until the socket listens there, so that one of several servers replaces a dead
/// server's file. Locks the folder and makes no file, so that a killed process leaves no file that other users cannot
/// remove.
class Lock {
 public:
  explicit Lock(const Spot& spot) : folder_(openat(spot.folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!folder_) fail("cannot read the folder of", spot.path);
    // Other servers hold it for microseconds. A suspended one must not block this one forever.
    constexpr int turns = 1000;
    for (int turn = 0; flock(folder_.get(), LOCK_EX | LOCK_NB) != 0; ++turn) {
      if (errno != EWOULDBLOCK && errno != EINTR) fail("cannot lock the folder of", spot.path);
      if (turn == turns) {
        throw Error(ErrorCode::invalid, fmt::format("the folder of {} is locked by another process for 1 s: end that "
                                                    "process, or choose a socket-path in another folder",
                                                    printable(spot.path)));
      }
      usleep(1000);
    }
  }
  /// Explicitly, because a child of fork() may keep the descriptor.
  ~Lock() { flock(folder_.get(), LOCK_UN); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  UniqueFd folder_;
};

/// A server that was killed, and has much memory, ends some 100 ms later, and keeps its socket as long. Without the
/// lock, which others need meanwhile.
void await_end_of_server(const std::string& path) {
  if (const UniqueFd probe = connect_to(path)) has_ended(peer_of(probe.get()).pid, std::chrono::milliseconds(500));
}

/// Unlinks a dead server's file. Under the lock.
void clear_place(const Spot& spot) {
  struct stat found {};
  if (!is_there(spot, spot.name, found)) {
    if (errno == ENOENT) return;
    fail("cannot look at", spot.path);
  }
  if (!S_ISSOCK(found.st_mode)) {
    throw Error(ErrorCode::invalid,
                fmt::format("{} is there and is no socket: choose another socket-path", printable(spot.path)));
  }
  const UniqueFd probe = connect_to(spot.path);
  // A full queue belongs to a server, too. Other errors do not tell whether the file may be removed.
  const bool refused = !probe && (errno == ECONNREFUSED || errno == ENOENT);
  if (!probe && errno == EACCES) {
    throw Error(ErrorCode::open_write,
                fmt::format("{} is a socket of user {}, to which user {} has no right", printable(spot.path),
                            found.st_uid, geteuid()),
                "have that user remove it, or choose another socket-path");
  }
  if (!refused) {
    const bool queue_is_full = !probe && errno == EAGAIN;
    const pid_t pid = probe ? peer_of(probe.get()).pid : 0;
    if (!has_ended(pid)) {
      const std::string who = pid > 0         ? fmt::format("process {}", pid)
                              : queue_is_full ? "a process that lets nobody in, and whose queue is full"
                                              : "a process that is not seen from here";
      throw Error(ErrorCode::invalid,
                  fmt::format("{} is served by {}: end it, or choose another socket-path", printable(spot.path), who));
    }
  }
  if (unlinkat(spot.folder.get(), spot.name.c_str(), 0) == 0 || errno == ENOENT) return;
  if (errno == EPERM && found.st_uid != geteuid()) {
    throw Error(
        ErrorCode::open_write,
        fmt::format("cannot remove {}, which a process of user {} has left there", printable(spot.path), found.st_uid),
        "have that user remove it, or choose another socket-path");
  }
  fail("cannot remove", spot.path);
}

/// The file that bind() made has the mode of the socket without the bits of the process's umask. Its path is not looked
/// up again, because another user may have put another file, or a link to one, in its place.
void set_mode(const Spot& spot, mode_t mode) {
  const UniqueFd file(openat(spot.folder.get(), spot.name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat found {};
  if (!file || fstat(file.get(), &found) != 0) fail("cannot look at", spot.path);
  if (!S_ISSOCK(found.st_mode) || found.st_uid != geteuid() || found.st_nlink != 1) {
    throw Error(ErrorCode::invalid, fmt::format("somebody put another file in the place of {}: choose a folder that "
                                                "only this user can write to",
                                                printable(spot.path)));
  }
  constexpr mode_t permissions = 07777;
  if ((found.st_mode & permissions) == mode) return;
  const std::string same = fmt::format("/proc/self/fd/{}", file.get());
  if (chmod(same.c_str(), mode) == 0) return;
  const int cause = errno;
  if (cause == ENOENT || cause == ENOTDIR) {
    throw Error(ErrorCode::io, fmt::format("the socket {} has mode {:o} instead of {:o}, which is set by way of {}: {}",
                                           printable(spot.path), found.st_mode & permissions, mode, same,
                                           "mount /proc, or start with a umask that leaves that mode"));
  }
  fail("cannot set the mode of", spot.path, cause);
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

Spot::Spot(std::string where) : path(std::move(where)) {
  const std::size_t slash = path.rfind('/');
  name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  folder = UniqueFd(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) fail("cannot open the folder of", path);
}

Listener::Listener(std::string path, mode_t mode) : spot_((static_cast<void>(address_of(path)), std::move(path))) {
  const sockaddr_un address = address_of(spot_.path);
  await_end_of_server(spot_.path);
  const Lock lock(spot_);
  clear_place(spot_);
  fd_ = make_socket();
  if (!fd_) fail("no socket for", spot_.path);
  // Before the file exists, so that it never has more rights than this mode.
  if (fchmod(fd_.get(), mode) != 0) fail("cannot set the mode of", spot_.path);
  if (bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fail("cannot bind", spot_.path);
  struct stat made {};
  if (is_there(spot_, spot_.name, made)) inode_ = made.st_ino;
  try {
    set_mode(spot_, mode);
    if (listen(fd_.get(), backlog) != 0) fail("cannot listen at", spot_.path);
  } catch (...) {
    remove_file();
    throw;
  }
  keep_from_children(fd_.get());
}

Listener::~Listener() {
  if (fd_) leave_to_children(fd_.get());
  remove_file();
}

/// Keeps the file of a server that has taken this path meanwhile.
void Listener::remove_file() noexcept {
  struct stat found {};
  if (inode_ == 0 || !is_there(spot_, spot_.name, found) || found.st_ino != inode_) return;
  unlinkat(spot_.folder.get(), spot_.name.c_str(), 0);
}

UniqueFd Listener::accept() const noexcept {
  UniqueFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) make_room(fd.get());
  return fd;
}

UniqueFd copy_of(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) {
    const int cause = errno;
    throw Error(code_of_errno(cause), fmt::format("no descriptor for a link: {}", std::strerror(cause)), more_files);
  }
  return copy;
}

UniqueFd make_bell() {
  UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) {
    const int cause = errno;
    throw Error(code_of_errno(cause), fmt::format("no eventfd for a link: {}", std::strerror(cause)), more_files);
  }
  return bell;
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

int make_room(int socket) noexcept {
  // The kernel adds what it needs to keep a message.
  constexpr int wanted = 2 * static_cast<int>(largest_message);
  int room = 0;
  socklen_t length = sizeof room;
  const auto look = [&] { return getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, &length) == 0 ? room : 0; };
  if (look() < wanted && setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted) == 0) look();
  return room;
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
    switch (errno) {
      case EAGAIN:
      case ENOBUFS:
      case ENOMEM:
      case ETOOMANYREFS:  // too many descriptors are under way
        return Sent::full;
      case EMSGSIZE:
        return Sent::too_long;
      default:
        return Sent::gone;
    }
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
  // When the other end closed with messages unread, the kernel reports that once, before its last messages.
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
  if (got == 0) return Received::gone;  // no message is empty
  if ((message.msg_flags & MSG_TRUNC) != 0) return Received::too_long;
  bytes = static_cast<std::size_t>(got);
  if (fds != nullptr && fds->size() < 2 && (message.msg_flags & MSG_CTRUNC) != 0) return Received::no_descriptors;
  return Received::message;
}

}  // namespace gpumap::link
