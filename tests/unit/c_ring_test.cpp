// SPDX-License-Identifier: MIT
// Rings of gpumap.h within a process.
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "c_helpers.hpp"

namespace gpumap::test {
namespace {

using namespace std::chrono_literals;

using CRing = CInterface;

TEST_F(CRing, FramesComeInOrderWithAllThatIsSaidOfThem) {
  gpumap_ring ring = this->ring(3001, 4);
  for (unsigned number = 0; number < 20; ++number) {
    gpumap_slot slot = nullptr;
    const auto sent = random_frame(3001 - number * 100, number);
    ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
    auto place = GPUMAP_INIT(gpumap_memory_info);
    ASSERT_OK(gpumap_slot_get_memory(slot, &place));
    EXPECT_EQ(place.bytes, 3001U);
    std::memcpy(place.host, sent.data(), sent.size());
    gpumap_frame_info info = gpumap_frame_of(sent.size());
    info.pts = std::int64_t{number} * 40;
    info.dts = info.pts - 1;
    info.duration = 40;
    info.offset = number + 1000;
    info.offset_end = number + 2000;
    info.flags = 64 + number;
    info.user = ~number;
    ASSERT_OK(gpumap_slot_publish(slot, &info, nullptr, 0));
    ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
    auto got = GPUMAP_INIT(gpumap_frame_info);
    ASSERT_OK(gpumap_slot_get_frame(slot, &got));
    EXPECT_EQ(got.sequence, number);
    EXPECT_GT(got.publish_ns, 0);
    info.sequence = got.sequence;
    info.publish_ns = got.publish_ns;
    EXPECT_EQ(std::memcmp(&got, &info, sizeof info), 0);
    EXPECT_EQ(content_of(slot), sent);
    ASSERT_OK(gpumap_slot_release(slot, nullptr));
  }
  auto info = GPUMAP_INIT(gpumap_ring_info);
  EXPECT_OK(gpumap_ring_get_info(ring, &info));
  EXPECT_EQ(info.published, 20U);
  EXPECT_EQ(info.taken, 20U);
  EXPECT_EQ(info.slots, 4U);
  EXPECT_EQ(info.slot_bytes, 3001U);
  EXPECT_EQ(info.connected + info.served + info.queued, 0U);
  gpumap_device device = nullptr;
  EXPECT_OK(gpumap_ring_get_device(ring, &device));
  EXPECT_OK(gpumap_device_close(device));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CRing, CapsAndLayoutHoldFromAFrameOn) {
  gpumap_ring ring = this->ring(1000, 4);
  send(ring, random_frame(10, 1));
  ASSERT_OK(gpumap_ring_set_caps(ring, "audio/x-raw,format=S16LE,channels=2,rate=48000"));
  send(ring, random_frame(20, 2));
  expect_error(gpumap_ring_set_caps(ring, "audio/x-raw,format="), GPUMAP_ERROR_INVALID, "character 20");
  auto layout = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_GRAY8, 20, 10, &layout));
  layout.stride[0] = 64;
  layout.offset[0] = 5;
  ASSERT_OK(gpumap_ring_set_layout(ring, &layout));
  send(ring, random_frame(1000, 3));
  layout.stride[0] = 128;
  expect_error(gpumap_ring_set_layout(ring, &layout), GPUMAP_ERROR_INVALID, "leaves a frame of 1000 bytes");
  layout.stride[0] = 19;
  expect_error(gpumap_ring_set_layout(ring, &layout), GPUMAP_ERROR_INVALID, "lies in itself");
  gpumap_slot slot = nullptr;
  auto got = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
  EXPECT_STREQ(gpumap_slot_caps(slot), "");
  expect_error(gpumap_slot_get_layout(slot, &got), GPUMAP_ERROR_NOT_SUPPORTED, "no caps");
  ASSERT_OK(gpumap_slot_release(slot, nullptr));
  ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
  EXPECT_STREQ(gpumap_slot_caps(slot), "audio/x-raw, format=(string)S16LE, channels=(int)2, rate=(int)48000");
  ASSERT_OK(gpumap_slot_get_layout(slot, &got));
  EXPECT_EQ(got.format, static_cast<std::uint32_t>(GPUMAP_FORMAT_S16));
  EXPECT_EQ(got.channels, 2U);
  EXPECT_EQ(got.rate, 48000U);
  ASSERT_OK(gpumap_slot_release(slot, nullptr));
  ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
  ASSERT_OK(gpumap_slot_get_layout(slot, &got));
  EXPECT_EQ(got.width, 20U);
  EXPECT_EQ(got.stride[0], 64);
  EXPECT_EQ(got.offset[0], 5U);
  ASSERT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CRing, ALayoutHasRoomForItsLastRow) {
  struct Case {
    std::uint32_t format, width, height;
    std::vector<std::uint64_t> rows, row_bytes;  // of each plane
  };
  const std::vector<Case> cases{
      {GPUMAP_FORMAT_GRAY8, 77, 31, {31}, {77}},
      {GPUMAP_FORMAT_RGB, 77, 31, {31}, {231}},
      {GPUMAP_FORMAT_RGBA, 65536, 1, {1}, {262'144}},
      {GPUMAP_FORMAT_YUY2, 77, 31, {31}, {156}},
      {GPUMAP_FORMAT_NV12, 77, 31, {32, 16}, {77, 78}},
      {GPUMAP_FORMAT_P010, 77, 31, {32, 16}, {154, 156}},
      {GPUMAP_FORMAT_I420, 77, 31, {32, 16, 16}, {77, 39, 39}},
      {GPUMAP_FORMAT_Y42B, 77, 31, {31, 31, 31}, {77, 39, 39}},
      {GPUMAP_FORMAT_Y444_10, 77, 31, {31, 31, 31}, {154, 154, 154}},
      {GPUMAP_FORMAT_V210, 77, 31, {31}, {208}},
      {GPUMAP_FORMAT_Y210, 77, 31, {31}, {312}},
      {GPUMAP_FORMAT_BAYER16_RGGB, 77, 31, {31}, {154}},
      {GPUMAP_FORMAT_RGB_F16, 77, 31, {31}, {462}},
      {GPUMAP_FORMAT_RGB_F32_PLANAR, 77, 31, {31, 31, 31}, {308, 308, 308}},
  };
  for (const Case& one : cases) {
    auto layout = GPUMAP_INIT(gpumap_layout);
    ASSERT_OK(gpumap_layout_of_picture(one.format, one.width, one.height, &layout));
    ASSERT_EQ(layout.planes, one.rows.size());
    // The usual one first, then plane after plane without padding, behind one another, with 3 bytes before them.
    gpumap_ring usual = this->ring(layout.bytes, 2);
    EXPECT_OK(gpumap_ring_set_layout(usual, &layout));
    EXPECT_OK(gpumap_ring_close(usual));
    std::uint64_t end = 3;
    for (std::uint32_t plane = 0; plane < layout.planes; ++plane) {
      layout.offset[plane] = end;
      layout.stride[plane] = static_cast<std::int32_t>(one.row_bytes[plane]);
      end += one.rows[plane] * one.row_bytes[plane];
    }
    gpumap_ring tight = this->ring(end, 2);
    gpumap_ring smaller = this->ring(end - 1, 2);
    EXPECT_OK(gpumap_ring_set_layout(tight, &layout)) << one.format;
    EXPECT_EQ(gpumap_ring_set_layout(smaller, &layout), GPUMAP_ERROR_INVALID) << one.format;
    for (std::uint32_t plane = 0; plane < layout.planes; ++plane) {
      --layout.stride[plane];
      EXPECT_EQ(gpumap_ring_set_layout(tight, &layout), GPUMAP_ERROR_INVALID) << one.format << ' ' << plane;
      ++layout.stride[plane];
    }
    EXPECT_OK(gpumap_ring_close(tight));
    EXPECT_OK(gpumap_ring_close(smaller));
  }
}

TEST_F(CRing, AFullRingWaitsGivesUpOrDrops) {
  gpumap_ring ring = this->ring(100, 3);
  for (unsigned number = 0; number < 3; ++number) send(ring, random_frame(100, number), number);
  gpumap_slot slot = nullptr;
  EXPECT_EQ(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot), GPUMAP_FULL);
  EXPECT_EQ(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 1'000'000, &slot), GPUMAP_TIMEOUT);
  expect_error(gpumap_ring_acquire(ring, 2, 0, &slot), GPUMAP_ERROR_INVALID, "when_full");
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_DROP_OLDEST, 0, &slot));
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
  auto info = GPUMAP_INIT(gpumap_frame_info);
  EXPECT_OK(gpumap_slot_get_frame(slot, &info));
  EXPECT_EQ(info.pts, 1) << "0 made room, and what was given up made none";
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_drop_queued(ring));
  EXPECT_EQ(gpumap_ring_take(ring, 0, &slot), GPUMAP_TIMEOUT);
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CRing, ASlotIsFreeWhenItsReaderIsDone) {
  gpumap_ring ring = this->ring(100, 2);
  alignas(8) std::uint64_t reached = 0;
  gpumap_slot slot = nullptr;
  gpumap_slot other = nullptr;
  send(ring, random_frame(100, 1));
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &other));
  ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
  const gpumap_fence reader = gpumap_counter_fence(&reached, 3);
  ASSERT_OK(gpumap_slot_release(slot, &reader));
  EXPECT_EQ(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 5'000'000, &slot), GPUMAP_TIMEOUT);
  __atomic_store_n(&reached, 3, __ATOMIC_RELEASE);
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &slot));
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_slot_release(other, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CRing, IsPublishedWhenItsWriterIsDone) {
  gpumap_ring ring = this->ring(100, 2);
  alignas(8) std::uint64_t reached = 0;
  gpumap_slot slot = nullptr;
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
  const gpumap_fence writer = gpumap_counter_fence(&reached, 1);
  EXPECT_EQ(gpumap_slot_publish(slot, nullptr, &writer, 2'000'000), GPUMAP_TIMEOUT);
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    __atomic_store_n(&reached, 1, __ATOMIC_RELEASE);
  });
  EXPECT_OK(gpumap_slot_publish(slot, nullptr, &writer, long_ns));
  EXPECT_EQ(__atomic_load_n(&reached, __ATOMIC_ACQUIRE), 1U);
  later.join();
  // A wait that nothing else ends.
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
  const gpumap_fence never = gpumap_counter_fence(&reached, 2);
  std::thread stopper([&] {
    std::this_thread::sleep_for(50ms);
    EXPECT_OK(gpumap_ring_stop(ring));
  });
  EXPECT_EQ(gpumap_slot_publish(slot, nullptr, &never, GPUMAP_FOREVER), GPUMAP_STOPPED);
  stopper.join();
  EXPECT_OK(gpumap_slot_release(slot, nullptr)) << "it is still the caller's";
  EXPECT_OK(gpumap_ring_close(ring));
}

// Of colours and fields the caps tell where the layout, as one from another process, says nothing.
TEST_F(CRing, WhatALayoutSaysOfColoursCountsBeforeTheCaps) {
  gpumap_ring ring = this->ring(1000, 4);
  auto layout = GPUMAP_INIT(gpumap_layout), got = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_NV12, 16, 8, &layout));
  ASSERT_OK(gpumap_ring_set_caps(
      ring, "video/x-raw,format=NV12,width=16,height=8,colorimetry=bt709,interlace-mode=interleaved"));
  for (const std::uint32_t own : {0U, 4U}) {
    layout.matrix = own;
    layout.range = own == 0 ? 0 : 1;
    layout.interlace = own == 0 ? 0 : 2;
    ASSERT_OK(gpumap_ring_set_layout(ring, &layout));
    send(ring, random_frame(layout.bytes, own));
    gpumap_slot slot = nullptr;
    ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
    ASSERT_OK(gpumap_slot_get_layout(slot, &got));
    EXPECT_EQ(got.matrix, own == 0 ? 3U : 4U);
    EXPECT_EQ(got.range, own == 0 ? 2U : 1U);
    EXPECT_EQ(got.interlace, own == 0 ? 1U : 2U);
    EXPECT_OK(gpumap_slot_release(slot, nullptr));
  }
  EXPECT_OK(gpumap_ring_close(ring));
}

// Each call on a slot ends in its own time, whatever another thread waits for meanwhile.
TEST_F(CRing, APublishThatWaitsHoldsNoOtherUp) {
  gpumap_ring ring = this->ring(100, 2);
  gpumap_slot slot = nullptr;
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
  alignas(8) std::uint64_t reached = 0;
  const gpumap_fence never = gpumap_counter_fence(&reached, 1);
  std::thread first([&] { EXPECT_EQ(gpumap_slot_publish(slot, nullptr, &never, GPUMAP_FOREVER), GPUMAP_STOPPED); });
  auto others = std::async(std::launch::async, [&] {
    for (int turn = 0; turn < 50; ++turn) {
      EXPECT_EQ(gpumap_slot_publish(slot, nullptr, &never, 1'000'000), GPUMAP_TIMEOUT);
      std::this_thread::sleep_for(1ms);  // the first one comes in, if it has not yet
    }
  });
  EXPECT_EQ(others.wait_for(std::chrono::nanoseconds(long_ns)), std::future_status::ready);
  EXPECT_OK(gpumap_ring_stop(ring));
  first.join();
  others.wait();
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CRing, StopEndsWaitsOfBothSides) {
  gpumap_ring ring = this->ring(100, 2);
  std::atomic<int> stopped{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&] {
      gpumap_slot slot = nullptr;
      if (gpumap_ring_take(ring, GPUMAP_FOREVER, &slot) == GPUMAP_STOPPED) ++stopped;
    });
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_OK(gpumap_ring_stop(ring));
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(stopped, 2);
  gpumap_slot slot = nullptr;
  EXPECT_EQ(gpumap_ring_take(ring, GPUMAP_FOREVER, &slot), GPUMAP_STOPPED);
  EXPECT_OK(gpumap_ring_resume(ring));
  send(ring, random_frame(100, 1));
  send(ring, random_frame(100, 2));
  std::thread producer([&] {
    gpumap_slot more = nullptr;
    EXPECT_EQ(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, GPUMAP_FOREVER, &more), GPUMAP_STOPPED);
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_OK(gpumap_ring_stop(ring));
  producer.join();
  EXPECT_OK(gpumap_ring_resume(ring));
  EXPECT_OK(gpumap_ring_take(ring, 0, &slot)) << "frames stay where they are";
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CRing, CloseEndsWaitsAndSlotsStay) {
  gpumap_ring ring = this->ring(100, 3);
  const auto sent = random_frame(100, 1);
  send(ring, sent);
  gpumap_slot taken = nullptr;
  gpumap_slot acquired = nullptr;
  ASSERT_OK(gpumap_ring_take(ring, 0, &taken));
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &acquired));
  std::thread waiting([&] {
    gpumap_slot slot = nullptr;
    expect_error(gpumap_ring_take(ring, GPUMAP_FOREVER, &slot), GPUMAP_ERROR_CLOSED, "gpumap_ring_close");
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_OK(gpumap_ring_close(ring));
  waiting.join();
  gpumap_slot slot = nullptr;
  expect_error(gpumap_ring_take(ring, 0, &slot), GPUMAP_ERROR_INVALID, "not open");
  EXPECT_EQ(content_of(taken), sent);
  EXPECT_OK(gpumap_slot_write(acquired, 0, sent.data(), sent.size()));
  EXPECT_OK(gpumap_slot_publish(acquired, nullptr, nullptr, 0));
  EXPECT_OK(gpumap_slot_release(taken, nullptr));
}

TEST_F(CRing, SlotsAreForWhatTheyWereGivenFor) {
  gpumap_ring ring = this->ring(100, 3);
  gpumap_slot slot = nullptr;
  unsigned char byte = 0;
  auto frame = GPUMAP_INIT(gpumap_frame_info);
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
  expect_error(gpumap_slot_get_frame(slot, &frame), GPUMAP_ERROR_INVALID, "no frame yet");
  EXPECT_EQ(gpumap_slot_caps(slot), nullptr);
  const gpumap_frame_info large = gpumap_frame_of(101);
  EXPECT_EQ(gpumap_slot_publish(slot, &large, nullptr, 0), GPUMAP_ERROR_INVALID) << "more than the slot has";
  expect_error(gpumap_slot_write(slot, 100, &byte, 1), GPUMAP_ERROR_INVALID, "ends behind");
  EXPECT_OK(gpumap_slot_publish(slot, nullptr, nullptr, 0)) << "it was still the caller's";
  expect_error(gpumap_slot_publish(slot, nullptr, nullptr, 0), GPUMAP_ERROR_INVALID, "not open");
  ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
  expect_error(gpumap_slot_publish(slot, nullptr, nullptr, 0), GPUMAP_ERROR_INVALID, "gpumap_ring_acquire");
  expect_error(gpumap_slot_write(slot, 0, &byte, 1), GPUMAP_ERROR_INVALID, "only read");
  EXPECT_OK(gpumap_slot_check(slot));
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_end(ring));
  EXPECT_OK(gpumap_ring_end(ring));
  expect_error(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot), GPUMAP_ERROR_CLOSED, "ended");
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CRing, EveryTransportCarriesFrames) {
  for (const std::uint32_t transport :
       {GPUMAP_TRANSPORT_BAR, GPUMAP_TRANSPORT_PINNED, GPUMAP_TRANSPORT_ZERO_COPY, GPUMAP_TRANSPORT_PAGEABLE}) {
    auto options = GPUMAP_INIT(gpumap_ring_options);
    options.slot_bytes = 70'001;
    options.transport = transport;
    gpumap_ring ring = nullptr;
    ASSERT_OK(gpumap_ring_create(device_, &options, &ring));
    auto info = GPUMAP_INIT(gpumap_ring_info);
    ASSERT_OK(gpumap_ring_get_info(ring, &info));
    EXPECT_EQ(info.transport, transport);
    EXPECT_EQ(info.slots, 8U);
    for (unsigned number = 0; number < 10; ++number) {
      const auto sent = random_frame(70'001 - number, number);
      send(ring, sent);
      gpumap_slot slot = nullptr;
      ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
      EXPECT_OK(gpumap_slot_wait(slot, nullptr, long_ns));
      EXPECT_EQ(content_of(slot), sent) << "transport " << transport;
      ASSERT_OK(gpumap_slot_release(slot, nullptr));
    }
    EXPECT_OK(gpumap_ring_close(ring));
  }
}

TEST_F(CRing, ManyThreadsOnEachSideLoseNothing) {
  gpumap_ring ring = this->ring(64, 8);
  constexpr std::uint32_t producers = 3;
  constexpr std::uint32_t each = 2000;
  std::atomic<std::uint64_t> sum{0};
  std::vector<std::thread> threads;
  for (std::uint32_t number = 0; number < producers; ++number) {
    threads.emplace_back([&, number] {
      for (std::uint32_t turn = 0; turn < each; ++turn) {
        gpumap_slot slot = nullptr;
        ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &slot));
        gpumap_frame_info info = gpumap_frame_of(64);
        info.user = number * each + turn;
        ASSERT_OK(gpumap_slot_publish(slot, &info, nullptr, 0));
      }
    });
    threads.emplace_back([&] {
      for (std::uint32_t turn = 0; turn < each; ++turn) {
        gpumap_slot slot = nullptr;
        ASSERT_OK(gpumap_ring_take(ring, long_ns, &slot));
        auto info = GPUMAP_INIT(gpumap_frame_info);
        ASSERT_OK(gpumap_slot_get_frame(slot, &info));
        sum += info.user;
        ASSERT_OK(gpumap_slot_release(slot, nullptr));
      }
    });
  }
  for (std::thread& one : threads) one.join();
  constexpr std::uint64_t all = std::uint64_t{producers} * each;
  EXPECT_EQ(sum, all * (all - 1) / 2);
  EXPECT_OK(gpumap_ring_close(ring));
}

}  // namespace
}  // namespace gpumap::test
