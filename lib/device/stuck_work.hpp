// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpumap/fence.hpp"

namespace gpumap {

/// The work of one GPU context that nobody waits for any more (Fence::give_up()). Until it has ended, memory, code and
/// other things that it may use are not freed. Thread safety: every member.
class StuckWork {
 public:
  /// `end` is when the work ends; `work` names it on standard error and in errors: "kernel blur.cu"; empty: its name is
  /// not known. The caller keeps the timeline: without it the work counts as ended.
  void note(const Fence& end, const std::string& work);
  /// The first of them that still runs; empty: none does.
  [[nodiscard]] std::string running() const;
  [[nodiscard]] bool any() const noexcept;

 private:
  struct One {
    std::weak_ptr<Timeline> timeline;
    std::uint64_t until;
    std::string work;
  };
  mutable std::atomic<bool> may_run_{false};
  mutable std::mutex mutex_;
  mutable std::vector<One> noted_;
};

}  // namespace gpumap
