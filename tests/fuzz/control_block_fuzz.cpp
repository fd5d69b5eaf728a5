// SPDX-License-Identifier: MIT
// A peer writes anything anywhere into a ring's control block between the steps that this side makes. Nothing that
// comes back may be out of range, no step may hang, and (AddressSanitizer) none may touch what is not the block's.
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
  SlotQueue& queue = (kind & 0x80U) != 0 ? block.published : block.freed;
  Slot& slot = block.slot[where % limits.slots];
  switch (kind % 8U) {
    case 0:
      queue.pushed.value = value;
      break;
    case 1:
      queue.popped.value = value;
      break;
    case 2:
      queue.entries[where & limits.mask] = value;
      break;
    case 3:  // An entry that fits the cursor, naming any slot.
      queue.entries[queue.popped.value & limits.mask] = entry::pack(queue.popped.value, value & 0xffU);
      break;
    case 4:  // A word that fits the oldest entry.
      slot.word.value = pack({value >> 8U, static_cast<Writer>(value >> 2U & 3U), static_cast<Reader>(value & 3U)});
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
  for (std::uint32_t slot = 0; slot < slots; ++slot) expect(push(block.freed, limits, slot));

  while (!input.done()) {
    std::uint32_t slot = input.take<std::uint8_t>() % slots;
    const std::uint32_t any = slot;
    FrameInfo info;
    bool claimed = false;
    switch (input.take<std::uint8_t>() % 9U) {
      case 0:
      case 1:
        overwrite(block, limits, input);
        break;
      case 2:
        if (take_free(block, limits, slot) != Take::taken) break;
        expect(slot < slots);
        if (!claim(block, slot)) break;
        info.bytes = input.take<std::uint16_t>() % (limits.slot_bytes + 1);
        (void)ring::publish(block, limits, slot, info);
        break;
      case 3:
        if (take_published(block, limits, slot, info) != Take::taken) break;
        expect(slot < slots && info.bytes <= limits.slot_bytes);
        break;
      case 4:
        if (take_back(block, limits, slot, claimed) == Take::taken) expect(slot < slots);
        break;
      case 5:
        release_reader(block, limits, any);
        break;
      case 6:
        release_writer(block, limits, any);
        break;
      case 7:
        drop_published(block, limits);
        break;
      default:
        if (take_free(block, limits, slot) == Take::taken) expect(slot < slots);
    }
  }
  return 0;
}
