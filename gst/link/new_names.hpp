// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace gpumap::gst {

/// How much memory the names of a peer may take in this process. GLib keeps each name of a structure, a field, a
/// feature of caps or a region for ever: a peer that sends ever new ones would fill the memory. Names that this process
/// knows cost nothing. Thread safety: one thread at a time.
class NewNames {
 public:
  /// Of one peer. All peers together have `most_of_process`.
  static constexpr std::size_t most_of_peer = std::size_t{256} << 10U;
  static constexpr std::size_t most_of_process = std::size_t{4} << 20U;
  static constexpr std::size_t longest = 255;

  explicit NewNames(std::size_t most = most_of_peer) : left_(most) {}

  /// Whether `name` is known, or there is room for it. False for what is longer than `longest`, and for what is no
  /// text.
  [[nodiscard]] bool admit(const char* name);

 private:
  std::size_t left_;
};

}  // namespace gpumap::gst
