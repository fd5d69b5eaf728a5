// SPDX-License-Identifier: MIT
// A peer writes anything anywhere into a ring's control block between the steps that this side makes. Nothing that
// comes back may be out of range, no step may hang, and (AddressSanitizer) none may touch what is not the block's.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ring/control_block.hpp"
#include "ring/slot_ops.hpp"
#include "ring/slot_queue.hpp"

namespace {

using namespace gpumap;        // NOLINT
using namespace gpumap::ring;  // NOLINT

void expect(bool holds) {
  if (!holds) std::abort();
}

/// The input, word for word; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool done() const { return left_ == 0; }
  template <typename Word>
  Word take() {
    Word word{};
    const std::size_t bytes = left_ < sizeof word ? left_ : sizeof word;
    if (bytes > 0) std::memcpy(&word, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return word;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

/// The interesting words: queue cursors, queue entries, slot words, lengths; or any word of the block.
void overwrite(ControlBlock& block, const Limits& limits, Input& input) {
  const auto kind = input.take<std::uint8_t>();
  const auto where = input.take<std::uint16_t>();
  const auto value = input.take<std::uint64_t>();
  const bool published = (kind & 0x80U) != 0;
  Cursors& queue = published ? block.published : block.freed;
  const auto entry_of = [&](std::uint64_t ticket) -> std::atomic<std::uint64_t>& {
    const std::uint64_t index = ticket & limits.mask;
    return published ? block.slot[index].entry : block.freed_entries[index];
  };
  Slot& slot = block.slot[where % limits.slots];
  switch (kind % 8U) {
    case 0:
      queue.pushed.value = value;
      break;
    case 1:
      queue.popped.value = value;
      break;
    case 2:
      entry_of(where) = value;
      break;
    case 3:  // An entry that fits the cursor, naming any slot.
      entry_of(queue.popped.value) = entry::pack(queue.popped.value, value & 0xffU);
      break;
    case 4:  // A word that fits the oldest entry.
      (published ? slot.word : block.reading[where % limits.slots]).value =
          pack({value >> 8U, static_cast<Phase>(value & 3U)});
      break;
    case 5:
      slot.info.bytes = value;
      break;
    default: {
      auto* bytes = reinterpret_cast<unsigned char*>(&block);
      std::memcpy(bytes + where % (sizeof block / 8) * 8, &value, 8);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::uint32_t slots = min_slots + input.take<std::uint8_t>() % (max_slots - min_slots + 1);
  const Limits limits = Limits::of(slots, 1 + input.take<std::uint16_t>());
  const auto memory = std::make_unique<ControlBlock>();
  ControlBlock& block = *memory;
  SeenEntries seen;
  for (std::uint32_t slot = 0; slot < slots; ++slot) expect(push(FreedQueue{block}, limits, slot));

  while (!input.done()) {
    std::uint32_t slot = input.take<std::uint8_t>() % slots;
    const std::uint32_t any = slot;
    FrameInfo info;
    switch (input.take<std::uint8_t>() % 9U) {
      case 0:
      case 1:
        overwrite(block, limits, input);
        break;
      case 2:
        if (take_free(block, limits, seen, slot) != Take::taken) break;
        expect(slot < slots);
        mark(block, slot, Phase::leased);
        info.bytes = input.take<std::uint16_t>() % (limits.slot_bytes + 1);
        expect_publish(block, limits, slot);
        (void)ring::publish(block, limits, slot, info, 0);
        break;
      case 3:
        if (take_published(block, limits, slot, info) != Take::taken) break;
        expect(slot < slots && info.bytes <= limits.slot_bytes);
        break;
      case 4:
        if (take_back(block, limits, slot, [&](std::uint32_t asked) { return asked < slots && asked % 8 != 7; }) ==
            Take::taken) {
          expect(slot < slots && slot % 8 != 7);
        }
        break;
      case 5:
        release_reader(block, limits, any);
        break;
      case 6:
        mark(block, any, Phase::none);
        break;
      case 7:
        drop_published(block, limits);
        break;
      default:
        if (take_free(block, limits, seen, slot) == Take::taken) expect(slot < slots);
    }
  }
  return 0;
}
