// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/kernel_launcher.hpp"

namespace gpumap {

/// How many bytes a kernel's output of a frame has, and how many of them count. Thread safety: one thread at a time.
class OutputSize {
 public:
  /// `keeps_layout`: as KernelLauncher::keeps_layout().
  OutputSize(const Declaration& declaration, bool keeps_layout, std::string name);
  /// As they are in force, for the line `bytes`.
  void set_params(const Declaration& declaration, const std::string& params);

  /// `known`: what Program::output_bytes() says of the frame. Throws Error(invalid) where the line `bytes` has no room
  /// for what the caps say, or more than any memory.
  [[nodiscard]] std::size_t of(const FrameInput& in, const FrameLayout& in_layout, const FrameLayout& out_layout,
                               std::optional<std::size_t> known);
  /// How much counts of an output of `bytes` bytes, by what the kernel `said` at gpumap_frame::given; nothing: it
  /// dropped the frame. Throws Error(invalid) for more than there is, and for a part of a `sample`, which is its bytes.
  [[nodiscard]] std::optional<std::size_t> given(std::uint64_t said, std::size_t bytes, std::size_t sample) const;

 private:
  [[nodiscard]] std::uint64_t declared(const FrameInput& in);

  const std::string name_, declared_;
  const OutputMay may_;
  const bool unchanged_, keeps_layout_;
  std::vector<std::pair<std::string, std::uint64_t>> params_;  ///< that the line may mention; empty: it mentions none
  struct Sized {
    std::array<std::uint64_t, 6> of;  ///< what else it may mention
    std::uint64_t bytes;
  };
  std::optional<Sized> sized_;  ///< by the line, the last frame
};

/// Throws Error(invalid) where the line output-may contradicts the source, another line, `late_results`, or `out`, the
/// layout of the outputs where that is known.
void check_output_may(const KernelPlan& plan, bool late_results, const std::optional<FrameLayout>& out);
/// The part of that which depends on `out`; `name` is the kernel's.
void check_shortening(const Declaration& declaration, const std::string& name, const std::optional<FrameLayout>& out);

}  // namespace gpumap
