// SPDX-License-Identifier: MIT
// What a link between processes costs, through the library alone, without GStreamer:
//   rate    frames of 64 bytes a second, both sides spinning, from one thread to another and from one process to
//   another cost    what the producer pays for each further consumer: its time in LinkServer::acquire() and publish()
//   copy    1080p NV12 copied into the slots of a link, beside the same stores into the same memory without one
//   wakes   system calls that wake sleeping consumers, a frame
// Each case takes its ways in turns. The consumers are processes of their own, that check each frame's number. Not
// measured: kernels, and the elements (gpumap-latency --processes 2). Means show the scheduler too where there are
// fewer cores than processes that spin; medians do not.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <system_error>
#include <thread>

#include "../unit/fake_device.hpp"
#include "../unit/temporary_folder.hpp"
#include "figures.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"
#include "gpumap/link.hpp"

namespace {

using namespace gpumap;  // NOLINT
using namespace std::chrono_literals;

constexpr auto patience = 60s;
constexpr std::size_t small_bytes = 64;
constexpr std::size_t picture_bytes = 1920 * 1080 * 3 / 2;

struct Options {
  std::vector<std::string> cases{"rate", "cost", "copy", "wakes"};
  std::string device = "host", json, commit, path;
  unsigned slots = 64, rounds = 5, rate_frames = 1'000'000, cost_frames = 50'000, copy_frames = 300, wake_frames = 500;
  int memory = -1;  ///< of a consumer that this program starts, as what follows
  unsigned number = 0, spin_us = 0;
  std::uint64_t frames = 0;
};

/// What one consumer tells; shared by the processes.
struct Taken {
  std::atomic<std::uint64_t> frames, wrong;
  std::atomic<std::int64_t> first_ns, last_ns;
  /// Called for each frame: the clock is read for the first and the last alone.
  void add(std::uint64_t number, const std::byte* content, std::uint64_t all) {
    const std::uint64_t seen = frames.load(std::memory_order_relaxed);
    if (seen == 0) first_ns = bench::now_ns();
    std::uint64_t written = seen;
    if (content != nullptr) std::memcpy(&written, content, sizeof written);
    if (number != seen || written != seen) wrong.fetch_add(1, std::memory_order_relaxed);
    if (seen + 1 == all) last_ns = bench::now_ns();
    frames.store(seen + 1, std::memory_order_release);
  }
  [[nodiscard]] double per_second() const {
    return static_cast<double>(frames - 1) * 1e9 / static_cast<double>(last_ns - first_ns);
  }
};
using Shared = std::array<Taken, max_link_clients>;

Shared& shared_memory(int& descriptor) {
  if (descriptor < 0) {
    descriptor = memfd_create("link-bench", 0);  // the others inherit it
    if (descriptor < 0 || ftruncate(descriptor, sizeof(Shared)) != 0) {
      throw std::system_error(errno, std::generic_category(), "no shared memory");
    }
  }
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "no shared memory");
  return *static_cast<Shared*>(memory);
}

std::shared_ptr<Device> open_device(const Options& options) {
  if (options.device == "host") return std::make_shared<test::FakeDevice>();
  return Device::open(options.device);
}

std::shared_ptr<Ring> make_ring(const Options& options, std::uint32_t slots, std::size_t bytes) {
  RingOptions made{.slots = slots, .slot_bytes = bytes, .transport = Transport::bar, .spin = 50ms};
  if (options.device != "host") return Ring::create(open_device(options), made);
  made.transport = Transport::zero_copy;
  const std::size_t stride = (bytes + 4095) / 4096 * 4096;
  return Ring::create(open_device(options), make_link_memory(stride * slots), made);
}

/// Null where the CPU must not read the slots.
const std::byte* readable(const Ring& ring, const ReadLease& lease) {
  const Mapping& mapping = *ring.mapping();
  return mapping.cpu_readable() ? mapping.host() + lease.offset() : nullptr;
}

/// A consumer, until the server ends.
int consume(const Options& options, Taken& taken) {
  LinkConsumerOptions how;
  how.path = options.path;
  how.leak = LinkLeak::no;
  how.spin = std::chrono::microseconds(options.spin_us);
  how.patience = patience;
  const auto consumer = LinkConsumer::connect(open_device(options), how);
  ReadLease lease;
  LinkFrame frame;
  for (;;) {
    const LinkNext next = consumer->next(lease, frame, Clock::now() + patience);
    if (next == LinkNext::closed) return 0;
    if (next != LinkNext::frame) return 2;
    taken.add(frame.info.sequence, readable(*consumer->ring(), lease), options.frames);
  }
}

class Process {
 public:
  Process(const Options& options, const std::string& path, unsigned number, std::uint64_t frames,
          std::chrono::microseconds spin) {
    std::vector<std::string> words{"link-bench",
                                   "--path",
                                   path,
                                   "--device",
                                   options.device,
                                   "--memory",
                                   std::to_string(options.memory),
                                   "--number",
                                   std::to_string(number),
                                   "--frames",
                                   std::to_string(frames),
                                   "--spin-us",
                                   std::to_string(spin.count())};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int error = posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
    if (error != 0) throw std::system_error(error, std::generic_category(), "a process cannot be started");
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  /// It has seen the server's end.
  void wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    if (status != 0) throw std::runtime_error(fmt::format("a consumer ended with status {}", status));
  }

 private:
  pid_t pid_ = -1;
};

/// A server with so many consumers in other processes, for `frames` frames.
class Served {
 public:
  Served(const Options& options, Shared& shared, std::shared_ptr<Ring> ring, unsigned consumers, std::uint64_t frames,
         std::chrono::microseconds spin)
      : shared_(shared), frames_(frames), ring_(std::move(ring)) {
    LinkServerOptions how;
    how.path = folder_.path() / "link";
    how.linger = patience;
    server_ = LinkServer::serve(ring_, how);
    for (Taken& one : shared) new (&one) Taken{};
    for (unsigned n = 0; n < consumers; ++n) {
      processes_.push_back(std::make_unique<Process>(options, how.path, n, frames, spin));
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
      processes_[n]->wait();
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
  std::vector<std::unique_ptr<Process>> processes_;
  std::unique_ptr<LinkServer> server_;
};

void write_small(const WriteLease& lease, std::uint64_t number) {
  std::array<std::uint64_t, small_bytes / sizeof(number)> content{number};
  std::memcpy(lease.host(), content.data(), small_bytes);
}

double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}
nlohmann::json spread(const std::vector<double>& all) {
  return {{"median", median(all)}, {"min", *std::ranges::min_element(all)}, {"max", *std::ranges::max_element(all)}};
}

class Bench {
 public:
  Bench(Options& options, Shared& shared) : options_(options), shared_(shared) {}

  nlohmann::json run() {
    nlohmann::json report{{"benchmark", "link"},
                          {"cpu", bench::cpu_name()},
                          {"commit", options_.commit},
                          {"device", options_.device},
                          {"slots", options_.slots},
                          {"rounds", options_.rounds},
                          {"cores", std::thread::hardware_concurrency()}};
    fmt::print("{}, {} cores\n", bench::cpu_name(), std::thread::hardware_concurrency());
    for (const std::string& one : options_.cases) {
      if (one == "rate") report[one] = rate();
      if (one == "cost") report[one] = cost();
      if (one == "copy") report[one] = copy();
      if (one == "wakes") report[one] = wakes();
    }
    return report;
  }

 private:
  double rate_of_ring() {
    const auto ring = make_ring(options_, options_.slots, small_bytes);
    const unsigned frames = options_.rate_frames;
    new (&shared_[0]) Taken{};
    std::thread consumer([&] {
      ReadLease lease;
      while (ring->receive(lease) == RingStatus::ok) {
        shared_[0].add(lease.info().sequence, readable(*ring, lease), frames);
      }
    });
    for (std::uint64_t n = 0; n < frames; ++n) {
      WriteLease lease;
      if (ring->acquire(lease) != RingStatus::ok) throw std::runtime_error("no slot came back");
      write_small(lease, n);
      ring->publish(lease, {.bytes = small_bytes});
    }
    ring->close_producer();
    consumer.join();
    if (shared_[0].frames != frames || shared_[0].wrong != 0) throw std::runtime_error("frames are missing or wrong");
    return shared_[0].per_second();
  }
  double rate_of_link() {
    Served served(options_, shared_, make_ring(options_, options_.slots, small_bytes), 1, options_.rate_frames, 50ms);
    for (std::uint64_t n = 0; n < options_.rate_frames; ++n) {
      WriteLease lease = served.acquire();
      write_small(lease, n);
      served.server().publish(lease, {.bytes = small_bytes});
    }
    served.finish();
    return shared_[0].per_second();
  }
  nlohmann::json rate() {
    std::vector<double> one, two, ratio;
    for (unsigned round = 0; round < options_.rounds; ++round) {
      one.push_back(rate_of_ring());
      two.push_back(rate_of_link());
      ratio.push_back(two.back() / one.back());
    }
    fmt::print("\n64-byte frames a second, both sides spinning: median (slowest to fastest round)\n");
    for (const auto& [name, all] : {std::pair{"one process", &one}, {"two processes", &two}}) {
      const auto figures = spread(*all);
      fmt::print("{:<16} {:>6.2f} million ({:.2f} to {:.2f})\n", name, figures["median"].get<double>() / 1e6,
                 figures["min"].get<double>() / 1e6, figures["max"].get<double>() / 1e6);
    }
    fmt::print("{:<16} {:>6.2f}\n", "ratio", median(ratio));
    return {{"frames", options_.rate_frames},
            {"one_process_per_s", spread(one)},
            {"two_processes_per_s", spread(two)},
            {"ratio", spread(ratio)}};
  }

  struct Cost {
    unsigned consumers;
    std::vector<std::int64_t> acquire_ns{}, publish_ns{}, both_ns{};
    std::uint64_t wakes = 0;
    std::vector<double> medians{};  ///< of publish, of each round
  };
  void cost_of(Cost& cost) {
    const unsigned frames = options_.cost_frames;
    // A consumer that finds nothing for this time sleeps: there may be more consumers than cores. Waking them is in few
    // of the times.
    Served served(options_, shared_, make_ring(options_, options_.slots, small_bytes), cost.consumers, frames, 200us);
    std::vector<std::int64_t> ns;
    for (std::uint64_t n = 0; n < frames; ++n) {
      const std::int64_t before = bench::now_ns();
      WriteLease lease = served.acquire();
      const std::int64_t acquired = bench::now_ns();
      write_small(lease, n);
      const std::int64_t written = bench::now_ns();
      served.server().publish(lease, {.bytes = small_bytes});
      ns.push_back(bench::now_ns() - written);
      cost.acquire_ns.push_back(acquired - before);
      cost.both_ns.push_back(acquired - before + ns.back());
    }
    cost.wakes += served.server().counters().wakes;
    served.finish();
    cost.publish_ns.insert(cost.publish_ns.end(), ns.begin(), ns.end());
    cost.medians.push_back(bench::summarise(ns).median_us * 1e3);
  }
  nlohmann::json cost() {
    std::vector<Cost> costs{{1}, {2}, {4}};
    for (unsigned round = 0; round < options_.rounds; ++round) {
      for (Cost& one : costs) cost_of(one);
    }
    fmt::print("\nns of the producer a frame, consumers busy: median, more for each further consumer, P90\n");
    fmt::print("{:<10} {:>8} {:>6} {:>6} {:>20} {:>6} {:>6} {:>12}\n", "consumers", "publish", "more", "P90",
               "acquire and publish", "more", "P90", "wakes/frame");
    nlohmann::json rows = nlohmann::json::array();
    double first_publish = 0, first_both = 0;
    for (Cost& one : costs) {
      const auto acquire = bench::summarise(one.acquire_ns), publish = bench::summarise(one.publish_ns),
                 both = bench::summarise(one.both_ns);
      if (one.consumers == 1) first_publish = publish.median_us, first_both = both.median_us;
      const double others = std::max(1U, one.consumers - 1);
      const double more_publish = (publish.median_us - first_publish) * 1e3 / others;
      const double more_both = (both.median_us - first_both) * 1e3 / others;
      const double wakes = static_cast<double>(one.wakes) / static_cast<double>(one.publish_ns.size());
      fmt::print("{:<10} {:>8.0f} {:>6.0f} {:>6.0f} {:>20.0f} {:>6.0f} {:>6.0f} {:>12.4f}\n", one.consumers,
                 publish.median_us * 1e3, more_publish, publish.p90_us * 1e3, both.median_us * 1e3, more_both,
                 both.p90_us * 1e3, wakes);
      rows.push_back({{"consumers", one.consumers},
                      {"frames", one.publish_ns.size()},
                      {"acquire", bench::to_json(acquire)},
                      {"publish", bench::to_json(publish)},
                      {"both", bench::to_json(both)},
                      {"publish_median_ns_of_rounds", spread(one.medians)},
                      {"more_publish_ns_each", more_publish},
                      {"more_both_ns_each", more_both},
                      {"wakes_a_frame", wakes}});
    }
    return rows;
  }

  nlohmann::json copy() {
    // More than a cache holds, as a camera's frames are.
    std::vector<std::vector<std::byte>> sources(8, std::vector<std::byte>(picture_bytes, std::byte{1}));
    const unsigned frames = options_.copy_frames;
    const auto gb_per_s = [&](std::int64_t ns) {
      return static_cast<double>(picture_bytes) * frames / static_cast<double>(ns);
    };
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
        if (n == 8) began = bench::now_ns();
        fill(ring->mapping()->host() + n % 8 * ring->slot_stride(), n);
      }
      return gb_per_s(bench::now_ns() - began);
    };
    const auto linked = [&](const std::shared_ptr<Ring>& ring, std::chrono::microseconds spin) {
      Served served(options_, shared_, ring, 1, frames + 8, spin);
      std::int64_t began = 0;
      for (unsigned n = 0; n < frames + 8; ++n) {
        if (n == 8) began = bench::now_ns();
        WriteLease lease = served.acquire();
        fill(lease.host(), n);
        served.server().publish(lease, {.bytes = picture_bytes});
      }
      const double result = gb_per_s(bench::now_ns() - began);
      served.finish();
      return result;
    };
    struct Way {
      const char* name;
      const char* text;
      std::vector<double> gb_per_s{}, ratio{};
    };
    Way ways[] = {
        {"bare", "bare stores"}, {"consumer_sleeps", "consumer sleeps"}, {"consumer_spins", "consumer spins"}};
    for (unsigned round = 0; round < options_.rounds; ++round) {
      ways[0].gb_per_s.push_back(bare(make_ring(options_, 8, picture_bytes)));
      ways[1].gb_per_s.push_back(linked(make_ring(options_, 8, picture_bytes), 0us));
      ways[2].gb_per_s.push_back(linked(make_ring(options_, 8, picture_bytes), 50ms));
      for (Way& way : ways) way.ratio.push_back(way.gb_per_s.back() / ways[0].gb_per_s.back());
    }
    nlohmann::json made{{"frames", frames}, {"bytes", picture_bytes}, {"store_kernel", stream_copy_name()}};
    fmt::print("\n1080p NV12 copied by one thread, {}: GB/s, median (slowest to fastest round), over bare stores\n",
               stream_copy_name());
    for (const Way& way : ways) {
      const auto figures = spread(way.gb_per_s);
      fmt::print("{:<16} {:>6.2f} ({:.2f} to {:.2f}) {:>6.2f}\n", way.text, figures["median"].get<double>(),
                 figures["min"].get<double>(), figures["max"].get<double>(), median(way.ratio));
      made[way.name] = {{"gb_per_s", figures}, {"over_bare", spread(way.ratio)}};
    }
    return made;
  }

  nlohmann::json wakes() {
    nlohmann::json rows = nlohmann::json::array();
    fmt::print("\nwakes a frame, consumers sleep between frames\n");
    for (const unsigned consumers : {1U, 2U, 4U}) {
      const unsigned frames = options_.wake_frames;
      Served served(options_, shared_, make_ring(options_, options_.slots, small_bytes), consumers, frames, 0us);
      for (std::uint64_t n = 0; n < frames; ++n) {
        served.await(n);
        std::this_thread::sleep_for(1ms);
        WriteLease lease = served.acquire();
        write_small(lease, n);
        served.server().publish(lease, {.bytes = small_bytes});
      }
      const double a_frame = static_cast<double>(served.server().counters().wakes) / frames;
      served.finish();
      fmt::print("{} consumers: {:.3f}, {:.3f} each\n", consumers, a_frame, a_frame / consumers);
      rows.push_back({{"consumers", consumers}, {"frames", frames}, {"wakes_a_frame", a_frame}});
    }
    return rows;
  }

  Options& options_;
  Shared& shared_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What a link between processes costs, through the library alone"};
  Options options;
  app.add_option("--cases", options.cases, "Which of rate, cost, copy and wakes (all)")
      ->check(CLI::IsMember({"rate", "cost", "copy", "wakes"}));
  app.add_option("--device", options.device, "Whose memory: host, or a GPU: auto, an index, a UUID or a PCI address");
  app.add_option("--slots", options.slots, "Slots of the rings for small frames")->check(CLI::Range(4, 256));
  app.add_option("--rounds", options.rounds, "Rounds, in which the ways take turns")->check(CLI::Range(1, 1000));
  const auto count = [&app](const char* name, unsigned& frames, const char* text) {
    app.add_option(name, frames, text)->check(CLI::Range(2, 1'000'000'000));
  };
  count("--rate-frames", options.rate_frames, "Frames of a round of rate");
  count("--cost-frames", options.cost_frames, "Frames of a round of cost");
  count("--copy-frames", options.copy_frames, "Frames of a round of copy");
  count("--wake-frames", options.wake_frames, "Frames of wakes");
  app.add_option("--json", options.json, "Write the figures there");
  app.add_option("--commit", options.commit, "Commit to note in the JSON");
  app.add_option("--path", options.path)->group("");  // from here on: of the processes that it starts
  app.add_option("--memory", options.memory)->group("");
  app.add_option("--number", options.number)->group("");
  app.add_option("--frames", options.frames)->group("");
  app.add_option("--spin-us", options.spin_us)->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    Shared& shared = shared_memory(options.memory);
    if (!options.path.empty()) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      return consume(options, shared.at(options.number));
    }
    const nlohmann::json report = Bench(options, shared).run();
    if (options.json.empty()) return 0;
    if (!(std::ofstream(options.json) << report.dump(2) << '\n'))
      throw std::runtime_error(options.json + ": cannot write");
  } catch (const std::exception& error) {
    std::cerr << "link-bench: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
