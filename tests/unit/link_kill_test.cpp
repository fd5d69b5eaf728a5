// SPDX-License-Identifier: MIT
// Processes of a link die, by SIGKILL, at every state and at any moment: every frame that arrives is whole, all slots
// come back, the survivors continue, nothing is left behind, and nothing grows. GPUMAP_LINK_KILLS says how many die,
// GPUMAP_LINK_SEED in which order; the seed is printed. GPUMAP_LINK_FRAMES: and on until so many frames were sent
// (0), of GPUMAP_LINK_BYTES (8192). How long the others took to hear of it is printed too, and fails only where it
// hangs: what a loaded machine does to 100 ms is no fault of the link.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "link_child.hpp"
#include "link_figures.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

unsigned seed() {
  static const unsigned once = number_from("GPUMAP_LINK_SEED", std::random_device()());
  return once;
}

TEST(LinkKill, ConsumersDieAndTheOthersMissNothing) {
  const unsigned kills = number_from("GPUMAP_LINK_KILLS", 40);
  const unsigned frames = number_from("GPUMAP_LINK_FRAMES", 0);
  std::printf("GPUMAP_LINK_SEED=%u GPUMAP_LINK_KILLS=%u\n", seed(), kills);
  std::mt19937 random(seed());
  const std::size_t bytes = number_from("GPUMAP_LINK_BYTES", 8192);
  Served served(12, {.max_clients = 16}, bytes);
  auto witness = served.consumer(LinkLeak::no, "witness");
  std::atomic<bool> stop{false}, all_sent{false};
  std::atomic<std::uint64_t> sent{0};
  std::thread producer([&] {
    while (!stop) {
      ASSERT_EQ(served.send(sent), RingStatus::ok) << "the producer is stuck";
      ++sent;
      if (sent % 64 == 0) std::this_thread::sleep_for(200us);
      if (sent % 499 == 0) served.go_on_with(link_ring(12, bytes + sent % 7 * 1000));
    }
  });
  std::uint64_t received = 0;
  std::thread reader([&] {
    ReadLease lease;
    LinkFrame frame;
    while (!all_sent || received < sent) {
      if (witness->next(lease, frame, Clock::now() + 100ms) != LinkNext::frame) continue;
      ASSERT_EQ(frame.info.sequence, received) << "a frame is missing";
      ASSERT_TRUE(is_whole(*witness, lease, frame)) << received;
      ++received;
    }
  });
  const std::size_t descriptors = open_descriptors();
  const std::size_t memfds = mapped_memfds();

  const std::vector<std::string> states{"connected",        "received", "half-read", "before-release",
                                        "kernel-in-flight", "released", "any",       "any"};
  std::vector<std::unique_ptr<Child>> children;
  Times reclaim;
  Resident resident;
  for (unsigned killed = 0; killed < kills || sent < frames;) {
    const bool spawn = children.size() < 15 && (children.empty() || random() % 2 == 0);
    if (spawn) {
      children.push_back(std::make_unique<Child>(
          std::vector<std::string>{"consume", served.path, std::to_string(random()), states[random() % states.size()],
                                   std::to_string(random() % 200), std::to_string(random() % 3)}));
      continue;
    }
    const std::size_t which = random() % children.size();
    // Some are killed as they start, some where they kill themselves, some in between.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const pid_t pid = children[which]->pid();
    const Deadline began = Clock::now();
    children[which]->signal(SIGKILL);
    ASSERT_EQ(children[which]->wait(), "signal 9") << "a frame was torn, or nothing could be had";
    children.erase(children.begin() + static_cast<std::ptrdiff_t>(which));
    while (connected(*served.server, pid) && Clock::now() - began < hangs) std::this_thread::sleep_for(50us);
    reclaim.add(Clock::now() - began);
    resident.look(++killed, kills);
  }
  children.clear();
  EXPECT_TRUE(comes_true([&] { return served.server->clients().size() == 1; }));
  stop = true;
  producer.join();
  all_sent = true;  // a frame is sent before it is counted
  reader.join();
  reclaim.print_and_check("consumer killed to slots back");
  resident.print_and_check();
  const LinkCounters counters = served.server->counters();
  std::printf("%lu frames, %lu clients came, %lu went, the longest reclaim by itself took %.3f ms\n", sent.load(),
              counters.connected, counters.disconnected, static_cast<double>(counters.longest_reclaim_ns) / 1e6);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(counters.liars, 0U);
  EXPECT_TRUE(comes_true([&] { return open_descriptors() <= descriptors && mapped_memfds() <= memfds; }))
      << open_descriptors() << " descriptors, " << descriptors << " before, " << mapped_memfds() << " memfds, "
      << memfds;
  witness.reset();
  std::vector<WriteLease> all(served.ring->slots());
  for (auto& lease : all) EXPECT_EQ(served.server->acquire(lease, WhenFull::block, soon()), RingStatus::ok);
}

TEST(LinkKill, ProducersDieAndNoHalfFrameArrives) {
  const unsigned kills = std::max(number_from("GPUMAP_LINK_KILLS", 40) / 2, 1U);
  std::printf("GPUMAP_LINK_SEED=%u, %u producers\n", seed(), kills);
  std::mt19937 random(seed() + 1);
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> died_ns{0};
  std::atomic<std::uint64_t> frames{0};
  std::atomic<std::uint64_t> connections{0};
  std::atomic<unsigned> have_read{0};
  Times noticed;
  const std::size_t descriptors = open_descriptors();
  const std::size_t memfds = mapped_memfds();
  const auto consume = [&](LinkLeak leak) {
    std::uint64_t before = 0;
    bool has_read = false;
    while (!stop) {
      LinkConsumerOptions options;
      options.path = path;
      options.leak = leak;
      options.patience = patience;
      options.cancel = &stop;
      std::unique_ptr<LinkConsumer> consumer;
      try {
        consumer = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
      } catch (const Error& error) {
        ASSERT_TRUE(stop || error.code() == ErrorCode::not_found || error.code() == ErrorCode::busy) << error.what();
        continue;
      }
      ++connections;
      EXPECT_NE(consumer->generation(), before) << "a dead server's";
      before = consumer->generation();
      ReadLease lease;
      LinkFrame frame;
      std::uint64_t last = 0;
      for (std::uint64_t seen = 0;; ++seen) {
        const LinkNext next = consumer->next(lease, frame, soon());
        if (next == LinkNext::closed) break;
        if (next == LinkNext::ring) continue;
        ASSERT_EQ(next, LinkNext::frame);
        ASSERT_TRUE(is_whole(*consumer, lease, frame)) << "half a frame: " << frame.info.sequence;
        if (seen > 0) {
          ASSERT_GT(frame.info.sequence, last);
        }
        last = frame.info.sequence;
        ++frames;
        if (!std::exchange(has_read, true)) ++have_read;
      }
      const std::int64_t died = died_ns;
      if (died > 0) noticed.add(std::chrono::nanoseconds(monotonic_ns() - died));
    }
  };
  std::vector<std::thread> consumers;
  for (const LinkLeak leak : {LinkLeak::no, LinkLeak::oldest, LinkLeak::newest}) consumers.emplace_back(consume, leak);
  const std::vector<std::string> states{"not-yet-serving", "leased",    "half-written", "written",
                                        "published",       "handed-on", "any",          "any"};
  {
    // One that nothing happens to until all have read: so much memory they need, and frames have come.
    Child first({"produce", path, "1", "any", "0"});
    EXPECT_TRUE(comes_true([&] { return have_read == consumers.size(); })) << have_read;
  }
  Resident resident;
  for (unsigned killed = 0; killed < kills; resident.look(++killed, kills)) {
    const std::string& state = states[random() % states.size()];
    died_ns = 0;
    Child producer({"produce", path, std::to_string(random()), state, std::to_string(random() % 300)});
    if (state == "any") {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
      died_ns = monotonic_ns();
      producer.signal(SIGKILL);
    }
    ASSERT_EQ(producer.wait(), "signal 9") << state;
    if (died_ns == 0) died_ns = monotonic_ns();
    // Half of the next ones come at once: what this one left must not be in their way.
    if (killed % 2 == 0) std::this_thread::sleep_for(20ms);
  }
  std::this_thread::sleep_for(20ms);
  stop = true;
  for (auto& consumer : consumers) consumer.join();
  // Who sees the end before its time was taken here has none to tell of: that may be all of a few.
  if (noticed.any()) noticed.print_and_check("producer killed to closed");
  std::printf("%u producers died, %lu frames on %lu connections\n", kills, frames.load(), connections.load());
  resident.print_and_check();
  EXPECT_GT(frames, 0U);
  EXPECT_TRUE(comes_true([&] { return open_descriptors() <= descriptors && mapped_memfds() <= memfds; }))
      << open_descriptors() << " descriptors, " << descriptors << " before, " << mapped_memfds() << " memfds, "
      << memfds;
}

TEST(LinkKill, StoppedConsumerIsCutOffAndSeesNoTornFrame) {
  Served served(3, {.stall_limit = 100ms});
  Child stopped({"consume", served.path, "1", "any", "0", "0"});
  ASSERT_TRUE(served.server->wait_for_client(soon()));
  for (std::uint64_t n = 0; n < 100; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
  stopped.signal(SIGSTOP);
  for (std::uint64_t n = 100; n < 200; ++n) ASSERT_EQ(served.send(n), RingStatus::ok) << n;
  EXPECT_TRUE(served.server->clients().empty());
  stopped.signal(SIGCONT);
  EXPECT_EQ(stopped.wait(), "exit 0") << "closed; 3 is a torn frame";
}

TEST(LinkKill, ChildOfADeadConsumerKeepsNothing) {
  testing::internal::CaptureStderr();
  Served served(2);
  Child consumer({"orphan", served.path, served.folder.path()});
  ASSERT_TRUE(served.server->wait_for_client(soon()));
  ASSERT_EQ(served.send(0), RingStatus::ok);
  ASSERT_EQ(consumer.wait(), "signal 9");
  EXPECT_TRUE(comes_true([&] { return served.server->clients().empty(); })) << "the child's descriptor counts";
  pid_t child = 0;
  std::ifstream(served.folder.path() / "pid") >> child;
  ASSERT_GT(child, 0);
  EXPECT_EQ(kill(child, 0), 0) << "it ended, so nothing was shown";
  EXPECT_EQ(kill(child, SIGKILL), 0);
  served.server.reset();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "an end is no fault, however it is seen";
}

TEST(LinkKill, AnotherUserIsRefusedUnlessAllowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t nobody = 65534;
  for (const bool allowed : {false, true}) {
    LinkServerOptions options;
    options.mode = 0666;
    if (allowed) options.allowed_users = {nobody};
    Served served(2, options);
    std::filesystem::permissions(served.folder.path(), std::filesystem::perms(0755));
    Child stranger({"stranger", served.path, std::to_string(nobody)});
    EXPECT_EQ(stranger.wait(), allowed ? "exit 0" : "exit 4");
    EXPECT_EQ(served.server->counters().refused, allowed ? 0U : 1U);
  }
}

// Producers and consumers of one path die in one random order, at every state and at any moment, up to 16 consumers at
// a time: the survivors continue, with the next producer where there is one; no frame is torn, none comes out of order,
// nothing is left behind and nothing grows. GPUMAP_LINK_KILLS says how many die, GPUMAP_LINK_SEED in which order.

using namespace test;  // NOLINT: the tests' own words

/// A consumer in this process, which connects to one producer after the other and checks what comes.
class Witness {
 public:
  explicit Witness(std::string path) : path_(std::move(path)), thread_([this] { run(); }) {}
  ~Witness() { stop(); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] std::uint64_t frames() const { return frames_; }
  [[nodiscard]] std::uint64_t connections() const { return connections_; }

 private:
  void run() {
    while (!stop_) {
      LinkConsumerOptions options;
      options.path = path_;
      options.name = "witness";
      options.leak = LinkLeak::no;
      std::unique_ptr<LinkConsumer> consumer;
      try {
        consumer = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
      } catch (const Error& error) {
        // Nobody is there: not with the growing pauses of a patient one, which would miss most producers.
        ASSERT_TRUE(error.code() == ErrorCode::not_found || error.code() == ErrorCode::busy) << error.what();
        std::this_thread::sleep_for(2ms);
        continue;
      }
      ++connections_;
      take_all(*consumer);
    }
  }
  /// Until the producer is gone.
  void take_all(LinkConsumer& consumer) {
    ReadLease lease;
    LinkFrame frame;
    std::uint64_t next = 0;
    for (bool first = true;; first = false) {
      LinkNext what = LinkNext::ring;
      while (what == LinkNext::ring) what = consumer.next(lease, frame, soon());
      if (what == LinkNext::closed) return;
      ASSERT_EQ(what, LinkNext::frame) << "the producer hangs";
      ASSERT_TRUE(is_whole(consumer, lease, frame)) << frame.info.sequence;
      if (!first) {
        ASSERT_EQ(frame.info.sequence, next) << "a frame is missing";
      }
      next = frame.info.sequence + 1;
      ++frames_;
    }
  }

  const std::string path_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> frames_{0}, connections_{0};
  std::thread thread_;
};

TEST(LinkKillBoth, ProducersAndConsumersDieInOneOrder) {
  const unsigned kills = number_from("GPUMAP_LINK_KILLS", 40);
  const unsigned seed = number_from("GPUMAP_LINK_SEED", std::random_device()());
  std::printf("GPUMAP_LINK_SEED=%u GPUMAP_LINK_KILLS=%u\n", seed, kills);
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  const std::size_t descriptors = open_descriptors();
  const std::size_t memfds = mapped_memfds();
  Witness witness(path);

  const std::vector<std::string> of_producers{"not-yet-serving", "leased",    "half-written", "written",
                                              "published",       "handed-on", "any",          "any"};
  const std::vector<std::string> of_consumers{"connected",        "received", "half-read", "before-release",
                                              "kernel-in-flight", "released", "any",       "any"};
  std::unique_ptr<Child> producer;
  std::vector<std::unique_ptr<Child>> consumers;
  Resident resident;
  unsigned producers_died = 0, consumers_died = 0, consumers_outlived = 0;
  std::size_t most = 0;
  while (producers_died + consumers_died < kills) {
    resident.look(producers_died + consumers_died, kills);
    if (!producer) {
      producer = std::make_unique<Child>(std::vector<std::string>{
          "produce", path, std::to_string(random()), of_producers[random() % 8], std::to_string(random() % 300)});
      continue;
    }
    if (consumers.empty() || (consumers.size() < 15 && random() % 2 == 0)) {
      consumers.push_back(std::make_unique<Child>(
          std::vector<std::string>{"consume", path, std::to_string(random()), of_consumers[random() % 8],
                                   std::to_string(random() % 200), std::to_string(random() % 3)}));
      most = std::max(most, consumers.size() + 1);
      continue;
    }
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    if (random() % 2 == 0) {
      // Whichever process died before: frames continue, unless the producer's own end has come.
      const std::uint64_t before = witness.frames();
      ASSERT_TRUE(comes_true([&] { return witness.frames() > before || !producer->runs(); })) << "no frame comes";
    }
    if (random() % 4 == 0) {
      producer->signal(SIGKILL);
      ASSERT_EQ(producer->wait(), "signal 9") << "a consumer that died stopped the producer";
      producer.reset();
      ++producers_died;
      continue;
    }
    const std::size_t which = random() % consumers.size();
    consumers[which]->signal(SIGKILL);
    const std::string end = consumers[which]->wait();
    // Whose producer died first, has ended by itself: all that it had was whole.
    ASSERT_TRUE(end == "signal 9" || end == "exit 0") << end;
    ++(end == "exit 0" ? consumers_outlived : consumers_died);
    consumers.erase(consumers.begin() + static_cast<std::ptrdiff_t>(which));
  }
  // After all of that, a producer at once has a consumer, and its frames arrive.
  producer.reset();
  producer = std::make_unique<Child>(std::vector<std::string>{"produce", path, "1", "any", "0"});
  const Deadline began = Clock::now();
  const std::uint64_t before = witness.frames();
  EXPECT_TRUE(comes_true([&] { return witness.frames() > before; }));
  std::printf(
      "%u producers and %u consumers died, up to %zu consumers at a time, %u consumers ended with their producer; "
      "%lu frames on %lu connections; the last producer's first frame after %.1f ms\n",
      producers_died, consumers_died, most, consumers_outlived, witness.frames(), witness.connections(),
      std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  consumers.clear();
  producer.reset();
  witness.stop();
  resident.print_and_check();
  EXPECT_TRUE(comes_true([&] { return open_descriptors() <= descriptors && mapped_memfds() <= memfds; }))
      << open_descriptors() << " descriptors, " << descriptors << " before, " << mapped_memfds() << " memfds, "
      << memfds;
}

}  // namespace
}  // namespace gpumap
