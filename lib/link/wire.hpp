// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/link.hpp"
#include "gpumap/link_report.hpp"

namespace gpumap::link {

/// What crosses the socket. One SOCK_SEQPACKET message is one Header and one body, which have a fixed size except for
/// the bytes at the end of `data`. Numbers have this machine's byte order: both ends are on it.
///
///     client                                              server
///     connect()                                           accept(): user and process (SO_PEERCRED, from the kernel)
///                                          ◀── refuse     another user; too many; it closes
///     hello: leak, name, generation   ──▶                 within a second, or it closes
///                                          ◀── refuse     another version or generation, may not stall; it closes
///     maps both                            ◀── welcome    with two descriptors: slots' memory, the client's block
///     knows the current state              ◀── data …     messages that are kept
///         ·                                    ·
///         ·  frames cross in the block and in the slots, without the socket
///         ·                                    ·
///     in order, by `before`                ◀── data       a message
///     at once                              ◀── data       one that overtakes frames (before = at_once)
///                                              data …     a long message, in parts
///     takes what is left of the ring       ◀── ring       another ring follows, in order: two descriptors as with
///     before, then maps both                              welcome; or none follows for now
///     ask                             ──▶                 for the application: a question, or information
///     finds the caller by `number`         ◀── answer     none for number 0; empty where the application has none
///     wakes                                ◀── look       only where the client said that it sleeps
///     look                            ──▶                 wakes: only where the server said that it wants it, and
///                                                         when the client has come to another ring
///     bye                             ──▶                 shows it no more; what it holds comes back through the block
///     learns why                           ◀── bye        it lied, stalled, or the server ends; then it closes.
///     close(), or death               ──▶                 hang-up: all that it had is free
///     hang-up: takes what it was shown,    ◀──            close(), or death
///     then `closed`
///
///     observer                                            server
///     connect()                                           accept(): as for a client
///                                          ◀── refuse     the same, and for another version; it closes
///     observe                         ──▶                 within a second, or it closes
///     the figures                          ◀── report     if there is room for it, at once; it closes. An observer is
///                                                         no client: no block, no descriptors, no index
///
/// A client sends hello, look, ask and bye, and no descriptors. An observer sends only observe. Each message has the
/// server's `generation`; a message with another generation ends the connection. In hello it is the generation that the
/// client wants, or 0.

inline constexpr std::uint32_t wire_magic = 0x6b6c'7067;  // "gplk" in memory
inline constexpr std::uint16_t wire_version = 6;

enum class MessageType : std::uint16_t {
  hello = 1,
  welcome = 2,
  refuse = 3,
  look = 4,
  data = 5,
  bye = 6,
  ask = 7,
  answer = 8,
  observe = 9,
  report = 10,
  ring = 11,
};

struct Header {
  std::uint32_t magic = wire_magic;
  std::uint16_t version = wire_version;
  std::uint16_t type = 0;
  std::uint32_t bytes = 0;  ///< of the whole message
  std::uint32_t zero = 0;
  std::uint64_t generation = 0;
};

inline constexpr std::size_t name_bytes = 64;  ///< with at least one zero at the end
struct Hello {
  std::uint32_t leak = 0;
  std::uint32_t zero = 0;
  std::array<char, name_bytes> name{};
};

enum class MemoryKind : std::uint32_t {
  memfd = 1,   ///< host memory, sealed against writing
  opaque = 2,  ///< a dedicated Vulkan allocation, as VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
};

/// How to import the slots' memory.
struct MemoryOffer {
  std::uint32_t kind = 0;
  std::uint32_t memory_type = 0;  ///< Vulkan's, for opaque
  std::uint64_t bytes = 0;        ///< of the mapping
  std::uint64_t allocation_bytes = 0;
  std::uint64_t buffer_bytes = 0;  ///< of the exporter's Vulkan buffer on it, for opaque
  std::uint64_t base = 0;          ///< where in the allocation the mapping starts
  Uuid device{};                   ///< for opaque
};

struct Welcome {
  std::uint32_t client = 0;
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slot_stride = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t first_ticket = 0;
  MemoryOffer memory;
};

enum class Why : std::uint32_t {
  ended = 1,
  full = 2,
  not_allowed = 3,
  lied = 4,
  stalled = 5,
  stale = 6,
  version = 7,
};
inline constexpr std::size_t text_bytes = 240;
/// Refuse and bye.
struct Reason {
  std::uint32_t why = 0;
  std::uint32_t length = 0;
  std::array<char, text_bytes> text{};
};

struct DataHead {
  std::uint64_t number = 0;  ///< 1, 2, … for each client
  std::uint64_t before = 0;  ///< the ticket of the frame that it precedes, or at_once
  std::uint64_t rest = 0;    ///< bytes of the same message that the following ones carry
};
inline constexpr std::size_t max_part = max_link_answer;     ///< bytes of an application's message that fit into one
inline constexpr std::uint64_t at_once = ~std::uint64_t{0};  ///< no ticket: those have 54 bits

struct NextRing {
  DataHead head;
  Welcome ring;  ///< `slots` 0: there is none for now
};

/// Ask and answer.
struct AskHead {
  std::uint64_t number = 0;  ///< 1, 2, … for each client; 0: no answer is wanted
};

/// What a report says about the ring. `clients` ClientFigures follow, with rising indices. All figures are the server's
/// private ones; only names and policies come from clients.
struct RingFigures {
  std::uint64_t at_ns = 0;   ///< CLOCK_MONOTONIC
  std::uint64_t frames = 0;  ///< handed on since the server began, counted once for all clients
  std::uint64_t bytes = 0;   ///< of those
  std::uint64_t unseen = 0;  ///< frames of those that no client was shown
  std::uint64_t dropped = 0;
  std::uint64_t slot_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t queued = 0;
  std::uint32_t busy = 0;
  std::uint32_t transport = 0;
  std::uint32_t stamps = 0;  ///< 1: latencies are taken
  std::uint32_t clients = 0;
  std::array<char, name_bytes> program{};
};
struct ClientFigures {
  std::uint64_t connection = 0;
  std::uint64_t shown = 0;
  std::uint64_t dropped = 0;
  std::uint64_t lag = 0;     ///< frames
  std::uint64_t lag_ns = 0;  ///< age of the oldest frame that it has
  std::uint64_t timed = 0;   ///< frames that came back while latencies were taken
  std::uint64_t timed_ns = 0;
  std::uint32_t index = 0;
  std::uint32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t leak = 0;
  std::uint32_t slots = 0;
  std::uint32_t zero = 0;
  std::array<char, name_bytes> name{};
  std::array<std::uint32_t, LinkTimeSteps::count> times{};  ///< of those that were timed, how many took how long
};

static_assert(sizeof(RingFigures) == 136 && sizeof(ClientFigures) == 144 + 272 * 4);
inline constexpr std::size_t largest_report =
    sizeof(Header) + sizeof(RingFigures) + max_link_clients * sizeof(ClientFigures);

static_assert(sizeof(Header) == 24 && sizeof(Hello) == 72 && sizeof(MemoryOffer) == 56 && sizeof(Welcome) == 96);
static_assert(sizeof(Reason) == 248 && sizeof(DataHead) == 24 && sizeof(NextRing) == 120 && sizeof(AskHead) == 8);
inline constexpr std::size_t largest_message = sizeof(Header) + sizeof(DataHead) + max_part;
inline constexpr std::size_t largest_of_client = sizeof(Header) + sizeof(AskHead) + max_link_question;

struct Look {};
struct Observe {};
struct Refuse {
  Why why;
  std::string_view text;
};
struct Bye {
  Why why;
  std::string_view text;
};
struct Data {
  DataHead head;
  std::span<const std::byte> payload;
};
struct Ask {
  AskHead head;
  std::span<const std::byte> payload;
};
struct Answer {
  AskHead head;
  std::span<const std::byte> payload;
};
struct Report {
  RingFigures ring;
  std::span<const std::byte> clients;
  [[nodiscard]] ClientFigures client(std::size_t number) const noexcept;  ///< below ring.clients
};
/// One message, checked: enumerations and lengths are in range, texts are printable UTF-8. Views point into what was
/// parsed.
struct Message {
  std::uint64_t generation = 0;
  std::variant<Look, Hello, Welcome, Refuse, Data, NextRing, Bye, Ask, Answer, Observe, Report> body;
};

/// Empty when `bytes` are no valid message. `other_version` is set when only the version is wrong.
[[nodiscard]] std::optional<Message> parse(std::span<const std::byte> bytes, bool* other_version = nullptr) noexcept;

/// Whether the kind of memory is known, and the sizes agree and do not overflow.
[[nodiscard]] bool plausible(const Welcome& welcome) noexcept;

using Bytes = std::vector<std::byte>;
[[nodiscard]] Bytes encode(std::uint64_t generation, const Hello& hello);
[[nodiscard]] Bytes encode(std::uint64_t generation, const Welcome& welcome);
[[nodiscard]] Bytes encode(std::uint64_t generation, const NextRing& next);
[[nodiscard]] Bytes encode(std::uint64_t generation, const Look& look);
[[nodiscard]] Bytes encode(std::uint64_t generation, const Observe& observe);
/// `ring.clients` is taken from `clients`.
[[nodiscard]] Bytes encode_report(std::uint64_t generation, RingFigures ring, std::span<const ClientFigures> clients);
/// As much of `text` as can be printed and has room, as a name on the wire.
[[nodiscard]] std::array<char, name_bytes> to_name(std::string_view text) noexcept;
/// MessageType::refuse or bye. Bytes of `text` beyond the limit, or not printable, are left out.
[[nodiscard]] Bytes encode_reason(std::uint64_t generation, MessageType type, Why why, std::string_view text);
[[nodiscard]] Bytes encode_data(std::uint64_t generation, const DataHead& head, std::span<const std::byte> payload);

[[nodiscard]] Bytes encode_ask(std::uint64_t generation, const AskHead& head, std::span<const std::byte> payload);
[[nodiscard]] Bytes encode_answer(std::uint64_t generation, const AskHead& head, std::span<const std::byte> payload);

}  // namespace gpumap::link
