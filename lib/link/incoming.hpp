// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device/unique_fd.hpp"
#include "gpumap/link.hpp"
#include "link/wire.hpp"

namespace gpumap::link {

/// What a server sends to a consumer through the socket: messages, rings, answers, and why the connection ends.
/// Thread safety: one thread at a time.
class Incoming {
 public:
  struct Letter {
    DataHead head;
    std::vector<std::byte> payload;
    std::optional<Welcome> ring{};  ///< instead of a payload; its memory and its block are `fds`, if there is one
    std::vector<UniqueFd> fds{};
  };
  /// `socket` must outlive this object. A message with another generation ends the connection.
  Incoming(int socket, std::uint64_t generation);

  /// Read all that is there, as far as there is room. `urgent_sent`: how many messages that overtake the server says it
  /// has sent. While one of them is missing, it may lie behind the messages that wait, so more room is given.
  void read_all(std::uint64_t urgent_sent);
  /// End the connection here. `reason` counts when no reason is known yet.
  void hang_up(const std::string& reason);
  /// The same for what the server did, and should have said why.
  void hang_up_unexplained(const std::string& what);
  /// Read and drop what no caller will take any more, so that it does not pile up at the server. True: the connection
  /// is gone.
  bool discard();
  /// Take the oldest message that overtakes. False: there is none.
  [[nodiscard]] bool take_urgent(LinkFrame& frame);
  /// Take the oldest message in order. Precondition: `inbox` is not empty, and begins with none that brings a ring.
  void take_letter(LinkFrame& frame);
  /// The same for one that brings a ring.
  [[nodiscard]] Letter take_ring();
  [[nodiscard]] bool has_ring() const noexcept { return rings_ > 0; }
  /// The thread that takes messages calls again, so it is done with those that it was given. True: there were some.
  bool begin_call() noexcept;
  /// How many messages were received, taken or not.
  [[nodiscard]] std::uint64_t letters() const noexcept { return letters_; }

  std::deque<Letter> inbox;
  std::deque<std::vector<std::byte>> urgent;  ///< messages that overtake
  std::uint64_t at_once_read = 0;             ///< messages that overtook, taken or not
  std::uint64_t dealt_with = 0;               ///< messages in order that were taken before the last begin_call()
  std::map<std::uint64_t, std::optional<std::vector<std::byte>>> answers;  ///< of questions whose callers wait
  std::string why;
  bool is_unexplained = false;  ///< `why` says what was found, and the server has not said more
  bool ended_well = false;
  bool ended = false;    ///< nothing more will be offered: the connection is gone, or the server said so
  bool gone = false;     ///< the connection is closed: slots can no longer be given back
  bool readable = true;  ///< the socket may have something

 private:
  void take_in(const Message& message);
  void take_data(const Data& data);
  void take_next(const NextRing& next);
  [[nodiscard]] bool has_room(std::uint64_t urgent_sent) const noexcept;

  const int socket_;
  const std::uint64_t generation_;
  std::uint64_t letters_ = 0;  ///< received
  Letter unfinished_;          ///< the parts received of a message in parts, with the head of the last part
  std::size_t held_ = 0;       ///< bytes of the messages that wait to be taken
  std::size_t rings_ = 0;      ///< rings that wait to be taken
  std::uint64_t taken_ = 0;    ///< messages in order
  std::vector<std::byte> buffer_;
  std::vector<UniqueFd> fds_;  ///< that came with the message which is being taken in
};

}  // namespace gpumap::link
