// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>

namespace gpumap::gst {

/// How much memory the names of a peer may take in this process. GLib keeps each name of a structure, a field, a
/// feature of caps or a region for ever: a peer that sends ever new ones would fill the memory. Names that this process
/// knows cost nothing. Thread safety: one thread at a time.
class NewNames {
 public:
  /// Of one peer.
  static constexpr std::size_t most_of_peer = std::size_t{256} << 10U;
  /// Of all clients of one user, which may be one program that starts again and again.
  static constexpr std::size_t most_of_user = std::size_t{1} << 20U;
  /// Of all clients, and of all producers again: neither takes what the other needs.
  static constexpr std::size_t most_of_side = std::size_t{4} << 20U;
  static constexpr std::size_t longest = 255;

  /// Of a producer.
  explicit NewNames(std::size_t most = most_of_peer) : left_(most) {}
  /// Of a client of this user.
  static NewNames of_client(uid_t user) {
    NewNames names;
    names.user_ = user;
    return names;
  }

  /// Whether `name` is known, or there is room for it. False for what is longer than `longest`, and for what is no
  /// text.
  [[nodiscard]] bool admit(const char* name);
  /// True once: there was no room for a name.
  [[nodiscard]] bool tells_of_refusal();

 private:
  std::size_t left_;
  std::optional<uid_t> user_;  ///< whose client it is
  bool refused_ = false, told_ = false;
};

}  // namespace gpumap::gst
