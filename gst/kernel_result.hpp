// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/device.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap::gst {

/// The result block of a kernel, and what is told of it: an element message, and the custom meta "GpumapResult" on the
/// buffer. Thread safety: one thread at a time.
class KernelResult {
 public:
  using Fields = std::vector<std::pair<std::string, ResultType>>;
  /// `checksum`: word 0 is one, told as such. Else words are told where any is not zero: by the names and types in
  /// `fields`, or all of them as they are where that is empty.
  KernelResult(Device& device, Backend backend, std::string kernel, bool checksum, Fields fields, std::uint32_t words);
  ~KernelResult();
  KernelResult(const KernelResult&) = delete;
  KernelResult& operator=(const KernelResult&) = delete;

  /// False where the source shows that the kernel never names `field` of gpumap_frame. One that never names `result`
  /// writes none: its frames need not be waited for.
  [[nodiscard]] static bool may_name(const KernelSource& source, std::string_view field);

  /// Put into `frame` where they lie.
  void show(gpumap_frame& frame) const noexcept;
  /// Before each launch, with no other under way.
  void clear();
  /// After it, as the next one: the word `given`.
  [[nodiscard]] std::uint64_t given() const;
  /// The frame that a result is of; `bytes` that were given for it.
  struct Of {
    std::uint64_t bytes = 0, sequence = 0;
    GstClockTime pts = GST_CLOCK_TIME_NONE;
  };
  /// Tell what it left. `out` is null for a frame that was dropped: of that the message tells alone.
  void read(const Of& of, GstBuffer* out);

  /// The message of the last read(): null where there is none. Transfer full.
  [[nodiscard]] GstStructure* take_message() noexcept;

 private:
  Backend backend_;
  std::string kernel_;
  bool checksum_;
  Fields fields_;
  std::size_t words_;
  std::shared_ptr<Mapping> memory_;
  GstStructure* message_ = nullptr;
};

/// Take away what was found out about bytes that a kernel has changed since.
void remove_result_meta(GstBuffer* buffer);

}  // namespace gpumap::gst
