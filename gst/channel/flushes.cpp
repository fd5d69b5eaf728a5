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
std::vector<Flush> last;  ///< of each server

}  // namespace

void note_flush(const std::shared_ptr<LinkServer>& server, guint32 number) {
  server->mark();
  const std::lock_guard lock(mutex);
  const auto is_over = [&](const Flush& one) {
    const auto of = one.server.lock();
    return !of || of == server;
  };
  std::erase_if(last, is_over);
  last.push_back({server, number});
}

bool has_taken_flush(guint32 number, pid_t process) {
  std::vector<std::shared_ptr<LinkServer>> servers;
  {
    const std::lock_guard lock(mutex);
    for (const Flush& one : last) {
      if (one.number == number) servers.push_back(one.server.lock());
    }
  }
  return std::ranges::all_of(servers, [&](const auto& one) { return !one || one->is_past_mark(process); });
}

}  // namespace gpumap::gst
