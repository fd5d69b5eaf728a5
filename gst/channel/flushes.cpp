// SPDX-License-Identifier: MIT
#include "gst/channel/flushes.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

namespace gpumap::gst {

namespace {

struct Flush {
  std::weak_ptr<LinkServer> server;
  guint32 number;
};
std::mutex mutex;
/// The last one of each server. It is never destroyed: threads may still be here at the process's end.
std::vector<Flush>& flushes() {
  static auto& all = *new std::vector<Flush>;
  return all;
}

}  // namespace

void note_flush(const std::shared_ptr<LinkServer>& server, guint32 number) {
  server->mark();
  const std::lock_guard lock(mutex);
  // Nobody is taken hold of under the lock, for the last one to let a server go ends it.
  const auto is_over = [&](const Flush& one) {
    return one.server.expired() || (!one.server.owner_before(server) && !server.owner_before(one.server));
  };
  std::erase_if(flushes(), is_over);
  flushes().push_back({server, number});
}

bool has_taken_flush(guint32 number, pid_t process) {
  std::vector<std::shared_ptr<LinkServer>> servers;
  {
    const std::lock_guard lock(mutex);
    for (const Flush& one : flushes()) {
      if (one.number == number) servers.push_back(one.server.lock());
    }
  }
  return std::ranges::all_of(servers, [&](const auto& one) { return !one || one->is_past_mark(process); });
}

}  // namespace gpumap::gst
