// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>

namespace gpumap::gst {

/// Limits how much memory the names of a peer take in this process. GLib keeps each name of a structure, a field, a
/// feature of caps or a region forever, so a peer that keeps sending new names would fill the memory; GStreamer 1.26
/// and later leave that to who asks for the name's number. Names that came before, or that GLib has, cost nothing.
/// Thread safety: one thread at a time.
class NewNames {
 public:
  /// For one peer.
  static constexpr std::size_t most_of_peer = std::size_t{256} << 10U;
  /// For all clients of one user, which may be one program that starts again and again.
  static constexpr std::size_t most_of_user = std::size_t{1} << 20U;
  /// For all clients together, and the same for all producers, so that neither uses up the other's room.
  static constexpr std::size_t most_of_side = std::size_t{4} << 20U;
  static constexpr std::size_t longest = 255;

  /// For a producer.
  explicit NewNames(std::size_t most = most_of_peer) : left_(most) {}
  /// For a client of this user.
  static NewNames of_client(uid_t user) {
    NewNames names;
    names.user_ = user;
    return names;
  }

  /// For what this process says itself.
  static NewNames of_own() {
    NewNames names;
    names.own_ = true;
    return names;
  }

  /// Whether `name` costs nothing any more. Thread-safe.
  [[nodiscard]] static bool knows(const char* name);
  /// Whether `name` is known, or there is room for it. False when it is longer than `longest`, or no UTF-8.
  [[nodiscard]] bool admit(const char* name);
  /// True once: there was no room for a name.
  [[nodiscard]] bool tells_of_refusal();

 private:
  std::size_t left_;
  std::optional<uid_t> user_;  ///< the client's user; empty: a producer
  bool own_ = false, refused_ = false, told_ = false;
};

}  // namespace gpumap::gst
