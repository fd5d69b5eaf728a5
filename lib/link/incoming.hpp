// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpumap/link.hpp"
#include "link/wire.hpp"

namespace gpumap::link {

/// What a server sends a consumer by their socket: messages, answers, and why the connection ends.
/// Thread safety: one thread at a time.
class Incoming {
 public:
  /// `socket` outlives it. A message of another server than `generation` ends the connection.
  Incoming(int socket, std::uint64_t generation);

  /// All that is there, as far as there is room for it. `urgent_sent`: how many messages that overtake the server has
  /// sent, in its own words: for one that has not come, which may lie behind what waits, there is more room.
  void read_all(std::uint64_t urgent_sent);
  /// The connection ends here, for `reason` where none is known.
  void hang_up(const std::string& reason);
  /// Read what nobody will take any more, so that it does not pile up at the server. True: the connection is gone.
  bool discard();
  /// The oldest message that overtakes. False: there is none.
  [[nodiscard]] bool take_urgent(LinkFrame& frame);
  /// The oldest one in order. Precondition: there is one in `inbox`.
  void take_letter(LinkFrame& frame);
  /// Whoever takes messages has done with those that it had. True: it had some.
  bool begin_call() noexcept;
  /// How many messages in order were received, taken or not.
  [[nodiscard]] std::uint64_t letters() const noexcept { return letters_; }

  struct Letter {
    DataHead head;
    std::vector<std::byte> payload;
  };
  /// How many messages came, were given by next() and the like, and had been when the last of those calls began.
  struct Progress {
    std::uint64_t read = 0, given = 0, done = 0;
  };
  std::deque<Letter> inbox;
  std::deque<std::vector<std::byte>> urgent;  ///< messages that overtake
  Progress in_order, at_once;
  std::map<std::uint64_t, std::optional<std::vector<std::byte>>> answers;  ///< of questions that somebody waits for
  std::string why;
  bool moved = false;  ///< another server follows
  bool ended_well = false;
  bool ended = false;    ///< nothing more will be offered; by gone, or by a word of the server, which may stay
  bool gone = false;     ///< the connection: nobody hears of what comes back any more
  bool readable = true;  ///< the socket may have something

 private:
  void take_in(const Message& message);
  void take_data(const Data& data);
  [[nodiscard]] bool has_room(std::uint64_t urgent_sent) const noexcept;

  const int socket_;
  const std::uint64_t generation_;
  std::uint64_t letters_ = 0;  ///< received
  Letter unfinished_;          ///< what has come of one in parts, with the head of the last of them
  std::size_t held_ = 0;       ///< bytes of what waits to be taken
  std::vector<std::byte> buffer_;
};

}  // namespace gpumap::link
