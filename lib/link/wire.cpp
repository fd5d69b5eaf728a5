// SPDX-License-Identifier: MIT
#include "link/wire.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "gpumap/printable.hpp"

namespace gpumap::link {
namespace {

/// As much of `text` as can be printed on a terminal and has room.
template <std::size_t room>
std::size_t copy_printable(std::string_view text, std::array<char, room>& to, std::size_t most) noexcept {
  std::size_t length = 0;
  while (!text.empty()) {
    const std::size_t bytes = printable_bytes(text);
    if (bytes > most - length) break;
    std::copy_n(text.begin(), bytes, to.begin() + length);
    length += bytes;
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return length;
}

template <typename Body>
Bytes encode_fixed(std::uint64_t generation, MessageType type, const Body* body, std::size_t body_bytes,
                   std::span<const std::byte> tail = {}) {
  Header header;
  header.type = static_cast<std::uint16_t>(type);
  header.bytes = static_cast<std::uint32_t>(sizeof header + body_bytes + tail.size());
  header.generation = generation;
  Bytes bytes(header.bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (body_bytes > 0) std::memcpy(bytes.data() + sizeof header, body, body_bytes);
  if (!tail.empty()) std::memcpy(bytes.data() + sizeof header + body_bytes, tail.data(), tail.size());
  return bytes;
}

template <typename Body>
bool take(std::span<const std::byte> bytes, Body& body) noexcept {
  if (bytes.size() != sizeof body) return false;
  std::memcpy(&body, bytes.data(), sizeof body);
  return true;
}

bool is_name(const std::array<char, name_bytes>& name) noexcept {
  const auto* const end = std::find(name.begin(), name.end(), '\0');
  return end != name.end() && is_printable({name.data(), static_cast<std::size_t>(end - name.begin())}) &&
         std::all_of(end, name.end(), [](char one) { return one == '\0'; });
}
bool is_leak(std::uint32_t leak) noexcept {
  return leak <= static_cast<std::uint32_t>(LinkLeak::oldest);
}

bool sound(const Hello& hello) noexcept {
  return is_leak(hello.leak) && hello.zero == 0 && is_name(hello.name);
}

/// Whether a time, or a sum of times, also fits into a signed number.
bool is_time(std::uint64_t ns) noexcept {
  return ns <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
}

bool sound(const RingFigures& ring) noexcept {
  return is_time(ring.at_ns) && ring.slots >= min_slots && ring.slots <= max_slots && ring.queued <= ring.slots &&
         ring.busy <= ring.slots && ring.slot_bytes > 0 &&
         ring.transport <= static_cast<std::uint32_t>(Transport::pageable) && ring.stamps <= 1 &&
         ring.clients <= max_link_clients && is_name(ring.program);
}

std::optional<Report> take_report(std::span<const std::byte> bytes) noexcept {
  Report report;
  if (bytes.size() < sizeof report.ring || !take(bytes.first(sizeof report.ring), report.ring) || !sound(report.ring)) {
    return std::nullopt;
  }
  report.clients = bytes.subspan(sizeof report.ring);
  if (report.clients.size() != report.ring.clients * sizeof(ClientFigures)) return std::nullopt;
  std::uint32_t least = 0;
  for (std::uint32_t number = 0; number < report.ring.clients; ++number) {
    const ClientFigures client = report.client(number);
    if (client.index < least || client.index >= max_link_clients || client.slots > report.ring.slots) {
      return std::nullopt;
    }
    if (!is_leak(client.leak) || client.zero != 0 || !is_name(client.name)) return std::nullopt;
    if (!is_time(client.lag_ns) || !is_time(client.timed_ns)) return std::nullopt;
    least = client.index + 1;
  }
  return report;
}

template <typename Kind>
std::optional<Kind> take_reason(std::span<const std::byte> bytes) noexcept {
  Reason reason;
  if (!take(bytes, reason) || reason.length > text_bytes) return std::nullopt;
  if (reason.why < static_cast<std::uint32_t>(Why::ended) || reason.why > static_cast<std::uint32_t>(Why::version)) {
    return std::nullopt;
  }
  if (!is_printable({reason.text.data(), reason.length})) return std::nullopt;
  const auto* const text = reinterpret_cast<const char*>(bytes.data()) + offsetof(Reason, text);
  return Kind{static_cast<Why>(reason.why), {text, reason.length}};
}

template <typename Kind>
std::optional<Kind> take_text(std::span<const std::byte> bytes, std::size_t most) noexcept {
  Kind kind;
  if (bytes.size() < sizeof kind.head || bytes.size() - sizeof kind.head > most) return std::nullopt;
  std::memcpy(&kind.head, bytes.data(), sizeof kind.head);
  kind.payload = bytes.subspan(sizeof kind.head);
  return kind;
}

}  // namespace

std::optional<Message> parse(std::span<const std::byte> bytes, bool* other_version) noexcept {
  Header header;
  if (bytes.size() < sizeof header || bytes.size() > largest_message) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != wire_magic || header.bytes != bytes.size() || header.zero != 0) return std::nullopt;
  if (header.version != wire_version) {
    if (other_version != nullptr) *other_version = true;
    return std::nullopt;
  }
  const auto rest = bytes.subspan(sizeof header);
  Message message;
  message.generation = header.generation;
  switch (static_cast<MessageType>(header.type)) {
    case MessageType::hello: {
      Hello hello;
      if (!take(rest, hello) || !sound(hello)) return std::nullopt;
      message.body = hello;
      return message;
    }
    case MessageType::welcome: {
      Welcome welcome;
      if (!take(rest, welcome) || !plausible(welcome)) return std::nullopt;
      message.body = welcome;
      return message;
    }
    case MessageType::look:
      if (!rest.empty()) return std::nullopt;
      message.body = Look{};
      return message;
    case MessageType::refuse: {
      const auto refuse = take_reason<Refuse>(rest);
      if (!refuse) return std::nullopt;
      message.body = *refuse;
      return message;
    }
    case MessageType::bye: {
      const auto bye = take_reason<Bye>(rest);
      if (!bye) return std::nullopt;
      message.body = *bye;
      return message;
    }
    case MessageType::data: {
      const auto data = take_text<Data>(rest, max_part);
      if (!data || data->head.rest > max_link_message) return std::nullopt;
      message.body = *data;
      return message;
    }
    case MessageType::ring: {
      NextRing next;
      if (!take(rest, next) || next.head.rest != 0 || (next.ring.slots != 0 && !plausible(next.ring))) {
        return std::nullopt;
      }
      message.body = next;
      return message;
    }
    case MessageType::ask: {
      const auto ask = take_text<Ask>(rest, max_link_question);
      if (!ask) return std::nullopt;
      message.body = *ask;
      return message;
    }
    case MessageType::answer: {
      const auto answer = take_text<Answer>(rest, max_link_answer);
      if (!answer) return std::nullopt;
      message.body = *answer;
      return message;
    }
    case MessageType::observe:
      if (!rest.empty()) return std::nullopt;
      message.body = Observe{};
      return message;
    case MessageType::report: {
      const auto report = take_report(rest);
      if (!report) return std::nullopt;
      message.body = *report;
      return message;
    }
  }
  return std::nullopt;
}

bool plausible(const Welcome& welcome) noexcept {
  constexpr std::uint64_t page = 4096;
  const MemoryOffer& memory = welcome.memory;
  if (welcome.client >= max_link_clients || welcome.slots < min_slots || welcome.slots > max_slots) return false;
  if (welcome.slot_bytes == 0 || welcome.slot_stride % page != 0 || welcome.slot_bytes > welcome.slot_stride) {
    return false;
  }
  if (welcome.slot_stride > std::numeric_limits<std::uint64_t>::max() / welcome.slots) return false;
  if (memory.kind != static_cast<std::uint32_t>(MemoryKind::memfd) &&
      memory.kind != static_cast<std::uint32_t>(MemoryKind::opaque)) {
    return false;
  }
  return memory.memory_type < 32 && memory.bytes >= welcome.slot_stride * welcome.slots &&
         memory.base <= memory.allocation_bytes && memory.bytes <= memory.allocation_bytes - memory.base;
}

Bytes encode(std::uint64_t generation, const Hello& hello) {
  return encode_fixed(generation, MessageType::hello, &hello, sizeof hello);
}
Bytes encode(std::uint64_t generation, const Welcome& welcome) {
  return encode_fixed(generation, MessageType::welcome, &welcome, sizeof welcome);
}
Bytes encode(std::uint64_t generation, const NextRing& next) {
  return encode_fixed(generation, MessageType::ring, &next, sizeof next);
}
Bytes encode(std::uint64_t generation, const Look& look) {
  return encode_fixed(generation, MessageType::look, &look, 0);
}

Bytes encode(std::uint64_t generation, const Observe& observe) {
  return encode_fixed(generation, MessageType::observe, &observe, 0);
}

Bytes encode_report(std::uint64_t generation, RingFigures ring, std::span<const ClientFigures> clients) {
  ring.clients = static_cast<std::uint32_t>(clients.size());
  return encode_fixed(generation, MessageType::report, &ring, sizeof ring, std::as_bytes(clients));
}

ClientFigures Report::client(std::size_t number) const noexcept {
  ClientFigures client;
  std::memcpy(&client, clients.data() + number * sizeof client, sizeof client);
  return client;
}

std::array<char, name_bytes> to_name(std::string_view text) noexcept {
  std::array<char, name_bytes> name{};
  copy_printable(text, name, name.size() - 1);
  return name;
}

Bytes encode_reason(std::uint64_t generation, MessageType type, Why why, std::string_view text) {
  Reason reason;
  reason.why = static_cast<std::uint32_t>(why);
  reason.length = static_cast<std::uint32_t>(copy_printable(text, reason.text, text_bytes));
  return encode_fixed(generation, type, &reason, sizeof reason);
}

Bytes encode_data(std::uint64_t generation, const DataHead& head, std::span<const std::byte> payload) {
  return encode_fixed(generation, MessageType::data, &head, sizeof head, payload);
}
Bytes encode_ask(std::uint64_t generation, const AskHead& head, std::span<const std::byte> payload) {
  return encode_fixed(generation, MessageType::ask, &head, sizeof head, payload);
}
Bytes encode_answer(std::uint64_t generation, const AskHead& head, std::span<const std::byte> payload) {
  return encode_fixed(generation, MessageType::answer, &head, sizeof head, payload);
}

}  // namespace gpumap::link
