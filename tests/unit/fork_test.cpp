// SPDX-License-Identifier: MIT
// A child of fork() without exec, as Python's multiprocessing makes them: it has copies of all handles, and lets them
// go when it ends. None of that is to reach its parent, and none of it may hang.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gpumap/copy.hpp"
#include "gpumap/latency.hpp"
#include "ring_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

/// The exit status of a child that runs `body`; it is killed when that takes two minutes: it hangs.
template <typename Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Fork, ChildThatLetsGoFreesNothing) {
  auto ring = make_ring(3);
  send(*ring, 1);
  send(*ring, 2);
  ReadLease read = must_receive(*ring);
  WriteLease write = must_acquire(*ring);
  EXPECT_EQ(in_child([&] {
              read = ReadLease();
              write = WriteLease();
              EXPECT_FALSE(read);
              EXPECT_FALSE(write);
              ring.reset();
            }),
            0);
  WriteLease none;
  EXPECT_EQ(ring->acquire(none, WhenFull::drop_newest), RingStatus::full) << "every slot has a lease or a frame";
  EXPECT_EQ(ring->queued(), 1U);
  read = ReadLease();
  EXPECT_EQ(ring->acquire(none, WhenFull::drop_newest), RingStatus::ok);
}

TEST(Fork, ChildsCallsDoNothing) {
  const auto ring = make_ring(3);
  ring->set_stamping(true);
  send(*ring, 1);
  WriteLease write = must_acquire(*ring);
  EXPECT_EQ(in_child([&] {
              ReadLease read;
              EXPECT_EQ(ring->receive(read), RingStatus::closed);
              EXPECT_FALSE(read);
              WriteLease other;
              for (const WhenFull when : {WhenFull::block, WhenFull::drop_newest, WhenFull::drop_oldest}) {
                EXPECT_EQ(ring->acquire(other, when), RingStatus::closed);
              }
              expect_invalid([&] { ring->publish(write, {}); }, "fork");
              write.stamp(Stamp::first_store, 1);
              EXPECT_EQ(ring->acquire(write), RingStatus::closed);
              EXPECT_FALSE(write);
              ring->set_producer_flushing(true);
              ring->set_consumer_flushing(true);
              ring->nudge_consumer();
              ring->drop_queued();
              ring->set_stamping(false);
              ring->close_producer();
              ring->close_consumer();
            }),
            0);
  EXPECT_TRUE(ring->stamping());
  EXPECT_EQ(ring->queued(), 1U);
  ring->publish(write, {.offset = 2});
  EXPECT_EQ(must_receive(*ring).info().offset, 1U);
  ReadLease read;
  ASSERT_EQ(ring->receive(read, at_once()), RingStatus::ok);
  EXPECT_EQ(read.info().offset, 2U);
  EXPECT_EQ(read.stamps().value_or(FrameRecord()).at(Stamp::first_store), 0) << "stamped by the child";
  EXPECT_EQ(ring->receive(read, at_once()), RingStatus::timeout) << "neither closed nor nudged nor flushing";
}

TEST(Fork, ChildMayMakeItsOwn) {
  const auto parents = make_ring(2);
  EXPECT_EQ(in_child([] {
              const auto ring = make_ring(2);
              send(*ring, 3);
              EXPECT_EQ(must_receive(*ring).info().offset, 3U);
              Copier copier({.threads = 2});
              std::vector<std::byte> from(1'000'000, std::byte{7});
              std::vector<std::byte> to(from.size());
              copier.copy(to.data(), from.data(), from.size());
              store_fence();
              EXPECT_EQ(from, to);
            }),
            0);
}

TEST(Fork, ChildHasNoneOfACopiersThreads) {
  std::optional<Copier> copier(std::in_place, CopierOptions{.threads = 2});
  std::vector<std::byte> from(1'000'000, std::byte{7});
  std::vector<std::byte> to(from.size());
  copier->copy(to.data(), from.data(), from.size());
  EXPECT_EQ(in_child([&] {
              std::vector<std::byte> mine(from.size());
              copier->calibrate(mine, "in a child");
              mine.assign(mine.size(), std::byte{0});
              copier->copy(mine.data(), from.data(), from.size());
              store_fence();
              EXPECT_EQ(mine, from) << "by the caller alone";
              copier.reset();
            }),
            0);
  copier->copy(to.data(), from.data(), from.size());
  store_fence();
  EXPECT_EQ(to, from);
}

TEST(Fork, ChildOfACopierInUseDoesNotHang) {
  std::optional<Copier> copier(std::in_place, CopierOptions{.threads = 2});
  std::atomic<bool> stop{false};
  // Holds the copier's locks nearly all of the time, and in the child nobody ever lets go of them.
  std::thread busy([&] {
    std::vector<std::byte> scratch(1'000'000);
    while (!stop) copier->calibrate(scratch);
  });
  for (int turn = 0; turn < 5; ++turn) {
    std::this_thread::sleep_for(1ms);
    EXPECT_EQ(in_child([&] {
                std::vector<std::byte> mine(1'000'000);
                copier->calibrate(mine);
                copier->copy(mine.data(), std::vector<std::byte>(mine.size(), std::byte{7}).data(), mine.size());
                store_fence();
                EXPECT_EQ(mine.back(), std::byte{7});
                copier.reset();
              }),
              0);
  }
  stop = true;
  busy.join();
}

TEST(Fork, ChildHasNoneOfALogsThreads) {
  auto log = LatencyLog::of_channel("forked");
  FrameRecord frame;
  frame.at_ns[static_cast<std::size_t>(Stamp::published)] = 1;
  log->add(frame);
  EXPECT_EQ(in_child([&] {
              log->add(frame);
              log->add_dropped(1);
              log->keep_frames(3);
              EXPECT_EQ(log->summary().frames, 0U);
              EXPECT_TRUE(log->take_frames().empty());
              log->reset();
              auto own = LatencyLog::of_channel("forked");
              EXPECT_NE(own, log);
              own->add(frame);
              EXPECT_EQ(own->summary().frames, 1U);
              own.reset();
              log.reset();
            }),
            0);
  EXPECT_EQ(log->summary().frames, 1U);
}

}  // namespace
}  // namespace gpumap
