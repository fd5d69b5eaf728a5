// SPDX-License-Identifier: MIT
// The other process of the link's tests: a producer or a consumer that checks what it sees, and kills itself where it
// is told to.
//
//     link_peer consume PATH SEED STATE COUNT LEAK     dies at STATE of frame COUNT
//     link_peer produce PATH SEED STATE COUNT
//     link_peer orphan PATH FOLDER                     has a child that keeps the socket, and tells its id in
//     FOLDER/pid link_peer stranger PATH USER                     connects as USER
//
// Ends with 0, or 3: a frame was torn; 4: refused; 5: something else was wrong.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "link_helpers.hpp"

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
    const LinkNext next = consumer->next(lease, frame, Clock::now() + 60s);
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
      lease.add_read_fence(Fence(gpu, 1));
      lease.release();
      std::this_thread::sleep_for(5ms);
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
  const auto ring = link_ring(slots, 8192);
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

int let_gpu_read(const std::string& path, std::uint64_t count) {
  const auto device = Device::open();
  LinkConsumerOptions options;
  options.path = path;
  options.leak = LinkLeak::no;
  options.patience = patience;
  const auto consumer = LinkConsumer::connect(device, options);
  const Mapping& slots = *consumer->ring()->mapping();
  if (slots.address(device->default_backend()) == 0) return 5;
  const std::size_t bytes = consumer->ring()->slot_bytes();
  const auto queue = device->create_queue();
  struct Read {
    Fence fence;
    LinkFrame frame;
    std::uint32_t slot = 0;
    std::shared_ptr<Mapping> copy;
  };
  std::vector<Read> reads(3);
  for (Read& read : reads) read.copy = device->allocate({.placement = Placement::host, .bytes = bytes});
  const auto check = [&](const Read& read) {
    if (read.frame.info.bytes == 0) return true;  // not used yet
    if (read.fence.wait(soon()) != WaitResult::ready) return false;
    read.copy->invalidate(0, bytes);
    return torn_at(read.copy->host(), read.frame.info.bytes, read.frame.info.sequence, read.slot) ==
           read.frame.info.bytes;
  };
  for (std::uint64_t n = 0; n < count; ++n) {
    Read& read = reads[n % reads.size()];
    if (!check(read)) return 3;
    ReadLease lease;
    if (consumer->next(lease, read.frame, soon()) != LinkNext::frame) return 5;
    read.slot = lease.slot();
    queue->copy(slots, lease.offset(), *read.copy, 0, bytes);
    read.fence = queue->submit();
    lease.add_read_fence(read.fence);
    // The lease ends here, and the GPU reads on.
  }
  for (const Read& read : reads) {
    if (!check(read)) return 3;
  }
  return validation_message_count() == 0 ? 0 : 5;
}

int stranger(const std::string& path, uid_t user) {
  if (setuid(user) != 0) return 5;
  LinkConsumerOptions options;
  options.path = path;
  options.allowed_users = {0};
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
    if (args.size() == 3 && args[0] == "gpu") return let_gpu_read(args[1], std::stoull(args[2]));
    if (args.size() == 3 && args[0] == "stranger") return stranger(args[1], static_cast<uid_t>(std::stoul(args[2])));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code() == ErrorCode::invalid ? 4 : 5;
  }
  std::fprintf(stderr, "link_peer: unknown arguments\n");
  return 5;
}
