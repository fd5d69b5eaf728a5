// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace bench {

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
  bool copy_one(std::uint32_t generation);

  // A helper may be late and look at these while the next job is written. It reads them first and takes its ticket
  // second: the ticket carries the generation, so one that succeeds proves that what was read is that job's.
  std::atomic<std::byte*> to_{nullptr};
  std::atomic<const std::byte*> from_{nullptr};
  std::atomic<std::size_t> bytes_{0}, chunk_bytes_{1}, chunks_{0};
  std::atomic<bool> streaming_{false};

  alignas(64) std::atomic<std::uint64_t> ticket_{0};  // generation, next chunk: 32 bits each
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> over_{false};
  std::unique_ptr<std::atomic<std::uint32_t>[]> done_;  // of each chunk: the generation that copied it
  std::vector<std::thread> helpers_;
};

}  // namespace bench
