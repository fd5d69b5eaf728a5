// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gpumap/result_blocks.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

/// What messages report of a kernel's result block.
struct ResultRule {
  std::string kernel;
  std::string message;  ///< its name; empty: the usual one
  /// By these names and types words are told in any case. Where that is empty, all of them as they are, if any is not
  /// zero.
  std::vector<std::pair<std::string, ResultType>> fields;
  DeclaredAnalytics analytics;  ///< as which metas of GStreamer's own the words are told, too
};

/// What reports a kernel's results: an element message each, and custom metas. A frame that waits for its result has
/// it in "GpumapResult". Of late results a later frame has what came meanwhile in "GpumapLateResults": `results`, an
/// array of structures that are as the messages are.
/// Thread safety: one thread at a time.
class KernelResult {
 public:
  explicit KernelResult(bool late) : late_(late) {}
  KernelResult(const KernelResult&) = delete;
  KernelResult& operator=(const KernelResult&) = delete;
  /// Told like this from here on.
  void change(ResultRule rule) { rule_ = std::move(rule); }

  /// The frame that a result is of; `bytes` that were given for it.
  struct Of {
    std::uint64_t bytes = 0, sequence = 0, offset = GST_BUFFER_OFFSET_NONE;
    GstClockTime pts = GST_CLOCK_TIME_NONE;
  };
  /// What was launched last is of this frame.
  void keep(const Of& of) { kept_.push_back(of); }
  /// Of those that were kept, read what has come, in order.
  void collect(KernelLauncher& launcher);
  /// Put what was read since the last time into the meta of `out`.
  void put_on(GstBuffer* out);
  /// There is no frame that could have it: the messages tell alone.
  void drop_found() noexcept { found_.reset(); }
  /// Whatever was not told is dropped.
  void forget();

  /// The next message of what was read; null: no more. Transfer full.
  [[nodiscard]] GstStructure* take_message() noexcept;

 private:
  using Words = ResultBlocks::Words;
  void read(const Of& of, Words words);
  void tell(GstStructure* to, const Words& words) const;

  ResultRule rule_;
  bool late_;
  std::deque<Of> kept_;  ///< in order of frames
  std::optional<Words> found_;
  std::deque<Ptr<GstStructure>> messages_, for_meta_;
};

/// Take away what was found out about bytes that a kernel has changed since.
void remove_result_meta(GstBuffer* buffer);

}  // namespace gpumap::gst
