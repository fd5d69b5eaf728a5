// SPDX-License-Identifier: MIT
// The slots of a link in the device's own memory: another process imports them, and its GPU reads whole frames there.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "link_child.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

std::shared_ptr<Ring> device_ring(const std::shared_ptr<Device>& device, Transport transport) {
  return Ring::create(device, {.slots = 4, .slot_bytes = 65'536 + 64, .transport = transport});
}

TEST(LinkDevice, AnotherProcessLetsItsGpuReadTheSlots) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  const auto device = Device::open();
  const auto ring = device_ring(device, Transport::bar);
  const auto server = LinkServer::serve(ring, {.path = path});
  constexpr std::uint64_t frames = 200;
  Child one({"gpu", path, std::to_string(frames), ""});
  Child two({"gpu", path, std::to_string(frames), ""});
  // Each has to open its device first.
  ASSERT_TRUE(server->wait_for_client(soon()));
  ASSERT_TRUE(comes_true([&] { return server->clients().size() == 2; }));
  for (std::uint64_t n = 0; n < frames; ++n) ASSERT_EQ(send_frame(*server, *ring, n), RingStatus::ok) << n;
  EXPECT_EQ(one.wait(), "exit 0") << "3: a frame was torn";
  EXPECT_EQ(two.wait(), "exit 0");
  EXPECT_EQ(validation_message_count(), 0U);
}

TEST(LinkDevice, TheSameProcessMayImportToo) {
  const TemporaryFolder folder;
  const auto device = Device::open();
  const auto ring = device_ring(device, Transport::bar);
  const auto server = LinkServer::serve(ring, {.path = folder.path() / "link"});
  LinkConsumerOptions options;
  options.path = server->path();
  options.patience = patience;
  auto consumer = LinkConsumer::connect(device, options);
  ASSERT_EQ(send_frame(*server, *ring), RingStatus::ok);
  ReadLease lease;
  LinkFrame frame;
  ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::frame);
  std::vector<std::byte> bytes(frame.info.bytes);
  consumer->ring()->mapping()->download(lease.offset(), bytes);
  EXPECT_EQ(torn_at(bytes.data(), bytes.size(), 0, lease.slot()), bytes.size());
}

// A consumer that follows a producer has no device to choose: it is the one that the producer has.
TEST(LinkDevice, OfTheServerIsOpenedWhereNoneIsNamed) {
  const TemporaryFolder folder;
  const auto device = Device::open();
  const auto ring = device_ring(device, Transport::bar);
  const auto server = LinkServer::serve(ring, {.path = folder.path() / "link"});
  LinkConsumerOptions options;
  options.path = server->path();
  options.patience = patience;
  const auto consumer = LinkConsumer::connect(options);
  EXPECT_EQ(consumer->ring()->device()->info().uuid, device->info().uuid);
}

TEST(LinkDevice, WhatCannotCrossSaysSo) {
  const TemporaryFolder folder;
  const auto device = Device::open();
  for (const Transport transport : {Transport::pinned, Transport::zero_copy, Transport::pageable}) {
    const auto ring = device_ring(device, transport);
    const std::string text =
        error_text([&] { (void)LinkServer::serve(ring, {.path = folder.path() / "link"}); }, ErrorCode::not_supported);
    EXPECT_NE(text.find("transport=bar"), std::string::npos) << text;
  }
  // A consumer without that GPU.
  const auto ring = device_ring(device, Transport::bar);
  const auto server = LinkServer::serve(ring, {.path = folder.path() / "link"});
  LinkConsumerOptions options;
  options.path = server->path();
  options.patience = patience;
  const std::string text = error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); },
                                      ErrorCode::not_supported);
  EXPECT_NE(text.find("choose the same device"), std::string::npos) << text;
  EXPECT_TRUE(comes_true([&] { return server->clients().empty(); })) << "it left nothing behind";
}

}  // namespace
}  // namespace gpumap
