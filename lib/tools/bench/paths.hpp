// SPDX-License-Identifier: MIT
// The ways of a frame from ordinary host memory, or from a producer's stores, to the end of a kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gpumap/copy.hpp>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bench.hpp"

namespace bench {

/// Random bytes in ordinary memory, more than the caches hold: frames taken in turn are cold, as a camera's or a
/// decoder's are. The memory is that of Placement::mirrored_pageable, so that the pageable path starts from the same.
class Source {
 public:
  Source(const Context& context, std::size_t bytes);

  /// The n-th frame of that size, of frames() different ones.
  [[nodiscard]] const std::byte* frame(std::size_t bytes, std::uint64_t n) const;
  [[nodiscard]] std::size_t frames(std::size_t bytes) const;
  /// Sum all frames of that size, so that checksum() takes no time between two frames that are timed.
  void sum_frames(std::size_t bytes);
  /// Of a frame of the size that was summed last.
  [[nodiscard]] std::uint64_t checksum(const std::byte* frame) const { return checksums_.at(offset(frame)); }

  [[nodiscard]] const gpumap::Mapping& mapping() const { return *mapping_; }
  [[nodiscard]] std::size_t offset(const std::byte* frame) const {
    return static_cast<std::size_t>(frame - mapping_->host());
  }

 private:
  std::shared_ptr<gpumap::Mapping> mapping_;
  std::unordered_map<std::size_t, std::uint64_t> checksums_;  // by offset
};

/// Threads that copy one frame in chunks, in rising order, and tell of each chunk once it is whole: what a program does
/// that overlaps its copies into page-locked memory with DMA. The library has no such thing, for it needs none; this is
/// the rival. Helpers spin a little between frames, then sleep.
class Team {
 public:
  /// The calling thread is one of them.
  explicit Team(unsigned threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  struct Job {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    std::size_t chunk_bytes = 0;
    bool streaming = false;  ///< past the caches, or memcpy
  };
  using Copied = std::function<void(std::size_t offset, std::size_t bytes)>;

  /// Calls `copied` on this thread for every chunk, in order, as soon as it sees it done.
  void copy(const Job& job, const Copied& copied);

  [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(helpers_.size()) + 1; }

 private:
  static constexpr std::size_t max_chunks = 4096;

  void help();
  bool copy_one();

  // Read by who has a ticket of the job: it stays what it is until that one's chunk is done.
  Job job_;
  std::size_t chunks_ = 0;

  alignas(64) std::atomic<std::uint64_t> ticket_{0};  // generation, chunks that nobody has begun: 32 bits each
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> over_{false};
  std::unique_ptr<std::atomic<std::uint32_t>[]> done_;  // of each chunk: the generation that copied it
  std::vector<std::thread> helpers_;
};

enum class Work { nothing, checksum };

/// The GPU's side of every path: one queue, two kernels, one result.
class Gpu {
 public:
  explicit Gpu(const Context& context);

  [[nodiscard]] gpumap::Queue& queue() const { return *queue_; }
  [[nodiscard]] gpumap::Backend backend() const { return queue_->backend(); }
  gpumap::Fence launch(Work work, std::uint64_t address, std::size_t bytes);
  void clear_result();
  [[nodiscard]] std::uint64_t result() const;

 private:
  std::shared_ptr<gpumap::Kernel> nothing_, checksum_;
  std::shared_ptr<gpumap::Mapping> result_, state_;
  gpumap_frame frame_{};
  std::unique_ptr<gpumap::Queue> queue_;  // last: ends, and waits for the GPU, before the memory goes
};

/// Something that is timed beside others, and the row that comes of it.
struct Run {
  Row row;
  /// So many of them: their times, of batches where a row is of batches. Returns the CPU time that counts, in ns.
  std::function<std::int64_t(std::size_t count, std::vector<std::int64_t>& ns)> visit;
  std::function<void()> verify{};  ///< throws unless the last one did what it was to do
  unsigned warm_up = 1;            ///< at each visit: wakes helpers and warms what the others left cold
  std::vector<std::int64_t> ns{};
  std::int64_t cpu_ns = 0;
};
struct Turns {
  unsigned rounds = 1;         ///< over all runs: a clock or a host that drifts hits all alike
  double budget_ns = 0;        ///< for one run, in all rounds
  double least = 1, most = 1;  ///< of times within that budget
  bool shuffle = false;        ///< in another order each round: each finds the caches as the one before it left them
};
/// Times all of them, and adds their rows, whose times are of `parts` each.
void run_in_turns(std::vector<Run>& runs, const Turns& turns, ModeReport& report, double parts = 1);

/// What all paths of one frame size share. One frame is in flight, and each brings other bytes.
struct Stage {
  Gpu& gpu;
  Source& source;
  std::size_t bytes = 0;
  std::shared_ptr<gpumap::Mapping> slot, pinned, device;

  Stage(const Context& context, Gpu& the_gpu, Source& the_source, std::size_t the_bytes);
  [[nodiscard]] std::uint64_t address(const gpumap::Mapping& mapping) const { return mapping.address(gpu.backend()); }
};

/// One way of a frame.
struct Path {
  std::string name;
  unsigned threads = 1;
  bool rival = false;
  /// While the clock runs: all that is done before the kernel is queued. Returns where that finds the frame.
  std::function<std::uint64_t(const std::byte* frame)> send;
  /// Before the clock starts.
  std::function<void(const std::byte* frame)> prepare{};
  /// Choose what there is to choose, by trying. Returns the choice in words.
  std::function<std::string(Path&)> calibrate{};
  bool moves = true;          ///< false where a kernel that reads nothing moves nothing
  std::uint64_t address = 0;  ///< where the kernel found the last frame
};

/// What works on frames of any size, kept: threads are started once, copiers are calibrated once.
struct Copiers {
  struct Of {
    unsigned threads = 1;  ///< 0: as many as the copier finds to pay
    std::unique_ptr<gpumap::Copier> copier;
    std::unique_ptr<Team> team;  ///< none for 0
  };
  std::vector<Of> all;
  Copiers(const Context& context, const std::vector<unsigned>& threads);
};

/// The frame lies in ordinary memory.
[[nodiscard]] std::vector<Path> copying_paths(Stage& stage, Copiers& copiers);
/// The producer writes where the path begins; the clock runs from its last 256 bytes, which it has in its cache as if
/// it had just computed them.
[[nodiscard]] std::vector<Path> in_place_paths(Stage& stage);

/// One frame's way, in ns by the CPU's clock from the first timed store to the fence seen. Adds the process's CPU time.
std::int64_t time_frame(Path& path, Stage& stage, const std::byte* frame, Work work, std::int64_t& cpu_ns);
/// Throws std::runtime_error unless all bytes of `frame` are where the path's kernel reads.
void verify(const Path& path, Stage& stage, const std::byte* frame);

}  // namespace bench
