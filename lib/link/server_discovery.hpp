// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/unique_fd.hpp"

namespace gpumap::link {

/// How servers are found. Beside its listener a server has a second socket, its mark. It is bound to an abstract name
/// and never listens, so no process can connect to it or send it anything. The name says whose server it is, and which
/// of the kernel's sockets (by inode number) its listener is:
///
///     @gpumap-link/USER/PROCESS/INODE/GENERATION
///
/// /proc/net/unix lists the names and paths of all sockets of a network namespace with their inodes. So observers
/// connect only to marked sockets. No file is left to clean up, because the kernel removes the mark with the last
/// process that has it. The generation is random, so no other process can take a name before its owner.

/// Empty when the system refuses the name: then the server serves, but observers do not find it.
[[nodiscard]] UniqueFd mark(int listener, std::uint64_t generation) noexcept;

struct FoundServer {
  pid_t pid = 0;     ///< in the server's own PID namespace
  std::string path;  ///< as it was bound: may be relative to the server's working folder
};
/// The marked listeners of `user` in `table`, the text of a /proc/net/unix. Each once, in the order of their paths;
/// invalid lines are skipped.
[[nodiscard]] std::vector<FoundServer> marked_servers(std::string_view table, uid_t user);

}  // namespace gpumap::link
