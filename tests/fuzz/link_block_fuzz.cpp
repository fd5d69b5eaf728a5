// SPDX-License-Identifier: MIT
// Hostile clients, and a hostile server, write anything anywhere into their blocks between the steps of the other side.
// No slot may be free twice or while somebody has it, no index may be out of range, nothing may hang; and an honest
// client among liars gets every frame that it is shown, once.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "link/fan_out.hpp"

namespace {

using namespace gpumap;        // NOLINT
using namespace gpumap::link;  // NOLINT

using Word = std::atomic<std::uint64_t>;

void expect(bool holds) {
  if (!holds) std::abort();
}

/// The input, word for word; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool done() const { return left_ == 0; }
  template <typename One>
  One take() {
    One one{};
    const std::size_t bytes = left_ < sizeof one ? left_ : sizeof one;
    if (bytes > 0) std::memcpy(&one, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return one;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

struct Free {
  std::array<bool, max_slots>* free;
  void operator()(std::uint32_t slot) const {
    expect(!(*free)[slot]);
    (*free)[slot] = true;
  }
};

/// Words that fit what is there, nearly fit, or are anything.
void overwrite(ClientBlock& block, std::uint32_t slots, Input& input) {
  const auto kind = input.take<std::uint8_t>();
  const std::uint32_t slot = input.take<std::uint8_t>() % slots;
  const auto ticket = input.take<std::uint8_t>();
  switch (kind % 6U) {
    case 0:
      block.returned[slot] = Entry{ticket, slot, Offer::taken}.word();
      ++block.returns;
      break;
    case 1:
      block.entry[ticket & (entries_for(slots) - 1)] =
          Entry{ticket, slot, static_cast<Offer>(input.take<std::uint8_t>() & 3U)}.word();
      break;
    case 2:
      block.returned[slot] = block.entry[ticket & (entries_for(slots) - 1)].load();
      break;
    case 3:
      block.shown[slot].info.bytes = block.shown[slot].note_bytes = input.take<std::uint64_t>();
      break;
    case 4:
      block.asleep = block.wanted = input.take<std::uint64_t>();
      break;
    default: {
      const auto value = input.take<std::uint64_t>();
      std::memcpy(reinterpret_cast<unsigned char*>(&block) + input.take<std::uint16_t>() % (sizeof block / 8) * 8,
                  &value, 8);
    }
  }
}

/// Client 0 is honest, the others lie.
void as_a_server(Input& input) {
  const std::uint32_t slots = min_slots + input.take<std::uint8_t>() % 15;
  std::array<bool, max_slots> free{};
  for (std::uint32_t slot = 0; slot < slots; ++slot) free[slot] = true;
  FanOut<Word, Free> fan(slots, input.take<std::uint8_t>() % 4, Free{&free});
  constexpr std::uint32_t liars = 3;
  std::vector<std::unique_ptr<ClientBlock>> blocks(1 + liars);
  for (auto& block : blocks) block = std::make_unique<ClientBlock>();
  Claims<Word> honest(*blocks[0], slots, 1000);
  fan.join(0, *blocks[0], LinkLeak::no);
  std::uint64_t published = 0;
  std::uint64_t received = 0;
  std::vector<std::uint32_t> held;

  while (!input.done()) {
    const auto what = input.take<std::uint8_t>();
    const std::uint32_t liar = 1 + what / 16U % liars;
    switch (what % 8U) {
      case 0:
        if (!fan.client(liar)) {
          blocks[liar] = std::make_unique<ClientBlock>();
          fan.join(liar, *blocks[liar], static_cast<LinkLeak>(input.take<std::uint8_t>() % 3));
        }
        break;
      case 1:
      case 2:
        overwrite(*blocks[liar], slots, input);
        break;
      case 3: {
        std::uint32_t slot = 0;
        while (slot < slots && !free[slot]) ++slot;
        if (slot == slots) {
          static_cast<void>(fan.make_room(false));
          fan.want_returns();
          break;
        }
        free[slot] = false;
        Shown shown;
        shown.info.sequence = published++;
        fan.publish(
            slot, [&](std::uint32_t) -> const Shown& { return shown; }, [](std::uint32_t) {});
        expect(!free[slot] && (fan.holders(slot) & 1U) != 0);
        break;
      }
      case 4:
        for (std::uint32_t index = 0; index <= liars; ++index) {
          if (fan.reclaim(index, (what & 16U) != 0)) continue;
          expect(index != 0);
          fan.leave(index);
        }
        break;
      case 5: {
        Claimed frame;
        const Claim claim = honest.claim(frame);
        expect(claim != Claim::lie);
        if (claim != Claim::got) {
          expect(received == published);
          break;
        }
        expect(frame.shown.info.sequence == received && !free[frame.slot]);
        ++received;
        held.push_back(frame.slot);
        break;
      }
      case 6:
        if (held.empty()) break;
        static_cast<void>(honest.give_back(held.back()));
        held.pop_back();
        break;
      default:
        fan.leave(liar);
    }
    for (const std::uint32_t slot : held) expect(!free[slot]);
  }
  for (std::uint32_t index = 0; index <= liars; ++index) fan.leave(index);
  for (std::uint32_t slot = 0; slot < slots; ++slot) expect(free[slot]);
}

void as_a_client(Input& input) {
  const std::uint32_t slots = min_slots + input.take<std::uint8_t>() % 15;
  const auto block = std::make_unique<ClientBlock>();
  Claims<Word> claims(*block, slots, 1000);
  std::array<bool, max_slots> held{};
  while (!input.done()) {
    const auto what = input.take<std::uint8_t>();
    const std::uint32_t slot = what / 4U % slots;
    switch (what % 4U) {
      case 0:
      case 1:
        overwrite(*block, slots, input);
        break;
      case 2: {
        Claimed frame;
        if (claims.claim(frame) != Claim::got) break;
        expect(frame.slot < slots && !held[frame.slot] && frame.shown.info.bytes <= 1000 &&
               frame.shown.note_bytes <= max_link_note);
        held[frame.slot] = true;
        break;
      }
      default:
        static_cast<void>(claims.give_back(slot));
        held[slot] = false;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  if ((input.take<std::uint8_t>() & 1U) != 0) {
    as_a_client(input);
  } else {
    as_a_server(input);
  }
  return 0;
}
