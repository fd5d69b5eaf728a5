// SPDX-License-Identifier: MIT
#include "ring/state.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <thread>
#include <utility>

#include "gpumap/error.hpp"
#include "ring/bell.hpp"
#include "ring/slot_ops.hpp"

namespace gpumap {
namespace {

[[noreturn]] void corrupt(const ring::Limits& limits, const char* queue) {
  throw Error(ErrorCode::invalid,
              fmt::format("the ring's control block is corrupt: {} entries of the {} queue in a row "
                          "name no slot of {}; another process wrote to it: restart both sides",
                          limits.slots, queue, limits.slots));
}

}  // namespace

Ring::State::State(std::shared_ptr<Device> on, std::shared_ptr<Mapping> mapped, const RingOptions& options,
                   std::size_t stride, Transport way)
    : device(std::move(on)),
      mapping(std::move(mapped)),
      host(mapping->host()),
      slot_stride(stride),
      transport(way),
      uploads(way == Transport::pinned || way == Transport::pageable || !mapping->coherent() ||
              options.treat_as_non_coherent),
      limits(ring::Limits::of(options.slots, options.slot_bytes)),
      memory(options.slots, options.slot_bytes, stride),
      block(memory.block()),
      pending(options.slots),
      written(options.slots),
      spin_ns(0) {}

/// The leases are gone, or the ring would live. GPU work may still read: the memory must outlive it.
Ring::State::~State() {
  const Deadline end = Clock::now() + patience_at_end;
  try {
    for (std::uint32_t slot = 0; slot < limits.slots; ++slot) {
      for (auto pause = std::chrono::microseconds(20); !pending.fences(slot).drain();
           pause = std::min(pause * 2, std::chrono::microseconds(1000))) {
        pending.fences(slot).check();
        if (Clock::now() >= end) {
          std::fprintf(stderr,
                       "gpumap: GPU work still reads slot %u of a ring 5 s after its end: %zu bytes stay allocated\n",
                       slot, mapping->bytes());
          for (; slot < limits.slots; ++slot) pending.fences(slot).give_up();
          keep_for_good(mapping);
          return;
        }
        std::this_thread::sleep_for(pause);
      }
    }
  } catch (const std::exception&) {
    // The device is lost: nothing runs on it any more.
  }
}

bool Ring::State::take_free(std::uint32_t& slot) {
  if (pending.any() && pending.take(slot) && lease(slot)) return true;
  for (std::uint32_t bad = 0; bad < limits.slots;) {
    switch (ring::take_free(block, limits, seen_freed, slot)) {
      case ring::Take::nothing:
        return false;
      case ring::Take::corrupt:
        ++bad;
        continue;
      case ring::Take::taken:
        break;
    }
    switch (writers.freed(slot)) {
      case ring::Writers::Freed::parked:
        continue;
      case ring::Writers::Freed::corrupt:
        ++bad;
        continue;
      case ring::Writers::Freed::ours:
        break;
    }
    if (pending.fences(slot).any()) {
      // Into the list before asking: signalled() may throw, and the slot must not be lost.
      pending.add(slot);
      if (!pending.take(slot)) {
        // Others asleep on this side wait for a release; from now on they have to look at fences, too.
        ring::sound(block.producer_bell);
        continue;
      }
    }
    if (lease(slot)) return true;
    ++bad;
  }
  corrupt(limits, "free");
}

bool Ring::State::lease(std::uint32_t slot) noexcept {
  if (!writers.lease(slot)) return false;
  ring::mark(block, slot, ring::Phase::leased);
  return true;
}

void Ring::State::end_lease(std::uint32_t slot, bool published) noexcept {
  if (!writers.end(slot)) return;
  if (!published) ring::mark(block, slot, ring::Phase::none);
  // Not into the queue: there it would change places with the slots that are queued, and slots in their order are what
  // lets ticket and slot agree. Here it is the next to be leased.
  pending.add(slot);
  ring::sound(block.producer_bell);
}

bool Ring::State::take_back(std::uint32_t& slot) {
  // Nobody but its upload reads a slot that is queued.
  const auto uploaded = [this](std::uint32_t queued) {
    ring::ReadFences& upload = pending.fences(queued);
    if (!upload.any() || upload.drain()) return true;
    check_seldom([&upload] { upload.check(); });
    return false;
  };
  for (std::uint32_t bad = 0; bad < limits.slots;) {
    switch (ring::take_back(block, limits, slot, uploaded)) {
      case ring::Take::nothing:
        return false;
      case ring::Take::corrupt:
        ++bad;
        continue;
      case ring::Take::taken:
        overtaken.fetch_add(1, std::memory_order_relaxed);
        break;
    }
    switch (writers.freed(slot)) {
      case ring::Writers::Freed::parked:
        // The frame is dropped, but its writer keeps the slot: the next one, then.
        continue;
      case ring::Writers::Freed::corrupt:
        ++bad;
        continue;
      case ring::Writers::Freed::ours:
        break;
    }
    if (lease(slot)) return true;
    ++bad;
  }
  corrupt(limits, "published");
}

bool Ring::State::take_published(std::uint32_t& slot, FrameInfo& info) {
  for (std::uint32_t bad = 0; bad < limits.slots; ++bad) {
    switch (ring::take_published(block, limits, slot, info)) {
      case ring::Take::nothing:
        return false;
      case ring::Take::taken:
        return true;
      case ring::Take::corrupt:
        block.dropped_queued.fetch_add(1, std::memory_order_relaxed);
        break;
    }
  }
  corrupt(limits, "published");
}

bool Ring::State::take_nudge() noexcept {
  std::uint64_t seen = nudges_seen.load(std::memory_order_relaxed);
  const std::uint64_t now = block.nudges.load();
  return seen != now && nudges_seen.compare_exchange_strong(seen, now, std::memory_order_relaxed);
}

}  // namespace gpumap
