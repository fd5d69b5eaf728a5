// SPDX-License-Identifier: MIT
// link: what a link between processes costs, through the library alone, without GStreamer:
//   rate    frames of 64 bytes a second, both sides spinning, from one thread to another and from one process to
//   another cost    what the producer pays for each further consumer: its time in LinkServer::acquire() and publish()
//   copy    1080p NV12 copied into the slots of a link, beside the same stores into the same memory without one
//   wakes   system calls that wake sleeping consumers, a frame
// Each case takes its ways in turns. The consumers are processes of their own, that check each frame's number. Not
// measured: kernels, and the elements (gpumap-latency --processes 2). Means show the scheduler too where there are
// fewer cores than processes that spin; medians do not.
#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>

#include "../../../tests/unit/fake_device.hpp"
#include "../../../tests/unit/temporary_folder.hpp"
#include "bench.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"
#include "gpumap/link.hpp"

namespace bench {
namespace {

using namespace gpumap;  // NOLINT
using namespace std::chrono_literals;

constexpr auto patience = 60s;
constexpr std::size_t small_bytes = 64;
constexpr std::size_t picture_bytes = 1920 * 1080 * 3 / 2;

constexpr unsigned slots = 64;

struct Frames {
  unsigned rounds, rate, cost, copy, wakes;
};
constexpr Frames many{.rounds = 5, .rate = 1'000'000, .cost = 50'000, .copy = 300, .wakes = 500};
constexpr Frames few{.rounds = 2, .rate = 3001, .cost = 501, .copy = 5, .wakes = 20};

/// What one consumer tells; shared by the processes.
struct Taken {
  std::atomic<std::uint64_t> frames, wrong;
  std::atomic<std::int64_t> first_ns, last_ns;
  /// Called for each frame: the clock is read for the first and the last alone.
  void add(std::uint64_t number, const std::byte* content, std::uint64_t all) {
    const std::uint64_t seen = frames.load(std::memory_order_relaxed);
    if (seen == 0) first_ns = now_ns();
    std::uint64_t written = seen;
    if (content != nullptr) std::memcpy(&written, content, sizeof written);
    if (number != seen || written != seen) wrong.fetch_add(1, std::memory_order_relaxed);
    if (seen + 1 == all) last_ns = now_ns();
    frames.store(seen + 1, std::memory_order_release);
  }
  [[nodiscard]] double per_second() const {
    return static_cast<double>(frames - 1) * 1e9 / static_cast<double>(last_ns - first_ns);
  }
};
using Shared = std::array<Taken, max_link_clients>;

Shared& shared_memory(int& descriptor) {
  return *static_cast<Shared*>(map_shared(descriptor, sizeof(Shared)));
}

/// In ordinary memory, which other processes map.
std::shared_ptr<Ring> make_ring(std::uint32_t number, std::size_t bytes) {
  const std::size_t stride = (bytes + 4095) / 4096 * 4096;
  return Ring::create(std::make_shared<test::FakeDevice>(), make_link_memory(stride * number),
                      {.slots = number, .slot_bytes = bytes, .transport = Transport::zero_copy, .spin = 50ms});
}

const std::byte* content_of(const Ring& ring, const ReadLease& lease) {
  return ring.mapping()->host() + lease.offset();
}

/// A server with so many consumers in other processes, for `frames` frames.
class Served {
 public:
  Served(int memory, Shared& shared, std::shared_ptr<Ring> ring, unsigned consumers, std::uint64_t frames,
         std::chrono::microseconds spin)
      : shared_(shared), frames_(frames), ring_(std::move(ring)) {
    LinkServerOptions how;
    how.path = folder_.path() / "link";
    how.linger = patience;
    server_ = LinkServer::serve(ring_, how);
    for (Taken& one : shared) new (&one) Taken{};
    for (unsigned n = 0; n < consumers; ++n) {
      processes_.push_back(std::make_unique<Child>(
          std::vector<std::string>{"--consume", how.path, std::to_string(memory), std::to_string(n),
                                   std::to_string(frames), std::to_string(spin.count())}));
    }
    for (const Deadline end = Clock::now() + patience; server_->clients().size() < consumers;) {
      if (Clock::now() > end) throw std::runtime_error("the consumers do not come");
      std::this_thread::sleep_for(1ms);
    }
  }
  LinkServer& server() { return *server_; }
  WriteLease acquire() {
    WriteLease lease;
    if (server_->acquire(lease, WhenFull::block, Clock::now() + patience) != RingStatus::ok) {
      throw std::runtime_error("no slot came back");
    }
    return lease;
  }
  /// Until all have taken so many frames: on a busy machine they come to sleep later.
  void await(std::uint64_t frames) const {
    for (const Deadline end = Clock::now() + patience; Clock::now() < end; std::this_thread::sleep_for(100us)) {
      const auto there = [&](std::size_t n) { return shared_[n].frames.load(std::memory_order_acquire) >= frames; };
      std::size_t n = 0;
      while (n < processes_.size() && there(n)) ++n;
      if (n == processes_.size()) return;
    }
    throw std::runtime_error("a consumer takes no frames");
  }
  /// All was taken, by all, in order.
  void finish() {
    server_.reset();
    for (unsigned n = 0; n < processes_.size(); ++n) {
      // Ends: a consumer does with its server.
      if (const int status = processes_[n]->wait(); status != 0) {
        throw std::runtime_error(fmt::format("a consumer ended with status {}", status));
      }
      const Taken& one = shared_[n];
      if (one.frames != frames_ || one.wrong != 0) {
        throw std::runtime_error(fmt::format("consumer {} got {} of {} frames, {} of them wrong", n, one.frames.load(),
                                             frames_, one.wrong.load()));
      }
    }
  }

 private:
  Shared& shared_;
  const std::uint64_t frames_;
  const TemporaryFolder folder_;
  std::shared_ptr<Ring> ring_;
  std::vector<std::unique_ptr<Child>> processes_;
  std::unique_ptr<LinkServer> server_;
};

void write_small(const WriteLease& lease, std::uint64_t number) {
  std::array<std::uint64_t, small_bytes / sizeof(number)> content{number};
  std::memcpy(lease.host(), content.data(), small_bytes);
}

class Links {
 public:
  Links(const Frames& frames, ModeReport& report) : frames_(frames), report_(report), shared_(shared_memory(memory_)) {}

  double rate_of_ring() {
    const auto ring = make_ring(slots, small_bytes);
    const unsigned frames = frames_.rate;
    new (&shared_[0]) Taken{};
    std::thread consumer([&] {
      ReadLease lease;
      while (ring->receive(lease) == RingStatus::ok) {
        shared_[0].add(lease.info().sequence, content_of(*ring, lease), frames);
      }
    });
    for (std::uint64_t n = 0; n < frames; ++n) {
      WriteLease lease;
      if (ring->acquire(lease) != RingStatus::ok) throw std::runtime_error("no slot came back");
      write_small(lease, n);
      ring->publish(lease, {.bytes = small_bytes});
    }
    ring->close_producer();
    // Ends: it takes what a closed ring has left.
    consumer.join();
    if (shared_[0].frames != frames || shared_[0].wrong != 0) throw std::runtime_error("frames are missing or wrong");
    return shared_[0].per_second();
  }
  double rate_of_link() {
    Served served(memory_, shared_, make_ring(slots, small_bytes), 1, frames_.rate, 50ms);
    for (std::uint64_t n = 0; n < frames_.rate; ++n) {
      WriteLease lease = served.acquire();
      write_small(lease, n);
      served.server().publish(lease, {.bytes = small_bytes});
    }
    served.finish();
    return shared_[0].per_second();
  }
  /// Both sides spin. A row's times are of a frame, each of a round.
  void rate() {
    std::vector<std::int64_t> one, two;
    const auto a_frame = [](double per_second) { return static_cast<std::int64_t>(1e12 / per_second); };  // ps
    for (unsigned round = 0; round < frames_.rounds; ++round) {
      one.push_back(a_frame(rate_of_ring()));
      two.push_back(a_frame(rate_of_link()));
    }
    add("one process", "rate", small_bytes, one, true).time /= 1000;
    add("two processes", "rate", small_bytes, two, false).time /= 1000;
  }

  struct Cost {
    unsigned consumers;
    std::vector<std::int64_t> acquire_ns{}, publish_ns{}, both_ns{};
    std::uint64_t wakes = 0;
  };
  void cost_of(Cost& cost) {
    const unsigned frames = frames_.cost;
    // A consumer that finds nothing for this time sleeps: there may be more consumers than cores. Waking them is in few
    // of the times.
    Served served(memory_, shared_, make_ring(slots, small_bytes), cost.consumers, frames, 200us);
    std::vector<std::int64_t> ns;
    for (std::uint64_t n = 0; n < frames; ++n) {
      const std::int64_t before = now_ns();
      WriteLease lease = served.acquire();
      const std::int64_t acquired = now_ns();
      write_small(lease, n);
      const std::int64_t written = now_ns();
      served.server().publish(lease, {.bytes = small_bytes});
      ns.push_back(now_ns() - written);
      cost.acquire_ns.push_back(acquired - before);
      cost.both_ns.push_back(acquired - before + ns.back());
    }
    cost.wakes += served.server().counters().wakes;
    served.finish();
    cost.publish_ns.insert(cost.publish_ns.end(), ns.begin(), ns.end());
  }
  void cost() {
    std::vector<Cost> costs{{1}, {2}, {4}};
    for (unsigned round = 0; round < frames_.rounds; ++round) {
      for (Cost& one : costs) cost_of(one);
    }
    double first_us = 0;
    for (Cost& one : costs) {
      const std::string path = fmt::format("consumers: {}", one.consumers);
      const auto frames = static_cast<double>(one.publish_ns.size());
      add(path, "acquire", small_bytes, one.acquire_ns, false);
      add(path, "both", small_bytes, one.both_ns, false);
      const double publish_us = add(path, "publish", small_bytes, one.publish_ns, false).time.median_us;
      if (one.consumers == 1) first_us = publish_us;
      report_.extra["cost"].push_back(
          {{"consumers", one.consumers},
           {"more_publish_ns_each", (publish_us - first_us) * 1e3 / std::max(1U, one.consumers - 1)},
           {"wakes_a_frame", static_cast<double>(one.wakes) / frames}});
    }
  }

  /// Times are of a frame, each of a round.
  void copy() {
    // More than a cache holds, as a camera's frames are.
    std::vector<std::vector<std::byte>> sources(8, std::vector<std::byte>(picture_bytes, std::byte{1}));
    const unsigned frames = frames_.copy;
    const auto fill = [&](std::byte* to, std::uint64_t n) {
      std::vector<std::byte>& from = sources[n % sources.size()];
      std::memcpy(from.data(), &n, sizeof n);
      stream_copy(to, from.data(), picture_bytes);
      store_fence();
    };
    // The first eight make the pages, and do not count.
    const auto bare = [&](const std::shared_ptr<Ring>& ring) {
      std::int64_t began = 0;
      for (unsigned n = 0; n < frames + 8; ++n) {
        if (n == 8) began = now_ns();
        fill(ring->mapping()->host() + n % 8 * ring->slot_stride(), n);
      }
      return (now_ns() - began) / frames;
    };
    const auto linked = [&](const std::shared_ptr<Ring>& ring, std::chrono::microseconds spin) {
      Served served(memory_, shared_, ring, 1, frames + 8, spin);
      std::int64_t began = 0;
      for (unsigned n = 0; n < frames + 8; ++n) {
        if (n == 8) began = now_ns();
        WriteLease lease = served.acquire();
        fill(lease.host(), n);
        served.server().publish(lease, {.bytes = picture_bytes});
      }
      const std::int64_t result = (now_ns() - began) / frames;
      served.finish();
      return result;
    };
    std::vector<std::int64_t> alone, sleeping, spinning;
    for (unsigned round = 0; round < frames_.rounds; ++round) {
      alone.push_back(bare(make_ring(8, picture_bytes)));
      sleeping.push_back(linked(make_ring(8, picture_bytes), 0us));
      spinning.push_back(linked(make_ring(8, picture_bytes), 50ms));
    }
    add("bare stores", "copy", picture_bytes, alone, true).rate = true;
    add("consumer sleeps", "copy", picture_bytes, sleeping, false).rate = true;
    add("consumer spins", "copy", picture_bytes, spinning, false).rate = true;
    report_.extra["store_kernel"] = stream_copy_name();
  }

  /// Consumers sleep between frames.
  void wakes() {
    for (const unsigned consumers : {1U, 2U, 4U}) {
      const unsigned frames = frames_.wakes;
      Served served(memory_, shared_, make_ring(slots, small_bytes), consumers, frames, 0us);
      for (std::uint64_t n = 0; n < frames; ++n) {
        served.await(n);
        std::this_thread::sleep_for(1ms);
        WriteLease lease = served.acquire();
        write_small(lease, n);
        served.server().publish(lease, {.bytes = small_bytes});
      }
      const double a_frame = static_cast<double>(served.server().counters().wakes) / frames;
      served.finish();
      report_.extra["wakes"].push_back({{"consumers", consumers}, {"frames", frames}, {"wakes_a_frame", a_frame}});
    }
  }

 private:
  Row& add(const std::string& path, const char* detail, std::size_t bytes, std::vector<std::int64_t>& ns, bool rival) {
    return report_.add({.path = path, .detail = detail, .bytes = bytes, .rival = rival}, ns);
  }

  const Frames& frames_;
  ModeReport& report_;
  int memory_ = -1;
  Shared& shared_;
};

}  // namespace

int consume(const std::vector<std::string>& words) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int memory = std::stoi(words.at(1));
  Taken& taken = shared_memory(memory).at(std::stoul(words.at(2)));
  const std::uint64_t frames = std::stoull(words.at(3));
  LinkConsumerOptions how;
  how.path = words.at(0);
  how.leak = LinkLeak::no;
  how.spin = std::chrono::microseconds(std::stoul(words.at(4)));
  how.patience = patience;
  const auto consumer = LinkConsumer::connect(std::make_shared<test::FakeDevice>(), how);
  ReadLease lease;
  LinkFrame frame;
  for (;;) {
    const LinkNext next = consumer->next(lease, frame, Clock::now() + patience);
    if (next == LinkNext::closed) return 0;
    if (next != LinkNext::frame) return 2;
    taken.add(frame.info.sequence, content_of(*consumer->ring(), lease), frames);
  }
}

void run_link(Context& context, ModeReport& report) {
  report.what =
      "a link between processes, in ordinary memory, a frame: by rate, of the producer's calls, and of 1080p copied by "
      "it";
  report.not_measured = {"kernels, and the elements: see gpumap-latency --processes 2",
                         "means without the scheduler, where there are fewer cores than processes that spin"};
  Links links(context.options.quick ? few : many, report);
  links.rate();
  links.cost();
  links.copy();
  links.wakes();
}

}  // namespace bench
