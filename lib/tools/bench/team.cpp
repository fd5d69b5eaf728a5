// SPDX-License-Identifier: MIT
#include "team.hpp"

#include <algorithm>
#include <cstring>
#include <gpumap/copy.hpp>

#include "figures.hpp"

namespace bench {

namespace {
constexpr std::int64_t helper_spin_ns = 50'000;
}

Team::Team(unsigned threads) : done_(std::make_unique<std::atomic<std::uint32_t>[]>(max_chunks)) {
  for (unsigned i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
}

Team::~Team() {
  over_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  // Ends: a helper copies its part, and looks at over_ when it is called.
  for (std::thread& helper : helpers_) helper.join();
}

void Team::copy(const Job& job, const Copied& copied) {
  const std::size_t least = (job.bytes + max_chunks - 1) / max_chunks;
  const std::size_t chunk = std::max(job.chunk_bytes, least);
  const std::size_t chunks = (job.bytes + chunk - 1) / chunk;
  const std::uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  to_.store(job.to, std::memory_order_relaxed);
  from_.store(job.from, std::memory_order_relaxed);
  bytes_.store(job.bytes, std::memory_order_relaxed);
  chunk_bytes_.store(chunk, std::memory_order_relaxed);
  chunks_.store(chunks, std::memory_order_relaxed);
  streaming_.store(job.streaming, std::memory_order_relaxed);
  ticket_.store(std::uint64_t{generation} << 32, std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  if (!helpers_.empty() && chunks > 1) generation_.notify_all();

  bool left = true;
  for (std::size_t told = 0; told < chunks;) {
    while (told < chunks && done_[told].load(std::memory_order_acquire) == generation) {
      copied(told * chunk, std::min(chunk, job.bytes - told * chunk));
      ++told;
    }
    if (left) {
      left = copy_one(generation);
    } else {
      __builtin_ia32_pause();
    }
  }
}

bool Team::copy_one(std::uint32_t generation) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  std::byte* const to = to_.load(std::memory_order_relaxed);
  const std::byte* const from = from_.load(std::memory_order_relaxed);
  const std::size_t bytes = bytes_.load(std::memory_order_relaxed);
  const std::size_t chunk = chunk_bytes_.load(std::memory_order_relaxed);
  const std::size_t chunks = chunks_.load(std::memory_order_relaxed);
  const bool streaming = streaming_.load(std::memory_order_relaxed);
  std::size_t index = 0;
  do {
    index = ticket & 0xFFFFFFFFU;
    if (ticket >> 32 != generation || index >= chunks) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire));

  const std::size_t at = index * chunk;
  const std::size_t count = std::min(chunk, bytes - at);
  if (streaming) {
    gpumap::stream_copy(to + at, from + at, count);
    gpumap::store_fence();  // streaming stores do not keep to the order of the flag below
  } else {
    std::memcpy(to + at, from + at, count);
  }
  done_[index].store(generation, std::memory_order_release);
  return true;
}

void Team::help() {
  std::uint32_t seen = 0;
  for (;;) {
    const std::int64_t until = now_ns() + helper_spin_ns;
    while (generation_.load(std::memory_order_acquire) == seen && now_ns() < until) __builtin_ia32_pause();
    // Ends: the destructor raises it as well.
    generation_.wait(seen, std::memory_order_acquire);
    if (over_) return;
    seen = generation_.load(std::memory_order_acquire);
    while (copy_one(seen)) {
    }
  }
}

}  // namespace bench
