// SPDX-License-Identifier: MIT
// What the tests of the link share: rings in memory that can be passed on, and frames that tell whether they are whole.
#pragma once

#include <gtest/gtest.h>
#include <time.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/link.hpp"
#include "temporary_folder.hpp"

namespace gpumap::test {

using namespace std::chrono_literals;

/// Long enough for a loaded machine: for what hangs, not for what is slow.
inline constexpr auto patience = 20s;

inline Deadline soon() {
  return Clock::now() + patience;
}

inline std::shared_ptr<Ring> link_ring(std::uint32_t slots, std::size_t slot_bytes = 1000) {
  const std::size_t stride = (slot_bytes + 4095) / 4096 * 4096;
  return Ring::create(std::make_shared<FakeDevice>(), make_link_memory(stride * slots),
                      {.slots = slots, .slot_bytes = slot_bytes, .transport = Transport::zero_copy});
}

/// Every 64 bytes of a frame say which frame it is, in which slot, and where they lie.
struct FrameStamp {
  std::uint64_t sequence;
  std::uint64_t slot;
  std::uint64_t offset;
  std::array<std::uint64_t, 5> more;
  [[nodiscard]] static FrameStamp of(std::uint64_t sequence, std::uint64_t slot, std::uint64_t offset) {
    FrameStamp stamp{sequence, slot, offset, {}};
    for (std::uint64_t at = 0; at < stamp.more.size(); ++at) {
      stamp.more[at] = (sequence * 0x9e37'79b9'7f4a'7c15 + slot * 0xbf58'476d + offset) ^ at << 56U;
    }
    return stamp;
  }
  bool operator==(const FrameStamp&) const = default;
};
static_assert(sizeof(FrameStamp) == 64);

inline void write_frame(std::byte* host, std::size_t bytes, std::uint64_t sequence, std::uint32_t slot) {
  for (std::size_t at = 0; at + sizeof(FrameStamp) <= bytes; at += sizeof(FrameStamp)) {
    const FrameStamp stamp = FrameStamp::of(sequence, slot, at);
    std::memcpy(host + at, &stamp, sizeof stamp);
  }
}

/// The offset of the first stamp that is another one; `bytes` where none is.
inline std::size_t torn_at(const std::byte* host, std::size_t bytes, std::uint64_t sequence, std::uint32_t slot) {
  for (std::size_t at = 0; at + sizeof(FrameStamp) <= bytes; at += sizeof(FrameStamp)) {
    const FrameStamp wanted = FrameStamp::of(sequence, slot, at);
    if (std::memcmp(host + at, &wanted, sizeof wanted) != 0) return at;
  }
  return bytes;
}

/// Publish one whole frame, numbered by the ring, after `earlier` ones of rings before it; its offset is `offset`.
inline RingStatus send_frame(LinkServer& server, Ring& ring, std::uint64_t offset = 0,
                             WhenFull when_full = WhenFull::block, Deadline deadline = soon(),
                             std::uint64_t earlier = 0) {
  WriteLease lease;
  const RingStatus status = server.acquire(lease, when_full, deadline);
  if (status != RingStatus::ok) return status;
  write_frame(lease.host(), lease.bytes(), earlier + ring.published(), lease.slot());
  FrameInfo info;
  info.bytes = lease.bytes();
  info.offset = offset;
  server.publish(lease, info);
  return status;
}

inline bool is_whole(const LinkConsumer& consumer, const ReadLease& lease, const LinkFrame& frame) {
  const std::byte* host = consumer.ring()->mapping()->host() + lease.offset();
  return torn_at(host, frame.info.bytes, frame.info.sequence, lease.slot()) == frame.info.bytes;
}

/// Computing time, which a busy machine does not lengthen.
inline std::chrono::nanoseconds time_used(clockid_t clock) {
  timespec used{};
  EXPECT_EQ(clock_gettime(clock, &used), 0);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

/// Until `condition`, or a failure.
inline bool comes_true(const std::function<bool()>& condition) {
  for (const Deadline end = soon(); Clock::now() < end; std::this_thread::sleep_for(1ms)) {
    if (condition()) return true;
  }
  return condition();
}

template <typename Call>
std::string error_text(Call call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

/// A server on a ring, in a folder of its own.
struct Served {
  explicit Served(std::uint32_t slots, LinkServerOptions options = {}, std::size_t slot_bytes = 1000)
      : ring(link_ring(slots, slot_bytes)) {
    path = folder.path() / "link";
    options.path = path;
    server = LinkServer::serve(ring, std::move(options));
  }
  /// Patient: a try waits for 2 s, which a busy machine may keep the server from answering for.
  [[nodiscard]] std::unique_ptr<LinkConsumer> consumer(LinkLeak leak = LinkLeak::no, std::string name = "test",
                                                       std::chrono::nanoseconds patience_here = patience) const {
    LinkConsumerOptions options;
    options.path = path;
    options.name = std::move(name);
    options.leak = leak;
    options.patience = patience_here;
    return LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
  }
  /// What one is told that finds no place: by the server, and not by the 2 s.
  [[nodiscard]] std::string refusal(ErrorCode code = ErrorCode::busy) const {
    ErrorCode given{};
    std::string text;
    comes_true([&] {
      try {
        (void)consumer(LinkLeak::no, "test", 0ns);
      } catch (const Error& error) {
        given = error.code();
        text = error.what();
      }
      return text.find("(no answer)") == std::string::npos;
    });
    EXPECT_EQ(given, code) << text;
    return text;
  }
  RingStatus send(std::uint64_t offset = 0, WhenFull when_full = WhenFull::block, Deadline deadline = soon()) {
    return send_frame(*server, *ring, offset, when_full, deadline, earlier);
  }
  void go_on_with(std::shared_ptr<Ring> next) {
    earlier += ring->published();
    ring = std::move(next);
    server->change(ring, earlier);
  }

  TemporaryFolder folder;
  std::string path;
  std::shared_ptr<Ring> ring;
  std::uint64_t earlier = 0;  ///< frames of the rings before
  std::unique_ptr<LinkServer> server;
};

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}
inline std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// What comes next, as "17" (a frame's offset), "'text'", or the status.
inline std::string next_of(LinkConsumer& consumer, ReadLease& lease, Deadline deadline = soon()) {
  LinkFrame frame;
  switch (consumer.next(lease, frame, deadline)) {
    case LinkNext::frame:
      EXPECT_TRUE(is_whole(consumer, lease, frame)) << "frame " << frame.info.sequence;
      return std::to_string(frame.info.offset);
    case LinkNext::message:
      return "'" + text_of(frame.message) + "'";
    case LinkNext::ring:
      return consumer.ring() ? "ring of " + std::to_string(consumer.ring()->slots()) : "no ring";
    case LinkNext::timeout:
      return "timeout";
    case LinkNext::interrupted:
      return "interrupted";
    case LinkNext::closed:
      return "closed";
  }
  return "?";
}
inline std::string next_of(LinkConsumer& consumer) {
  ReadLease lease;
  return next_of(consumer, lease);
}
inline std::string at_once(LinkConsumer& consumer) {
  ReadLease lease;
  return next_of(consumer, lease, Deadline{});
}

}  // namespace gpumap::test
