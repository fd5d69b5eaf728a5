// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernel/cache/code_cache.hpp"

// A fuzzer does not guess a checksum: the right one is put at the end of every second input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using gpumap::Digest;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  Digest key{};
  // Where an entry names its key.
  if (constexpr std::size_t key_at = 16; size >= key_at + key.size())
    std::memcpy(key.data(), data + key_at, key.size());
  static_cast<void>(gpumap::parse_entry(bytes, key));
  const Digest checksum = gpumap::sha256(bytes);
  bytes.append(reinterpret_cast<const char*>(checksum.data()), checksum.size());
  // What is taken must be the only way to write what was read.
  const auto compiled = gpumap::parse_entry(bytes, key);
  if (compiled && gpumap::format_entry(key, *compiled) != bytes) std::abort();
  return 0;
}
