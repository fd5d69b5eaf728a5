// SPDX-License-Identifier: MIT
//
// The bytes are foreign: every length, string and id is checked before use, and no id indexes an array. The numbers
// are those of the SPIR-V specification, sections 2.3 (layout) and 3 (enumerants).
#include "kernel/compile/spirv.hpp"

#include <fmt/format.h>

#include <spirv-tools/libspirv.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

using Word = std::uint32_t;
using Words = std::span<const Word>;

constexpr Word magic = 0x07230203;
constexpr Word magic_swapped = 0x03022307;
constexpr std::size_t header_words = 5;
constexpr Word max_bound = 0x3FFFFF;  // the specification's universal limit

constexpr Word op_entry_point = 15, op_execution_mode = 16, op_capability = 17;
constexpr Word op_type_int = 21, op_type_float = 22, op_type_vector = 23, op_type_array = 28, op_type_struct = 30;
constexpr Word op_type_pointer = 32, op_variable = 59, op_member_decorate = 72;
constexpr Word op_constant = 43, op_constant_composite = 44, op_spec_constant = 50, op_spec_constant_composite = 51;
constexpr Word op_decorate = 71, op_execution_mode_id = 331;
constexpr Word model_gl_compute = 5;
constexpr Word mode_local_size = 17, mode_local_size_id = 38;
constexpr Word decoration_spec_id = 1, decoration_built_in = 11, built_in_workgroup_size = 25;
constexpr Word decoration_array_stride = 6, decoration_binding = 33, decoration_descriptor_set = 34;
constexpr Word decoration_offset = 35;
constexpr Word storage_uniform_constant = 0, storage_uniform = 2, storage_push_constant = 9,
               storage_atomic_counter = 10;
constexpr Word storage_image = 11, storage_buffer = 12;

constexpr std::uint64_t unknown_size = std::numeric_limits<std::uint64_t>::max();

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::compile, fmt::format("not a usable SPIR-V module: {}; compile it with glslc or "
                                              "glslangValidator for Vulkan",
                                              what));
}

class Parser {
 public:
  explicit Parser(Words words) : words_(words) {}

  SpirvModule parse() {
    bound_ = words_[3];
    if (bound_ == 0 || bound_ > max_bound) fail(fmt::format("its id bound is {}", bound_));
    for (std::size_t at = header_words; at < words_.size();) {
      const std::size_t length = words_[at] >> 16;
      if (length == 0 || length > words_.size() - at) {
        fail(
            fmt::format("the instruction at word {} has length {}, {} words are left", at, length, words_.size() - at));
      }
      at_ = at;
      take(words_[at] & 0xFFFF, words_.subspan(at + 1, length - 1));
      at += length;
    }
    return finish();
  }

 private:
  using Size = std::array<Word, 3>;

  void take(Word opcode, Words operands) {
    switch (opcode) {
      case op_capability:
        need(operands, 1);
        module_.capabilities.push_back(operands[0]);
        break;
      case op_entry_point: {
        need(operands, 3);
        std::string name = literal(operands.subspan(2));
        if (operands[0] == model_gl_compute) entry_points_.emplace_back(id(operands[1]), std::move(name));
        break;
      }
      case op_execution_mode:
        need(operands, 2);
        if (operands[1] == mode_local_size) need(operands, 5), literal_sizes_[id(operands[0])] = three(operands, 2);
        break;
      case op_execution_mode_id:
        need(operands, 2);
        if (operands[1] == mode_local_size_id) need(operands, 5), id_sizes_[id(operands[0])] = three(operands, 2);
        break;
      case op_decorate:
        need(operands, 2);
        if (operands[1] == decoration_spec_id) need(operands, 3), spec_ids_[id(operands[0])] = operands[2];
        if (operands[1] == decoration_built_in) {
          need(operands, 3);
          if (operands[2] == built_in_workgroup_size) workgroup_size_ = id(operands[0]);
        }
        if (operands[1] == decoration_array_stride) need(operands, 3), array_strides_[id(operands[0])] = operands[2];
        if (operands[1] == decoration_binding || operands[1] == decoration_descriptor_set) {
          module_.uses_descriptors = true;
        }
        break;
      case op_member_decorate:
        need(operands, 3);
        if (operands[2] == decoration_offset) {
          need(operands, 4);
          member_offsets_[{id(operands[0]), operands[1]}] = operands[3];
        }
        break;
      case op_variable:
        need(operands, 3);
        take_variable(operands[0], operands[2]);
        break;
      case op_constant:
      case op_spec_constant:
        // Wider constants have more words; none of them is a workgroup size.
        need(operands, 3);
        if (operands.size() == 3) constants_[id(operands[1])] = operands[2];
        break;
      case op_constant_composite:
      case op_spec_constant_composite:
        need(operands, 2);
        if (operands.size() == 5) composites_[id(operands[1])] = three(operands, 2);
        break;
      default:
        take_type(opcode, operands);
    }
  }

  /// Types come before what is made of them, and decorations before types, so a size is known as it is met; what comes
  /// in another order, or is none of these, has no size.
  void take_type(Word opcode, Words operands) {
    switch (opcode) {
      case op_type_int:
      case op_type_float:
        need(operands, 2);
        sizes_[id(operands[0])] = operands[1] / 8;
        break;
      case op_type_vector:
        need(operands, 3);
        sizes_[id(operands[0])] = bounded(size_of(operands[1]), 0, operands[2]);
        break;
      case op_type_array: {
        need(operands, 3);
        const Word* stride = find(array_strides_, operands[0]);
        const Word* length = find(constants_, operands[2]);
        if (stride != nullptr && length != nullptr) sizes_[id(operands[0])] = bounded(*stride, 0, *length);
        break;
      }
      case op_type_struct: {
        need(operands, 1);
        std::uint64_t end = 0;
        for (Word member = 0; member + 1 < operands.size(); ++member) {
          const Word* offset = find(member_offsets_, {operands[0], member});
          const std::uint64_t size = size_of(operands[member + 1]);
          end = std::max(end, offset == nullptr ? unknown_size : bounded(size, *offset));
        }
        sizes_[id(operands[0])] = end;
        break;
      }
      case op_type_pointer:
        need(operands, 3);
        sizes_[id(operands[0])] = sizeof(std::uint64_t);
        pointees_[operands[0]] = operands[2];
        break;
      default:
        break;
    }
  }

  void take_variable(Word type, Word storage) {
    switch (storage) {
      case storage_push_constant: {
        const Word* pointee = find(pointees_, type);
        const std::uint64_t size = pointee == nullptr ? unknown_size : size_of(*pointee);
        module_.push_constant_bytes = std::max(module_.push_constant_bytes, size);
        break;
      }
      case storage_uniform_constant:
      case storage_uniform:
      case storage_atomic_counter:
      case storage_image:
      case storage_buffer:
        module_.uses_descriptors = true;
        break;
      default:
        break;
    }
  }

  [[nodiscard]] std::uint64_t size_of(Word type) const {
    const std::uint64_t* size = find(sizes_, type);
    return size == nullptr ? unknown_size : *size;
  }

  /// size * count + offset; what no push constant can be long enough for counts as unknown.
  static std::uint64_t bounded(std::uint64_t size, Word offset, Word count = 1) {
    constexpr Word most = 0xFFFF;
    return size > most || count > most ? unknown_size : size * count + offset;
  }

  SpirvModule finish() {
    for (auto& [function, name] : entry_points_) {
      ShaderInfo shader{.function = std::move(name)};
      // The specification lets WorkgroupSize win over the execution modes.
      if (const auto* composite = workgroup_size_ ? find(composites_, *workgroup_size_) : nullptr) {
        resolve(*composite, shader);
      } else if (workgroup_size_) {
        fail("its WorkgroupSize is no constant of three numbers");
      } else if (const auto* ids = find(id_sizes_, function)) {
        resolve(*ids, shader);
      } else if (const auto* size = find(literal_sizes_, function)) {
        shader.threads = *size;
      } else {
        fail(fmt::format("entry point '{}' has no workgroup size", shader.function));
      }
      for (const Word threads : shader.threads) {
        if (threads == 0) fail(fmt::format("entry point '{}' has a workgroup of no threads", shader.function));
      }
      module_.shaders.push_back(std::move(shader));
    }
    return std::move(module_);
  }

  void resolve(const Size& ids, ShaderInfo& shader) const {
    shader.threads_from_constants = true;
    for (std::size_t axis = 0; axis < ids.size(); ++axis) {
      const Word* value = find(constants_, ids[axis]);
      if (value == nullptr) fail(fmt::format("id {} of a workgroup size is no 32-bit constant", ids[axis]));
      shader.threads[axis] = *value;
      const Word* spec_id = find(spec_ids_, ids[axis]);
      if (spec_id == nullptr || *spec_id != axis) shader.threads_from_constants = false;
    }
  }

  void need(Words operands, std::size_t count) const {
    if (operands.size() < count) fail(fmt::format("the instruction at word {} is cut short", at_));
  }

  [[nodiscard]] Word id(Word value) const {
    if (value == 0 || value >= bound_) fail(fmt::format("the instruction at word {} names id {}", at_, value));
    return value;
  }

  static Size three(Words operands, std::size_t first) {
    return {operands[first], operands[first + 1], operands[first + 2]};
  }

  /// A zero-terminated string inside its instruction.
  [[nodiscard]] std::string literal(Words operands) const {
    const auto bytes = std::as_bytes(operands);
    const auto* text = reinterpret_cast<const char*>(bytes.data());
    const void* end = std::memchr(text, '\0', bytes.size());
    if (end == nullptr) fail(fmt::format("the name at word {} has no end", at_));
    return {text, static_cast<const char*>(end)};
  }

  template <typename Key, typename Value>
  static const Value* find(const std::map<Key, Value>& map, const std::type_identity_t<Key>& key) {
    const auto found = map.find(key);
    return found == map.end() ? nullptr : &found->second;
  }

  Words words_;
  Word bound_ = 0;
  std::size_t at_ = 0;
  SpirvModule module_;
  std::vector<std::pair<Word, std::string>> entry_points_;
  std::map<Word, Size> literal_sizes_, id_sizes_, composites_;
  std::map<Word, Word> spec_ids_, constants_, array_strides_, pointees_;
  std::map<Word, std::uint64_t> sizes_;
  std::map<std::pair<Word, Word>, Word> member_offsets_;
  std::optional<Word> workgroup_size_;
};

}  // namespace

SpirvModule parse_spirv(std::string_view bytes) {
  if (bytes.size() % sizeof(Word) != 0 || bytes.size() < header_words * sizeof(Word)) {
    fail(fmt::format("{} bytes are no whole number of words, or no header", bytes.size()));
  }
  // A copy, since foreign bytes may lie at any alignment.
  std::vector<Word> words(bytes.size() / sizeof(Word));
  std::memcpy(words.data(), bytes.data(), bytes.size());
  if (words[0] == magic_swapped) fail("it is of the other byte order");
  if (words[0] != magic) fail(fmt::format("it starts with 0x{:08x}, not 0x{:08x}", words[0], magic));
  return Parser(words).parse();
}

void check_valid_spirv(std::string_view bytes) {
  std::vector<Word> words(bytes.size() / sizeof(Word));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(Word));
  // Each later version of Vulkan takes what the ones before took.
  const std::unique_ptr<spv_context_t, decltype(&spvContextDestroy)> context(spvContextCreate(SPV_ENV_VULKAN_1_3),
                                                                             &spvContextDestroy);
  const std::unique_ptr<spv_validator_options_t, decltype(&spvValidatorOptionsDestroy)> options(
      spvValidatorOptionsCreate(), &spvValidatorOptionsDestroy);
  spvValidatorOptionsSetScalarBlockLayout(options.get(), true);
  spv_const_binary_t binary{words.data(), words.size()};
  spv_diagnostic found = nullptr;
  const spv_result_t result = spvValidateWithOptions(context.get(), options.get(), &binary, &found);
  const std::unique_ptr<spv_diagnostic_t, decltype(&spvDiagnosticDestroy)> diagnostic(found, &spvDiagnosticDestroy);
  if (result == SPV_SUCCESS) return;
  throw Error(ErrorCode::compile,
              fmt::format("no valid SPIR-V: {}: compile it anew, and see what spirv-val --target-env vulkan1.3 "
                          "--scalar-block-layout says of it",
                          diagnostic && diagnostic->error != nullptr ? diagnostic->error : "it breaks a rule"));
}

}  // namespace gpumap
