// SPDX-License-Identifier: MIT
// Any bytes as a message of the link: what is taken for one is in range, and is encoded to the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "link/wire.hpp"

namespace {

using namespace gpumap;        // NOLINT
using namespace gpumap::link;  // NOLINT

void expect(bool holds) {
  if (!holds) std::abort();
}

bool within(std::string_view text, const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(text.data());
  return text.empty() || (begin >= data && begin + text.size() <= data + size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  bool other_version = false;
  const auto message = parse(bytes, &other_version);
  if (!message) return 0;
  expect(!other_version && size <= largest_message);
  Bytes again;
  if (const auto* hello = std::get_if<Hello>(&message->body)) {
    expect(hello->leak <= 2 && std::strlen(hello->name.data()) < name_bytes);
    again = encode(message->generation, *hello);
  } else if (const auto* welcome = std::get_if<Welcome>(&message->body)) {
    expect(welcome->client < max_link_clients && welcome->slots >= min_slots && welcome->slots <= max_slots);
    std::uint64_t end = 0;
    expect(!__builtin_mul_overflow(welcome->slot_stride, welcome->slots, &end) && end <= welcome->memory.bytes);
    expect(!__builtin_add_overflow(welcome->memory.base, welcome->memory.bytes, &end) &&
           end <= welcome->memory.allocation_bytes);
    again = encode(message->generation, *welcome);
  } else if (const auto* data_message = std::get_if<Data>(&message->body)) {
    expect(data_message->payload.size() <= max_part && data_message->head.rest <= max_link_message);
    again = encode_data(message->generation, data_message->head, data_message->payload);
  } else if (const auto* ask = std::get_if<Ask>(&message->body)) {
    expect(ask->payload.size() <= max_link_question);
    again = encode_ask(message->generation, ask->head, ask->payload);
  } else if (const auto* answer = std::get_if<Answer>(&message->body)) {
    expect(answer->payload.size() <= max_link_answer);
    again = encode_answer(message->generation, answer->head, answer->payload);
  } else if (const auto* refuse = std::get_if<Refuse>(&message->body)) {
    expect(within(refuse->text, data, size) && refuse->text.size() <= text_bytes);
    return 0;  // what is behind the text is not kept
  } else if (const auto* bye = std::get_if<Bye>(&message->body)) {
    expect(within(bye->text, data, size) && bye->text.size() <= text_bytes);
    return 0;
  } else if (const auto* report = std::get_if<Report>(&message->body)) {
    const RingFigures& ring = report->ring;
    expect(size <= largest_report && ring.slots >= min_slots && ring.slots <= max_slots && ring.queued <= ring.slots);
    expect(ring.busy <= ring.slots && ring.transport <= 3 && std::strlen(ring.program.data()) < name_bytes);
    std::vector<ClientFigures> clients;
    for (std::uint32_t number = 0; number < ring.clients; ++number) {
      const ClientFigures client = report->client(number);
      expect(client.leak <= 2 && client.index < max_link_clients && client.slots <= ring.slots);
      expect(clients.empty() || clients.back().index < client.index);
      expect(std::strlen(client.name.data()) < name_bytes);
      clients.push_back(client);
    }
    again = encode_report(message->generation, ring, clients);
  } else if (std::holds_alternative<Observe>(message->body)) {
    again = encode(message->generation, Observe{});
  } else {
    again = encode(message->generation, Look{});
  }
  expect(again.size() == size && std::memcmp(again.data(), data, size) == 0);
  return 0;
}
