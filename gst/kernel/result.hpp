// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/device.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap::gst {

/// What is told of a kernel's result block.
struct ResultRule {
  std::string kernel;
  std::string message;  ///< its name; empty: the usual one
  /// By these names and types words are told in any case. Where that is empty, all of them as they are, if any is not
  /// zero.
  std::vector<std::pair<std::string, ResultType>> fields;
  std::uint32_t words = GPUMAP_RESULT_WORDS;
};

/// The result blocks of a kernel's launches, and what is told of them: an element message each, and custom metas. A
/// frame that waits for its result has it in "GpumapResult". Of late results a later frame has what came meanwhile in
/// "GpumapLateResults": `results`, an array of structures that are as the messages are.
/// Thread safety: one thread at a time.
class KernelResult {
 public:
  KernelResult(std::shared_ptr<Device> device, Backend backend, ResultRule rule, bool late);
  KernelResult(const KernelResult&) = delete;
  KernelResult& operator=(const KernelResult&) = delete;
  /// Another kernel from here on; nothing is under way.
  void change(ResultRule rule);

  /// False where the source shows that the kernel never names `field` of gpumap_frame. One that never names `result`
  /// writes none: its frames need not be waited for.
  [[nodiscard]] static bool may_name(const KernelSource& source, std::string_view field);

  /// Before each launch whose block will be read: one of zeros. Waits for an old one where very many are under way;
  /// false when cancelled.
  [[nodiscard]] bool take(const std::atomic<bool>& cancelled);
  /// Put into `frame` where it lies.
  void show(gpumap_frame& frame) const noexcept;
  /// It is the launch's until `done`.
  void launched(const Fence& done) { current_.done = done; }
  /// The word at gpumap_frame::given, once that is done.
  [[nodiscard]] std::uint64_t given() const;

  /// The frame that a result is of; `bytes` that were given for it.
  struct Of {
    std::uint64_t bytes = 0, sequence = 0, offset = GST_BUFFER_OFFSET_NONE;
    GstClockTime pts = GST_CLOCK_TIME_NONE;
  };
  /// What was launched last is of this frame.
  void keep(const Of& of);
  /// Of those that were kept, read what is done, in order.
  void collect();
  /// Put what was read since the last time into the meta of `out`.
  void put_on(GstBuffer* out);
  /// There is no frame that could have it: the messages tell alone.
  void drop_found() noexcept { found_.reset(); }
  /// Whatever was not told is dropped.
  void forget();

  /// The next message of what was read; null: no more. Transfer full.
  [[nodiscard]] GstStructure* take_message() noexcept;

 private:
  using Words = std::vector<std::uint64_t>;
  struct Free {
    void operator()(GstStructure* structure) const { gst_structure_free(structure); }
  };
  using Structure = std::unique_ptr<GstStructure, Free>;
  struct Block {
    std::shared_ptr<Mapping> memory;
    Fence done;
  };
  struct Kept {
    Block block;
    Of of;
  };
  [[nodiscard]] Block allocate() const;
  void read(const Kept& kept);
  void tell(GstStructure* to, const Words& words) const;

  std::shared_ptr<Device> device_;
  Backend backend_;
  ResultRule rule_;
  bool late_;
  Block current_;            ///< shown to the launch at hand
  std::deque<Kept> kept_;    ///< in order of frames
  std::vector<Block> free_;  ///< of which some may still be written to: by what was cancelled
  std::optional<Words> found_;
  std::deque<Structure> messages_, for_meta_;
};

/// Take away what was found out about bytes that a kernel has changed since.
void remove_result_meta(GstBuffer* buffer);

}  // namespace gpumap::gst
