// SPDX-License-Identifier: MIT
#include "kernel/compile/spirv_constants.hpp"

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <vector>

namespace gpumap {
namespace {

// SPIR-V specification, sections 2.3, 3.31 and 3.49.
constexpr std::size_t header_words = 5;
constexpr std::uint32_t op_capability = 17, op_type_int = 21, op_type_float = 22;
constexpr std::uint32_t op_constant = 43, op_constant_null = 46;
constexpr std::uint32_t float16 = 9, int16 = 22, int8 = 39;

}  // namespace

std::string with_capabilities_of_constants(std::string spirv) {
  std::vector<std::uint32_t> words(spirv.size() / sizeof(std::uint32_t));
  if (words.empty()) return spirv;
  std::memcpy(words.data(), spirv.data(), words.size() * sizeof(std::uint32_t));
  std::map<std::uint32_t, std::uint32_t> needed_by;  // type: capability
  std::set<std::uint32_t> needed, declared;
  for (std::size_t at = header_words; at < words.size();) {
    const std::size_t length = words[at] >> 16;
    if (length == 0 || length > words.size() - at) return spirv;  // whoever loads it says so
    const std::uint32_t opcode = words[at] & 0xFFFF;
    const std::uint32_t first = length > 1 ? words[at + 1] : 0;
    const std::uint32_t second = length > 2 ? words[at + 2] : 0;
    if (opcode == op_capability) declared.insert(first);
    if (opcode == op_type_int && second == 8) needed_by[first] = int8;
    if (opcode == op_type_int && second == 16) needed_by[first] = int16;
    if (opcode == op_type_float && second == 16) needed_by[first] = float16;
    const bool constant = opcode == op_constant || opcode == op_constant_null;
    if (const auto type = needed_by.find(first); constant && type != needed_by.end()) needed.insert(type->second);
    at += length;
  }
  for (const std::uint32_t capability : needed) {
    if (declared.contains(capability)) continue;
    const std::uint32_t instruction[] = {2U << 16 | op_capability, capability};
    spirv.insert(header_words * sizeof(std::uint32_t), reinterpret_cast<const char*>(instruction), sizeof(instruction));
  }
  return spirv;
}

}  // namespace gpumap
