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

void forget_flush(const std::shared_ptr<LinkServer>& server) {
  const std::lock_guard lock(mutex);
  std::erase_if(flushes(),
                [&](const Flush& one) { return !one.server.owner_before(server) && !server.owner_before(one.server); });
}

void note_flush(const std::shared_ptr<LinkServer>& server, guint32 number) {
  server->mark();
  forget_flush(server);
  const std::lock_guard lock(mutex);
  flushes().push_back({server, number});
}

bool has_taken_flush(guint32 number, const LinkQuestion& question) {
  const std::lock_guard lock(mutex);
  return std::ranges::all_of(flushes(), [&](const Flush& one) {
    const auto server = one.number == number ? one.server.lock() : nullptr;
    return !server || server->is_past_mark(question);
  });
}

}  // namespace gpumap::gst
