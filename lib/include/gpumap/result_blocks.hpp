// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/kernel.h"
#include "gpumap/kernel.hpp"
#include "gpumap/memory.hpp"
#include "gpumap/program.hpp"

namespace gpumap {

/// What launches write at gpumap_frame::given and gpumap_frame::result: a block of host memory for each, read when the
/// launch has ended. Ownership: keeps the device open; the owner waits for what was launched before it destroys this.
/// Thread safety: one thread at a time.
class GPUMAP_API ResultBlocks {
 public:
  using Words = std::vector<std::uint64_t>;

  /// Of `words` words each, with room for a guard behind them where they are `guarded`. Throws Error(no_memory |
  /// device_lost).
  ResultBlocks(std::shared_ptr<Device> device, Backend backend, std::uint32_t words, bool guarded = false);
  /// Blocks of as many from here on; nothing is under way.
  void change(std::uint32_t words);

  /// False where the source shows that the kernel never names `field` of gpumap_frame. One that never names `result`
  /// writes none: its frames need not be waited for.
  [[nodiscard]] static bool may_name(const KernelSource& source, std::string_view field);

  /// Before each launch whose block will be read: one of zeros. Waits for an old one where very many are under way;
  /// false when cancelled.
  [[nodiscard]] bool take(const std::atomic<bool>& cancelled);
  /// Put into `frame` where it lies.
  void show(gpumap_frame& frame) const noexcept;
  /// The block at hand, which is guarded.
  [[nodiscard]] BoundsCheck::Range range() const;
  /// It is the launch's until `done`.
  void launched(const Fence& done) { current_.done = done; }
  /// The word at gpumap_frame::given, once that is done.
  [[nodiscard]] std::uint64_t given() const;

  /// What the launch at hand writes will be asked for. Of launches that have ended the last `most_unread` are kept: who
  /// never asks fills no memory.
  void keep();
  [[nodiscard]] bool has_kept() const noexcept { return !kept_.empty() || !read_.empty(); }
  /// The words of the oldest launch that was kept, once it has ended: one after the other, in the order of launches.
  [[nodiscard]] std::optional<Words> next();
  /// Whatever was not asked for is dropped.
  void forget();

  static constexpr std::size_t most_unread = 1024;

 private:
  struct Block {
    std::shared_ptr<Mapping> memory;
    Fence done;
  };
  [[nodiscard]] Block allocate() const;
  void collect();

  std::shared_ptr<Device> device_;
  Backend backend_;
  std::uint32_t words_;
  bool guarded_;
  Block current_;            ///< shown to the launch at hand
  std::deque<Block> kept_;   ///< in order of launches
  std::deque<Words> read_;   ///< of launches before those
  std::vector<Block> free_;  ///< of which some may still be written to: by what was cancelled
};

}  // namespace gpumap
