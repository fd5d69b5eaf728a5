// SPDX-License-Identifier: MIT
#include "kernel/cache/cache_entry.hpp"

#include <cstring>
#include <type_traits>

namespace gpumap {
namespace {

constexpr std::array<char, 8> magic{'g', 'p', 'u', 'm', 'a', 'p', 'K', 'C'};
constexpr std::uint64_t version = 1;

struct Head {
  std::array<char, 8> magic;
  std::uint64_t version;
  Digest key;
  std::uint64_t code_bytes;
  std::uint64_t listing_bytes;
};
static_assert(sizeof(Head) == 64 && std::has_unique_object_representations_v<Head>);

std::string_view view_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::string format_entry(const Digest& key, const Compiled& compiled) {
  const Head head{magic, version, key, compiled.code.size(), compiled.listing.size()};
  std::string bytes;
  bytes.reserve(sizeof head + compiled.code.size() + compiled.listing.size() + sizeof(Digest));
  bytes.append(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += compiled.code;
  bytes += compiled.listing;
  bytes += view_of(sha256(bytes));
  return bytes;
}

std::optional<Compiled> parse_entry(std::string_view bytes, const Digest& key) {
  if (bytes.size() < sizeof(Head) + sizeof(Digest)) return {};
  Head head;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != magic || head.version != version || head.key != key) return {};
  // Each is compared on its own first: their sum may wrap.
  const std::uint64_t room = bytes.size() - sizeof(Head) - sizeof(Digest);
  if (head.code_bytes > room || head.listing_bytes != room - head.code_bytes) return {};
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(Digest));
  if (bytes.substr(body.size()) != view_of(sha256(body))) return {};
  return Compiled{.code = std::string(body.substr(sizeof(Head), head.code_bytes)),
                  .listing = std::string(body.substr(sizeof(Head) + head.code_bytes))};
}

}  // namespace gpumap
