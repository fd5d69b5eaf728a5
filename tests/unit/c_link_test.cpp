// SPDX-License-Identifier: MIT
// Rings of gpumap.h between processes: here both sides in one, and a producer that is killed.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "c_helpers.hpp"
#include "link_child.hpp"
#include "temporary_folder.hpp"
#include "test_helpers.hpp"

namespace gpumap::test {
namespace {

using namespace std::chrono_literals;

class CLink : public CInterface {
 protected:
  [[nodiscard]] gpumap_ring connect(std::uint32_t leaky = GPUMAP_LEAKY_NO) const {
    auto options = GPUMAP_INIT(gpumap_connect_options);
    options.timeout_ns = long_ns;
    options.leaky = leaky;
    options.name = "test";
    gpumap_ring made = nullptr;
    EXPECT_OK(gpumap_ring_connect(path_.c_str(), &options, &made));
    return made;
  }
  [[nodiscard]] gpumap_server serve(gpumap_ring ring,
                                    gpumap_serve_options options = GPUMAP_INIT(gpumap_serve_options)) {
    gpumap_server made = nullptr;
    EXPECT_OK(gpumap_ring_serve(ring, path_.c_str(), &options, &made));
    return made;
  }
  static gpumap_slot take(gpumap_ring ring) {
    gpumap_slot slot = nullptr;
    EXPECT_OK(gpumap_ring_take(ring, long_ns, &slot));
    return slot;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() / "link";
};

TEST_F(CLink, FramesCrossWithTimesCapsAndLayout) {
  gpumap_ring ring = this->ring(6000, 4);
  ASSERT_OK(gpumap_ring_set_caps(ring, "video/x-raw,format=GRAY8,width=77,height=30,framerate=25/1"));
  gpumap_server server = serve(ring);
  EXPECT_EQ(gpumap_server_wait_for_client(server, 0), GPUMAP_TIMEOUT);
  gpumap_ring far = connect();
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  auto layout = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_GRAY8, 77, 30, &layout));
  for (unsigned number = 0; number < 30; ++number) {
    if (number == 10) {
      layout.stride[0] = 128;
      layout.offset[0] = 3;
      ASSERT_OK(gpumap_ring_set_layout(ring, &layout));
    }
    if (number == 20) {
      ASSERT_OK(gpumap_ring_set_layout(ring, nullptr));
      ASSERT_OK(gpumap_ring_set_caps(ring, "audio/x-raw,format=F32LE,channels=1,rate=8000"));
    }
    const auto sent = random_frame(6000 - number, number);
    send(ring, sent, std::int64_t{number} * 1000);
    gpumap_slot slot = take(far);
    EXPECT_EQ(content_of(slot), sent);
    auto info = GPUMAP_INIT(gpumap_frame_info);
    EXPECT_OK(gpumap_slot_get_frame(slot, &info));
    EXPECT_EQ(info.pts, number * 1000);
    EXPECT_EQ(info.sequence, number);
    auto got = GPUMAP_INIT(gpumap_layout);
    EXPECT_OK(gpumap_slot_get_layout(slot, &got));
    if (number < 20) {
      EXPECT_STREQ(gpumap_slot_caps(slot),
                   "video/x-raw, format=(string)GRAY8, width=(int)77, height=(int)30, framerate=(fraction)25/1");
      EXPECT_EQ(got.stride[0], number < 10 ? 80 : 128);
      EXPECT_EQ(got.offset[0], number < 10 ? 0U : 3U);
    } else {
      EXPECT_STREQ(gpumap_slot_caps(slot), "audio/x-raw, format=(string)F32LE, channels=(int)1, rate=(int)8000");
      EXPECT_EQ(got.channels, 1U);
      EXPECT_EQ(got.planes, 0U);
    }
    EXPECT_OK(gpumap_slot_check(slot));
    EXPECT_OK(gpumap_slot_release(slot, nullptr));
  }
  auto info = GPUMAP_INIT(gpumap_ring_info);
  EXPECT_OK(gpumap_ring_get_info(far, &info));
  EXPECT_EQ(info.connected, 1U);
  EXPECT_EQ(info.rings, 1U);
  EXPECT_EQ(info.taken, 30U);
  EXPECT_OK(gpumap_ring_get_info(ring, &info));
  EXPECT_EQ(info.served, 1U);
  auto served = GPUMAP_INIT(gpumap_server_info);
  EXPECT_OK(gpumap_server_get_info(server, &served));
  EXPECT_EQ(served.clients, 1U);
  EXPECT_EQ(served.connected, 1U);
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CLink, WhoComesLaterIsToldWhatHolds) {
  gpumap_ring ring = this->ring(6000, 4);
  gpumap_server server = serve(ring);
  send(ring, random_frame(10, 1));  // to nobody
  ASSERT_OK(gpumap_ring_set_caps(ring, "application/x-thing,n=7"));
  gpumap_ring far = connect();
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  send(ring, random_frame(10, 2));
  gpumap_slot slot = take(far);
  EXPECT_STREQ(gpumap_slot_caps(slot), "application/x-thing, n=(int)7");
  auto layout = GPUMAP_INIT(gpumap_layout);
  expect_error(gpumap_slot_get_layout(slot, &layout), GPUMAP_ERROR_NOT_SUPPORTED, "x-thing");
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CLink, TheEndComesBehindTheLastFrame) {
  gpumap_ring ring = this->ring(1000, 4);
  gpumap_server server = serve(ring);
  gpumap_ring far = connect();
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  const auto sent = random_frame(1000, 1);
  send(ring, sent);
  EXPECT_OK(gpumap_ring_end(ring));
  gpumap_slot slot = take(far);
  gpumap_slot more = nullptr;
  EXPECT_EQ(gpumap_ring_take(far, long_ns, &more), GPUMAP_END);
  EXPECT_EQ(gpumap_ring_take(far, 0, &more), GPUMAP_TIMEOUT) << "another stream may follow";
  expect_error(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &more), GPUMAP_ERROR_CLOSED, "ended");
  EXPECT_EQ(content_of(slot), sent);
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_server_close(server));
  expect_error(gpumap_ring_take(far, long_ns, &more), GPUMAP_ERROR_CLOSED, path_);
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_OK(gpumap_ring_close(ring));
}

// It is no frame: who drops what is queued hears of it all the same.
TEST_F(CLink, TheEndIsNotDropped) {
  gpumap_ring ring = this->ring(1000, 4);
  gpumap_server server = serve(ring);
  gpumap_ring far = connect();
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  send(ring, random_frame(1000, 1));
  EXPECT_OK(gpumap_ring_end(ring));
  EXPECT_OK(gpumap_ring_drop_queued(far));
  gpumap_slot slot = nullptr;
  EXPECT_EQ(gpumap_ring_take(far, long_ns / 60, &slot), GPUMAP_END);
  EXPECT_EQ(gpumap_ring_take(far, 0, &slot), GPUMAP_TIMEOUT) << "another stream may follow";
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CLink, AProducerThatIsKilledLeavesWhatIsHeld) {
  Child producer({path_, "3"}, "c_link_peer");
  gpumap_ring far = connect();
  gpumap_slot held = take(far);
  producer.signal(SIGKILL);
  EXPECT_EQ(producer.wait(), "signal 9");
  gpumap_slot slot = nullptr;
  gpumap_status status = GPUMAP_OK;
  int more = 0;  // that it had published
  while ((status = gpumap_ring_take(far, long_ns, &slot)) == GPUMAP_OK) {
    ++more;
    EXPECT_OK(gpumap_slot_release(slot, nullptr));
  }
  expect_error(status, GPUMAP_ERROR_CLOSED, "is gone");
  EXPECT_LE(more, 2);
  EXPECT_EQ(content_of(held), std::vector<unsigned char>(5000, 0));
  auto info = GPUMAP_INIT(gpumap_ring_info);
  EXPECT_OK(gpumap_ring_get_info(far, &info));
  EXPECT_STRNE(info.why, "");
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_EQ(content_of(held), std::vector<unsigned char>(5000, 0)) << "a slot outlives its ring, too";
  EXPECT_OK(gpumap_slot_release(held, nullptr));
}

TEST_F(CLink, AClientThatHoldsForTooLongHearsOfIt) {
  gpumap_ring ring = this->ring(100, 4);
  auto options = GPUMAP_INIT(gpumap_serve_options);
  options.stall_limit_ns = 50'000'000;
  options.linger_ns = 1;
  gpumap_server server = serve(ring, options);
  gpumap_ring far = connect();
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  for (unsigned number = 0; number < 4; ++number) send(ring, random_frame(100, number));
  gpumap_slot held = take(far);
  EXPECT_OK(gpumap_slot_check(held));
  send(ring, random_frame(100, 5));  // no slot is free before the limit is over
  expect_error(gpumap_slot_check(held), GPUMAP_ERROR_REVOKED, "took the slot back");
  EXPECT_OK(gpumap_slot_release(held, nullptr));
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CLink, WaitsEndByStopAndByClose) {
  gpumap_ring ring = this->ring(100, 4);
  gpumap_server server = serve(ring);
  gpumap_ring far = connect();
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&] {
      gpumap_slot slot = nullptr;
      EXPECT_EQ(gpumap_ring_take(far, GPUMAP_FOREVER, &slot), GPUMAP_STOPPED);
    });
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_OK(gpumap_ring_stop(far));
  for (std::thread& one : threads) one.join();
  EXPECT_OK(gpumap_ring_resume(far));
  gpumap_slot slot = nullptr;
  EXPECT_EQ(gpumap_ring_take(far, 20'000'000, &slot), GPUMAP_TIMEOUT);
  send(ring, random_frame(100, 1));
  EXPECT_OK(gpumap_slot_release(take(far), nullptr));
  std::thread waiting([&] {
    gpumap_slot more = nullptr;
    expect_error(gpumap_ring_take(far, GPUMAP_FOREVER, &more), GPUMAP_ERROR_CLOSED, "gpumap_ring_close");
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_OK(gpumap_ring_close(far));
  waiting.join();
  std::thread waits_for_client([&] {
    gpumap_status status = GPUMAP_OK;
    while ((status = gpumap_server_wait_for_client(server, GPUMAP_FOREVER)) == GPUMAP_OK)
      std::this_thread::sleep_for(1ms);
    EXPECT_LT(status, 0);
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_OK(gpumap_server_close(server));
  waits_for_client.join();
  EXPECT_OK(gpumap_ring_close(ring));
}

// A ring that is stopped, or closed, keeps nothing back that was published.
TEST_F(CLink, WhatIsPublishedWhileTheRingIsStoppedIsShown) {
  for (const bool closes : {false, true}) {
    gpumap_ring ring = this->ring(100, 3);
    gpumap_slot slot = nullptr;
    std::thread takes([&] { EXPECT_EQ(gpumap_ring_take(ring, long_ns, &slot), GPUMAP_STOPPED); });
    gpumap_server refused = nullptr;
    auto path = folder_.path() / "none" / "link";
    EXPECT_TRUE(comes_true([&] {
      const gpumap_status status = gpumap_ring_serve(ring, path.c_str(), nullptr, &refused);
      EXPECT_LT(status, 0);
      return std::string_view(gpumap_last_error()).find("in gpumap_ring_take()") != std::string_view::npos;
    }));
    EXPECT_OK(gpumap_ring_stop(ring));  // before, too
    takes.join();
    gpumap_server server = serve(ring);
    EXPECT_OK(gpumap_ring_resume(ring));
    gpumap_ring far = connect();
    ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
    ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &slot));
    EXPECT_OK(closes ? gpumap_ring_close(ring) : gpumap_ring_stop(ring));
    ASSERT_OK(gpumap_slot_publish(slot, nullptr, nullptr, 0));
    EXPECT_OK(gpumap_slot_release(take(far), nullptr));
    if (!closes) {
      EXPECT_EQ(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &slot), GPUMAP_STOPPED);
      EXPECT_OK(gpumap_ring_close(ring));
    }
    EXPECT_OK(gpumap_ring_close(far));
    EXPECT_OK(gpumap_server_close(server));
  }
}

TEST_F(CLink, AServerWithoutALimitWaitsUntilClientsAreDone) {
  gpumap_ring ring = this->ring(100, 4);
  auto options = GPUMAP_INIT(gpumap_serve_options);
  options.linger_ns = GPUMAP_FOREVER;
  gpumap_server server = serve(ring, options);
  gpumap_ring far = connect();
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  for (int frame = 0; frame < 3; ++frame) send(ring, random_frame(100, 1));
  auto closed = std::async(std::launch::async, [&] { return gpumap_server_close(server); });
  for (int frame = 0; frame < 3; ++frame) {
    EXPECT_NE(closed.wait_for(20ms), std::future_status::ready) << frame;
    EXPECT_OK(gpumap_slot_release(take(far), nullptr));
  }
  EXPECT_OK(closed.get());
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CLink, WhatCannotReachClientsIsRefused) {
  auto layout = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_BAYER8_BGGR, 16, 8, &layout));
  auto gaps = layout;
  gaps.stride[0] = 32;
  gpumap_ring ring = this->ring(256, 3);
  ASSERT_OK(gpumap_ring_set_caps(ring, "video/x-bayer,format=bggr,width=16,height=8"));
  ASSERT_OK(gpumap_ring_set_layout(ring, &gaps));
  gpumap_server server = nullptr;
  expect_error(gpumap_ring_serve(ring, path_.c_str(), nullptr, &server), GPUMAP_ERROR_NOT_SUPPORTED, "without gaps");
  ASSERT_OK(gpumap_ring_set_layout(ring, &layout));
  server = serve(ring);
  expect_error(gpumap_ring_set_layout(ring, &gaps), GPUMAP_ERROR_NOT_SUPPORTED, "without gaps");
  expect_error(gpumap_ring_set_caps(ring, ""), GPUMAP_ERROR_INVALID, "cannot lose them");
  EXPECT_OK(gpumap_ring_set_caps(ring, "video/x-bayer,format=rggb,width=16,height=8"));
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(ring));
}

// The slots are with a client that gives none back.
TEST_F(CLink, AWaitForASlotEndsWithTheStreamAndWithTheServer) {
  for (const bool closes : {false, true}) {
    gpumap_ring ring = this->ring(100, 3);
    auto options = GPUMAP_INIT(gpumap_serve_options);
    options.reserve = 1;
    options.linger_ns = 300'000'000;
    gpumap_server server = serve(ring, options);
    gpumap_ring far = connect();
    ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
    for (int frame = 0; frame < 3; ++frame) send(ring, random_frame(100, 1));
    gpumap_slot kept = take(far);
    std::thread waiting([&] {
      gpumap_slot more = nullptr;
      expect_error(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &more), GPUMAP_ERROR_CLOSED, "ended");
    });
    std::this_thread::sleep_for(50ms);
    const auto began = std::chrono::steady_clock::now();
    EXPECT_OK(closes ? gpumap_server_close(server) : gpumap_ring_end(ring));
    EXPECT_TRUE(!closes || std::chrono::steady_clock::now() - began >= 300ms) << "it waits for clients itself";
    waiting.join();
    EXPECT_OK(gpumap_slot_release(kept, nullptr));
    EXPECT_OK(gpumap_ring_close(far));
    EXPECT_OK(gpumap_server_close(closes ? nullptr : server));
    EXPECT_OK(gpumap_ring_close(ring));
  }
}

// A thread that waits for a frame without a limit keeps no other from dropping what is queued, and gets the next one.
TEST_F(CLink, DropsBesideAThreadThatWaits) {
  gpumap_ring ring = this->ring(100, 4);
  gpumap_server server = serve(ring);
  gpumap_ring far = connect();
  gpumap_slot slot = nullptr;
  auto waiting = std::async(std::launch::async, [&] { return gpumap_ring_take(far, GPUMAP_FOREVER, &slot); });
  std::this_thread::sleep_for(50ms);
  auto drops = std::async(std::launch::async, [&] {
    for (int i = 0; i < 20; ++i) EXPECT_OK(gpumap_ring_drop_queued(far));
  });
  EXPECT_EQ(drops.wait_for(30s), std::future_status::ready);
  EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout);
  send(ring, random_frame(100, 1), 1);
  EXPECT_OK(waiting.get());
  drops.get();
  EXPECT_EQ(content_of(slot), random_frame(100, 1));
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(ring));
}

// What is published meanwhile keeps nobody in the call: a round of the ring is all that can have been queued.
TEST_F(CLink, DropsOneRoundBesideAProducerThatGoesOn) {
  constexpr unsigned slots = 4;
  gpumap_ring ring = this->ring(100, slots);
  gpumap_server server = serve(ring);
  gpumap_ring far = connect();
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  auto producing = std::async(std::launch::async, [&] {
    gpumap_slot slot = nullptr;
    while (gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, GPUMAP_FOREVER, &slot) == GPUMAP_OK)
      EXPECT_OK(gpumap_slot_publish(slot, nullptr, nullptr, 0));
  });
  const auto next_number = [&] {
    gpumap_slot slot = take(far);
    auto info = GPUMAP_INIT(gpumap_frame_info);
    EXPECT_OK(gpumap_slot_get_frame(slot, &info));
    EXPECT_OK(gpumap_slot_release(slot, nullptr));
    return info.sequence;
  };
  std::uint64_t most = 0;
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t before = next_number();
    EXPECT_OK(gpumap_ring_drop_queued(far));
    most = std::max(most, next_number() - before - 1);
  }
  EXPECT_LE(most, slots);
  EXPECT_OK(gpumap_ring_stop(ring));
  producing.get();
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CLink, EachSideRefusesWhatIsTheOthers) {
  gpumap_ring ring = this->ring(100, 4);
  gpumap_server server = serve(ring);
  gpumap_slot slot = nullptr;
  gpumap_server other = nullptr;
  expect_error(gpumap_ring_take(ring, 0, &slot), GPUMAP_ERROR_INVALID, "its clients");
  expect_error(gpumap_ring_serve(ring, (path_ + "2").c_str(), nullptr, &other), GPUMAP_ERROR_INVALID, "is or was");
  gpumap_ring second = this->ring(100, 4);
  expect_error(gpumap_ring_serve(second, path_.c_str(), nullptr, &other), GPUMAP_ERROR_INVALID, path_);
  send(second, random_frame(100, 1));
  expect_error(gpumap_ring_serve(second, (path_ + "2").c_str(), nullptr, &other), GPUMAP_ERROR_INVALID, "1 frames");
  gpumap_ring far = connect();
  expect_error(gpumap_ring_acquire(far, GPUMAP_WHEN_FULL_WAIT, 0, &slot), GPUMAP_ERROR_INVALID, "another process's");
  expect_error(gpumap_ring_set_caps(far, "a/b"), GPUMAP_ERROR_INVALID, "another process's");
  expect_error(gpumap_ring_end(far), GPUMAP_ERROR_INVALID, "another process's");
  expect_error(gpumap_ring_serve(far, (path_ + "2").c_str(), nullptr, &other), GPUMAP_ERROR_INVALID,
               "another process's");
  gpumap_ring none = nullptr;
  expect_error(gpumap_ring_connect((path_ + "3").c_str(), nullptr, &none), GPUMAP_ERROR_IO, path_);
  {
    const NoThreads nothing_left;
    expect_error(gpumap_ring_connect(path_.c_str(), nullptr, &none), GPUMAP_ERROR_NO_RESOURCES, "ulimit -u");
  }
  auto pinned = GPUMAP_INIT(gpumap_ring_options);
  pinned.slot_bytes = 100;
  pinned.transport = GPUMAP_TRANSPORT_PINNED;
  gpumap_ring third = nullptr;
  ASSERT_OK(gpumap_ring_create(device_, &pinned, &third));
  expect_error(gpumap_ring_serve(third, (path_ + "2").c_str(), nullptr, &other), GPUMAP_ERROR_NOT_SUPPORTED, "bar");
  for (gpumap_ring one : {ring, second, third, far}) EXPECT_OK(gpumap_ring_close(one));
  EXPECT_OK(gpumap_server_close(server));
}

TEST_F(CLink, ASlowClientMissesTheOldest) {
  gpumap_ring ring = this->ring(100, 8);
  gpumap_server server = serve(ring);
  gpumap_ring far = connect(GPUMAP_LEAKY_OLDEST);
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  for (unsigned number = 0; number < 100; ++number) send(ring, random_frame(100, number), number);
  gpumap_slot slot = take(far);
  auto info = GPUMAP_INIT(gpumap_frame_info);
  EXPECT_OK(gpumap_slot_get_frame(slot, &info));
  EXPECT_GE(info.pts, 90);
  EXPECT_EQ(content_of(slot), random_frame(100, static_cast<unsigned>(info.pts)));
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_drop_queued(far));
  EXPECT_EQ(gpumap_ring_take(far, 0, &slot), GPUMAP_TIMEOUT);
  EXPECT_OK(gpumap_ring_close(far));
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(ring));
}

}  // namespace
}  // namespace gpumap::test
