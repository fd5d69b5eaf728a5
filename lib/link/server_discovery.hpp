// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/unique_fd.hpp"

namespace gpumap::link {

/// How servers are found. Beside its listener a server has a second socket, its mark: bound to an abstract name, never
/// listening, so nobody can connect to it or send it anything. The name says whose server it is, and which of the
/// kernel's sockets (by inode number) its listener is:
///
///     @gpumap-link/USER/PROCESS/INODE/GENERATION
///
/// /proc/net/unix lists the names and paths of all sockets of a network namespace with their inodes. So only sockets
/// that a server marked are connected to, and no file is left to clean: the kernel takes the mark away with the last
/// process that has it. The generation is random, so nobody can take a name before its owner.

/// Empty where the system refuses it: then the server is not found, and serves.
[[nodiscard]] UniqueFd mark(int listener, std::uint64_t generation) noexcept;

struct FoundServer {
  pid_t pid = 0;     ///< as the server's own PID namespace has it
  std::string path;  ///< as it was bound: may be relative, to the server's folder
};
/// The marked listeners of `user`, in `table`, which is the text of a /proc/net/unix. Each once, in the order of their
/// paths; lines that make no sense are left out.
[[nodiscard]] std::vector<FoundServer> marked_servers(std::string_view table, uid_t user);

}  // namespace gpumap::link
