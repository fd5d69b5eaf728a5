// SPDX-License-Identifier: MIT
// The other process of the link's tests: a producer or a consumer that checks what it sees, and kills itself where it
// is told to.
//
//     link_peer consume PATH SEED STATE COUNT LEAK     dies at STATE of frame COUNT
//     link_peer produce PATH SEED STATE COUNT
//     link_peer orphan PATH FOLDER                     has a child that keeps the socket, its id is in FOLDER/pid
//     link_peer stranger PATH USER                     connects as USER
//     link_peer gpu PATH COUNT REPORT                  its GPU reads; COUNT 0: until the server ends
//     link_peer gpu-fault PATH COUNT LEAK LEAVES REPORT
//                                                      loses its GPU after COUNT frames, then returns, exits, dies,
//                                                      lingers or holds
//
// REPORT is a file for what the test wants to know, "" for none.
// Ends with 0, or 3: a frame was torn; 4: refused; 5: something else was wrong; 6: it lost its GPU, as it should.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "faulty_kernel.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/queue.hpp"
#include "link_helpers.hpp"
#include "test_helpers.hpp"

namespace gpumap::test {

// A client of a link whose GPU reads each frame in the producer's memory: the frames are checked behind it.

class GpuReader {
 public:
  enum class Read { frame, closed, torn, failed };

  GpuReader(const std::shared_ptr<Device>& device, const std::string& path, LinkLeak leak)
      : queue_(device->create_queue()), consumer_(connect(device, path, leak)), reads_(3) {
    bytes_ = consumer_->ring()->slot_bytes();
    for (Step& read : reads_) read.copy = device->allocate({.placement = Placement::host, .bytes = bytes_});
  }

  /// Let the GPU read the next frame; the one before the last two is then checked.
  [[nodiscard]] Read next() {
    Step& read = reads_[seen_ % reads_.size()];
    if (!is_whole(read)) return Read::torn;
    ReadLease lease;
    const LinkNext next = consumer_->next(lease, read.frame, soon());
    if (next == LinkNext::closed) return Read::closed;
    if (next != LinkNext::frame) return Read::failed;
    read.slot = lease.slot();
    read.used = true;
    if (seen_ == 0) first_ = read.frame.info.sequence;
    last_ = read.frame.info.sequence;
    ++seen_;
    queue_->copy(*consumer_->ring()->mapping(), lease.offset(), *read.copy, 0, bytes_);
    read.fence = queue_->submit();
    lease.add_read_fence(read.fence);
    return Read::frame;  // the lease ends here, and the GPU reads on
  }
  /// Whether all frames so far were whole.
  [[nodiscard]] bool finish() {
    return std::all_of(reads_.begin(), reads_.end(), [this](Step& read) { return is_whole(read); });
  }

  [[nodiscard]] std::uint64_t seen() const { return seen_; }
  /// Frames that came between the first and the last, and were not seen.
  [[nodiscard]] std::uint64_t missed() const { return seen_ == 0 ? 0 : last_ - first_ + 1 - seen_; }
  [[nodiscard]] std::uint64_t last() const { return last_; }
  [[nodiscard]] LinkConsumer& consumer() { return *consumer_; }
  [[nodiscard]] Queue& queue() { return *queue_; }

 private:
  struct Step {
    Fence fence;
    LinkFrame frame;
    std::uint32_t slot = 0;
    bool used = false;
    std::shared_ptr<Mapping> copy;
  };

  static std::unique_ptr<LinkConsumer> connect(const std::shared_ptr<Device>& device, const std::string& path,
                                               LinkLeak leak) {
    LinkConsumerOptions options;
    options.path = path;
    options.leak = leak;
    options.patience = patience;
    return LinkConsumer::connect(device, options);
  }

  bool is_whole(Step& read) const {
    if (!std::exchange(read.used, false)) return true;
    if (read.fence.wait(test::never, soon()) != WaitResult::ready) return false;
    read.copy->invalidate(0, bytes_);
    return torn_at(read.copy->host(), read.frame.info.bytes, read.frame.info.sequence, read.slot) ==
           read.frame.info.bytes;
  }

  std::unique_ptr<Queue> queue_;
  std::unique_ptr<LinkConsumer> consumer_;
  std::vector<Step> reads_;
  std::size_t bytes_ = 0;
  std::uint64_t seen_ = 0, first_ = 0, last_ = 0;
};

}  // namespace gpumap::test

namespace {

using namespace gpumap;        // NOLINT
using namespace gpumap::test;  // NOLINT

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

std::unique_ptr<LinkConsumer> connect_to(const std::string& path, LinkLeak leak) {
  LinkConsumerOptions options;
  options.path = path;
  options.name = "peer " + std::to_string(getpid());
  options.leak = leak;
  options.patience = patience;
  return LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
}

int consume(const std::string& path, unsigned seed, const std::string& state, std::uint64_t count, LinkLeak leak) {
  std::mt19937 random(seed);
  const auto consumer = connect_to(path, leak);
  if (state == "connected") die();
  const auto gpu = std::make_shared<FakeTimeline>();
  ReadLease lease;
  LinkFrame frame;
  std::uint64_t last = 0;
  for (std::uint64_t seen = 0;; ++seen) {
    LinkNext next = LinkNext::ring;
    while (next == LinkNext::ring) next = consumer->next(lease, frame, Clock::now() + 60s);
    if (next == LinkNext::closed) return 0;
    if (next != LinkNext::frame) return 5;
    const bool last_one = seen == count;
    if (last_one && state == "received") die();
    if (seen > 0 && frame.info.sequence <= last) {
      std::fprintf(stderr, "frame %lu after %lu\n", frame.info.sequence, last);
      return 3;
    }
    last = frame.info.sequence;
    const std::byte* host = consumer->ring()->mapping()->host() + lease.offset();
    if (last_one && state == "half-read") {
      static_cast<void>(torn_at(host, frame.info.bytes / 2, frame.info.sequence, lease.slot()));
      die();
    }
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    const std::size_t torn = torn_at(host, frame.info.bytes, frame.info.sequence, lease.slot());
    if (torn != frame.info.bytes && !consumer->revoked()) {
      std::fprintf(stderr, "frame %lu in slot %u is torn at %zu of %lu\n", frame.info.sequence, lease.slot(), torn,
                   frame.info.bytes);
      return 3;
    }
    if (last_one && state == "before-release") die();
    if (last_one && state == "kernel-in-flight") {
      const Fence kernel(gpu, gpu->reached + 1);
      lease.add_read_fence(kernel);
      lease.release();
      std::this_thread::sleep_for(5ms);
      if (kernel.signalled()) {
        std::fprintf(stderr, "no kernel is in flight at frame %lu\n", frame.info.sequence);
        return 5;
      }
      die();
    }
    if (random() % 2 == 0) {
      lease.add_read_fence(Fence(gpu, gpu->reached + 1));
      lease.release();
      ++gpu->reached;
    }
    if (last_one && state == "released") {
      lease.release();
      die();
    }
  }
}

int produce(const std::string& path, unsigned seed, const std::string& state, std::uint64_t count) {
  std::mt19937 random(seed);
  const auto slots = static_cast<std::uint32_t>(3 + random() % 6);
  auto ring = link_ring(slots, 8192);
  if (state == "not-yet-serving") die();
  const auto server = LinkServer::serve(ring, {.path = path});
  if (!server->wait_for_client(soon())) return 5;
  for (std::uint64_t n = 0;; ++n) {
    WriteLease lease;
    if (server->acquire(lease, WhenFull::block, soon()) != RingStatus::ok) return 5;
    const bool last_one = n == count;
    if (last_one && state == "leased") die();
    FrameInfo info;
    info.bytes = lease.bytes();
    write_frame(lease.host(), last_one && state == "half-written" ? info.bytes / 2 : info.bytes, n, lease.slot());
    if (last_one && (state == "half-written" || state == "written")) die();
    if (last_one && state == "published") {
      ring->publish(lease, info);
      die();
    }
    server->publish(lease, info);
    if (last_one && state == "handed-on") die();
    if (n % 37 == 36) {
      ring = link_ring(slots, 8192 + n);
      server->change(ring, n + 1);
    }
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
  }
}

int orphan(const std::string& path, const std::filesystem::path& folder) {
  const auto consumer = connect_to(path, LinkLeak::no);
  ReadLease lease;
  LinkFrame frame;
  if (consumer->next(lease, frame, soon()) != LinkNext::frame) return 5;
  const pid_t child = fork();
  if (child == 0) {
    sleep(60);  // unless the test ends it
    _exit(0);
  }
  std::ofstream(folder / "pid.part") << child << '\n';
  std::filesystem::rename(folder / "pid.part", folder / "pid");
  die();
}

/// What the test reads of this process while it runs, and of one that is gone: a name and a number in each line.
class Report {
 public:
  explicit Report(std::filesystem::path path) : path_(std::move(path)) {}
  void add(const std::string& name, std::uint64_t number) const {
    if (!path_.empty()) std::ofstream(path_, std::ios::app) << name + " " + std::to_string(number) + "\n";
  }
  void now(const std::string& name) const { add(name, static_cast<std::uint64_t>(monotonic_ns())); }

 private:
  std::filesystem::path path_;
};

int exit_code(GpuReader::Read read) {
  return read == GpuReader::Read::torn ? 3 : 5;
}

int let_gpu_read(const std::string& path, std::uint64_t count, const Report& report) {
  const auto device = Device::open();
  report.now("opened");
  GpuReader reader(device, path, LinkLeak::no);
  if (reader.consumer().ring()->mapping()->address(device->default_backend()) == 0) return 5;
  while (count == 0 || reader.seen() < count) {
    const GpuReader::Read read = reader.next();
    if (read == GpuReader::Read::closed && count == 0) break;
    if (read != GpuReader::Read::frame) return exit_code(read);
    if (reader.seen() == 1) report.now("first");
  }
  if (!reader.finish()) return 3;
  report.add("missed", reader.missed());
  report.add("last", reader.last());
  return validation_message_count() == 0 ? 0 : 5;
}

/// Its GPU context ends while it holds a frame, whose kernel or copy never does: then it leaves as `leaves` says.
int lose_gpu(const std::string& path, std::uint64_t count, LinkLeak leak, const std::string& leaves,
             const Report& report) {
  const auto device = Device::open();
  report.now("opened");
  const bool faults = device->has(Backend::cuda);
  std::shared_ptr<Kernel> kernel;
  if (faults) kernel = Kernel::load(device, {Language::ptx, "faulty", faulty_kernel(), "fault"});
  GpuReader reader(device, path, leak);
  report.now("connected");
  while (reader.seen() < count) {
    if (const GpuReader::Read read = reader.next(); read != GpuReader::Read::frame) return exit_code(read);
    if (reader.seen() > 1) continue;
    if (!reader.finish()) return 3;
    report.now("first");
  }
  if (!reader.finish()) return 3;
  if (validation_message_count() != 0) return 5;

  ReadLease lease;
  LinkFrame frame;
  LinkConsumer& consumer = reader.consumer();
  if (consumer.next(lease, frame, soon()) != LinkNext::frame) return 5;
  report.now("faulted");
  Fence end;
  try {
    if (faults) {
      gpumap_frame argument{};
      argument.in.plane[0] = consumer.ring()->mapping()->address(Backend::cuda) + lease.offset();
      reader.queue().launch(*kernel, Grid(), argument);
      end = reader.queue().submit();
    } else {
      const auto timeline = std::make_shared<FakeTimeline>();
      timeline->lost = true;
      end = Fence(timeline, 1);
    }
    lease.add_read_fence(end);
    if (leaves == "lingers") {
      // Nobody but the link looks at the fence.
      lease.release();
      if (!comes_true([&] { return !consumer.why().empty(); })) return 5;
      std::fprintf(stderr, "link_peer: %s\n", consumer.why().c_str());
    } else {
      if (leaves != "holds") lease.release();
      static_cast<void>(end.wait_for(soon() - Clock::now()));
      return 5;  // it should have thrown
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::device_lost) throw;
    std::fprintf(stderr, "link_peer: %s\n", error.what());
  }
  report.now("lost");
  if (leaves == "dies") die();
  if (leaves == "exits") _exit(6);
  while (leaves == "lingers" || leaves == "holds") pause();  // until it is killed
  return 6;
}

int stranger(const std::string& path, uid_t user) {
  if (setuid(user) != 0) return 5;
  LinkConsumerOptions options;
  options.path = path;
  options.allowed_users = {0};
  options.patience = patience;
  const auto consumer = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() == 6 && args[0] == "consume") {
      return consume(args[1], static_cast<unsigned>(std::stoul(args[2])), args[3], std::stoull(args[4]),
                     static_cast<LinkLeak>(std::stoul(args[5])));
    }
    if (args.size() == 5 && args[0] == "produce") {
      return produce(args[1], static_cast<unsigned>(std::stoul(args[2])), args[3], std::stoull(args[4]));
    }
    if (args.size() == 3 && args[0] == "orphan") return orphan(args[1], args[2]);
    if (args.size() == 4 && args[0] == "gpu") return let_gpu_read(args[1], std::stoull(args[2]), Report(args[3]));
    if (args.size() == 6 && args[0] == "gpu-fault") {
      return lose_gpu(args[1], std::stoull(args[2]), static_cast<LinkLeak>(std::stoul(args[3])), args[4],
                      Report(args[5]));
    }
    if (args.size() == 3 && args[0] == "stranger") return stranger(args[1], static_cast<uid_t>(std::stoul(args[2])));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code() == ErrorCode::invalid ? 4 : 5;
  }
  std::fprintf(stderr, "link_peer: unknown arguments\n");
  return 5;
}
