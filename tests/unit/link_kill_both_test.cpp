// SPDX-License-Identifier: MIT
// Producers and consumers of one path die in one random order, at every state and at any moment, up to 16 consumers at
// a time: the survivors continue, with the next producer where there is one; no frame is torn, none comes out of order,
// nothing is left behind and nothing grows. GPUMAP_LINK_KILLS says how many die, GPUMAP_LINK_SEED in which order.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
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
      const LinkNext what = consumer.next(lease, frame, soon());
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
