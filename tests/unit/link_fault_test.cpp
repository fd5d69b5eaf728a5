// SPDX-License-Identifier: MIT
// Consumers' kernels write where nothing is mapped, 100 times: each loses its GPU context, and costs nobody else
// anything. The producer never stops, a steady consumer on the same GPU misses nothing, all slots come back, also from
// a process that lives on with its lost context, and the next consumer soon has a frame that its GPU read.
//
// In CUDA an illegal address ends the context that it came from, for good, and with it all that the process has on this
// GPU. The memory that it imported is the producer's allocation: the driver takes down the faulty context's page tables
// and channels, and neither the memory nor other processes' contexts that map it. Not so under MPS, where processes
// share a GPU context's server: there a fault ends every client on that GPU. So this is no test for a GPU under MPS.
//
// Without CUDA the loss is made up, by a fence that is lost; the rest is the same.
//
// GPUMAP_LINK_FAULTS: how many (100 in CUDA, 6 without). GPUMAP_LINK_VICTIMS: how many start side by side (1); they are
// seen off in turn, so the times to slots back are then those of whom they wait for, too.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "link_child.hpp"
#include "link_figures.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

/// The goal is 1 s. What a loaded machine makes of it is printed, and fails where something hangs.
constexpr std::chrono::nanoseconds far_too_late = hangs;

/// Sends without a pause, and knows the longest one.
class Producer {
 public:
  Producer(LinkServer& server, Ring& ring) : thread_([this, &server, &ring] { run(server, ring); }) {}
  ~Producer() { stop(); }
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] std::uint64_t sent() const { return sent_; }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] std::chrono::nanoseconds longest() const { return std::chrono::nanoseconds(longest_ns_); }

 private:
  void run(LinkServer& server, Ring& ring) {
    std::int64_t before = monotonic_ns();
    while (!stopping_) {
      if (send_frame(server, ring, sent_) != RingStatus::ok) {
        failed_ = true;
        return;
      }
      ++sent_;
      const std::int64_t now = monotonic_ns();
      longest_ns_ = std::max<std::int64_t>(longest_ns_, now - before);
      before = now;
    }
  }

  std::atomic<bool> stopping_{false}, failed_{false};
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::int64_t> longest_ns_{0};
  std::thread thread_;
};

/// What a child has told so far.
std::map<std::string, std::int64_t> told_in(const std::filesystem::path& report) {
  std::map<std::string, std::int64_t> told;
  std::ifstream file(report);
  std::string name;
  for (std::int64_t number = 0; file >> name >> number;) told[name] = number;
  return told;
}
bool tells(const std::filesystem::path& report, const std::string& name) {
  return comes_true([&] { return told_in(report).count(name) > 0; });
}

struct Victim {
  std::string leaves;
  std::filesystem::path report;
  std::int64_t began_ns = monotonic_ns();
  std::unique_ptr<Child> child;
  [[nodiscard]] bool stays() const { return leaves == "lingers" || leaves == "holds"; }
};

struct Figures {
  Times opened, connected, first, back_from_dead, back_from_lost;
};

/// Until it is gone for the server, and as a process.
void see_off(Victim& victim, const LinkServer& server, Figures& figures) {
  const pid_t pid = victim.child->pid();
  // Each has its own time: on a busy machine that of all together is long.
  for (const char* step : {"opened", "connected", "first", "faulted"}) {
    ASSERT_TRUE(tells(victim.report, step)) << step << ", " << victim.leaves;
  }
  if (!victim.stays()) {
    ASSERT_EQ(victim.child->wait(), victim.leaves == "dies" ? "signal 9" : "exit 6") << victim.leaves;
  }
  ASSERT_TRUE(comes_true([&] { return !connected(server, pid); })) << victim.leaves;
  const std::int64_t gone_ns = monotonic_ns();
  ASSERT_TRUE(tells(victim.report, "lost")) << victim.leaves;
  // It is there still, with its lost context.
  if (victim.stays()) {
    victim.child->signal(SIGKILL);
    ASSERT_EQ(victim.child->wait(), "signal 9") << victim.leaves;
  }
  auto told = told_in(victim.report);
  const auto after_start = [&](const char* name) { return std::chrono::nanoseconds(told[name] - victim.began_ns); };
  figures.opened.add(after_start("opened"));
  figures.connected.add(after_start("connected"));
  figures.first.add(after_start("first"));
  Times& back = victim.stays() ? figures.back_from_lost : figures.back_from_dead;
  back.add(std::chrono::nanoseconds(gone_ns - told["faulted"]));
}

TEST(LinkFault, ConsumersLoseTheirGpuAndNobodyElseDoes) {
  const auto device = Device::open();
  const bool cuda = device->has(Backend::cuda);
  const unsigned faults = number_from("GPUMAP_LINK_FAULTS", cuda ? 100 : 6);
  const unsigned side_by_side = std::clamp(number_from("GPUMAP_LINK_VICTIMS", 1), 1U, max_link_clients - 1);
  std::printf("%s: GPUMAP_LINK_FAULTS=%u GPUMAP_LINK_VICTIMS=%u, faults %s\n", device->info().name.c_str(), faults,
              side_by_side, cuda ? "in CUDA" : "made up");
  // A made-up fault leaves the device well: nobody hears of it but who waits for the fence.
  std::vector<std::string> ways{"returns", "lingers", "exits", "dies"};
  if (cuda) ways.emplace_back("holds");

  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  const auto ring = Ring::create(device, {.slots = 8, .slot_bytes = 65'536 + 64, .transport = Transport::bar});
  auto server = LinkServer::serve(ring, {.path = path});
  Producer producer(*server, *ring);
  const std::filesystem::path steady_report = folder.path() / "steady";
  Child steady({"gpu", path, "0", steady_report});
  ASSERT_TRUE(tells(steady_report, "opened"));
  ASSERT_TRUE(tells(steady_report, "first"));

  const std::uint64_t window = device->window_free_bytes();
  std::size_t descriptors = 0, memfds = 0;
  Figures figures;
  const std::int64_t began_ns = monotonic_ns();
  for (unsigned begun = 0; begun < faults;) {
    std::vector<Victim> victims;
    for (; victims.size() < side_by_side && begun < faults; ++begun) {
      Victim& victim = victims.emplace_back();
      victim.leaves = ways[begun % ways.size()];
      victim.report = folder.path() / ("victim" + std::to_string(begun));
      // Each way with each policy, and few frames or many.
      const std::size_t leak = begun / ways.size() % 3;
      const unsigned count = 1 + begun * 7 % 40;
      victim.child = std::make_unique<Child>(std::vector<std::string>{
          "gpu-fault", path, std::to_string(count), std::to_string(leak), victim.leaves, victim.report});
    }
    for (Victim& victim : victims) {
      ASSERT_NO_FATAL_FAILURE(see_off(victim, *server, figures)) << "of " << begun << " victims";
    }
    ASSERT_FALSE(producer.failed()) << "after " << begun << " victims";
    if (descriptors != 0) continue;
    descriptors = open_descriptors();
    memfds = mapped_memfds();
  }
  const auto took = std::chrono::nanoseconds(monotonic_ns() - began_ns);
  // Those of the first victim may have been on their way out when they were counted.
  EXPECT_TRUE(comes_true([&] { return open_descriptors() <= descriptors && mapped_memfds() <= memfds; }))
      << open_descriptors() << " descriptors, " << descriptors << " before, " << mapped_memfds() << " memfds, "
      << memfds << " before";
  producer.stop();
  EXPECT_FALSE(producer.failed());
  EXPECT_EQ(server->clients().size(), 1U) << "the steady one";

  // The rest comes after a device is open, which is the driver's affair.
  figures.opened.print_and_check("start to its device open", patience);
  figures.connected.print_and_check("start to connected", patience + far_too_late);
  figures.first.print_and_check("start to its first frame verified (goal 1000 ms)", patience + far_too_late);
  figures.back_from_dead.print_and_check("fault, and the end of the process, to slots back", patience);
  if (figures.back_from_lost.any()) figures.back_from_lost.print_and_check("fault to slots back, the process lives");
  const auto ms = [](std::chrono::nanoseconds one) { return static_cast<double>(one.count()) / 1e6; };
  std::printf("%lu frames, %.0f a second while %u victims came and went; the longest time between two: %.3f ms\n",
              producer.sent(), static_cast<double>(producer.sent()) * 1e3 / ms(took), faults, ms(producer.longest()));
  std::printf("window free before and after: %lu, %lu bytes\n", window, device->window_free_bytes());
  EXPECT_LT(producer.longest(), far_too_late);

  std::vector<WriteLease> all(ring->slots());
  for (auto& lease : all) ASSERT_EQ(server->acquire(lease, WhenFull::block, soon()), RingStatus::ok);
  all.clear();
  const LinkCounters counters = server->counters();
  EXPECT_EQ(counters.liars, 0U);
  EXPECT_EQ(counters.connected, faults + 1);
  EXPECT_EQ(counters.disconnected, faults);
  server.reset();
  EXPECT_EQ(steady.wait(), "exit 0") << "3: a frame was torn";
  auto told = told_in(steady_report);
  EXPECT_EQ(told["missed"], 0);
  EXPECT_EQ(told["last"] + 1, static_cast<std::int64_t>(producer.sent()));
  EXPECT_EQ(validation_message_count(), 0U);
}

// The slots of a link in the device's own memory: another process imports them, and its GPU reads whole frames there.

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
