// SPDX-License-Identifier: MIT
#include "device/health.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>

#include "gpumap/printable.hpp"

namespace gpumap {

namespace {

constexpr const char* nameless = "work of a queue";

/// Without a hold on either, whose end would ask here again.
bool are_same(const std::weak_ptr<Timeline>& one, const std::weak_ptr<Timeline>& other) noexcept {
  return !one.owner_before(other) && !other.owner_before(one);
}

}  // namespace

void StuckWork::note(const Fence& end, const std::string& work) {
  if (end.signalled()) return;
  {
    const std::lock_guard lock(mutex_);
    may_run_ = true;
    for (One& known : noted_) {
      if (!are_same(known.timeline, end.timeline())) continue;
      known.until = std::max(known.until, end.value());
      if (!work.empty()) known.work = work;
      return;
    }
    noted_.push_back({end.timeline(), end.value(), work.empty() ? nameless : work});
  }
  std::fprintf(stderr, "gpumap: %s still runs, and nobody waits for its end any more: what it uses stays allocated\n",
               printable(work.empty() ? nameless : work).c_str());
}

std::string StuckWork::running() const {
  if (!may_run_) return {};
  std::unique_lock lock(mutex_);
  const std::vector<One> known = noted_;
  lock.unlock();  // what a timeline does when it goes asks here again
  for (const One& one : known) {
    if (const auto timeline = one.timeline.lock(); timeline && timeline->completed() < one.until) return one.work;
  }
  lock.lock();
  // More may have been given up meanwhile, of these timelines as well.
  std::erase_if(noted_, [&known](const One& one) {
    return std::ranges::any_of(
        known, [&one](const One& ended) { return are_same(one.timeline, ended.timeline) && one.until == ended.until; });
  });
  may_run_ = !noted_.empty();
  return noted_.empty() ? std::string() : noted_.front().work;
}

bool StuckWork::any() const noexcept {
  try {
    return !running().empty();
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace gpumap
