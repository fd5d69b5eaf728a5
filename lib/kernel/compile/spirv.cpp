// SPDX-License-Identifier: MIT
#include "kernel/compile/compilers.hpp"

#include <fmt/format.h>

#include <spirv-tools/libspirv.hpp>
#include <spirv/unified1/spirv.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

using Word = std::uint32_t;

constexpr std::size_t header_words = 5;
constexpr std::uint64_t unknown_size = std::uint64_t{1} << 40;

[[noreturn]] void fail(const std::string& cause) {
  throw Error(
      ErrorCode::compile,
      fmt::format("not valid SPIR-V (SPIRV-Tools {}): {}: compile it with glslc or glslangValidator for Vulkan; "
                  "spirv-val --target-env vulkan1.3 --scalar-block-layout checks it",
                  spvSoftwareVersionString(), cause));
}

std::vector<Word> words_of(std::string_view bytes) {
  if (bytes.size() % sizeof(Word) != 0) fail(fmt::format("{} bytes are not a multiple of 4", bytes.size()));
  std::vector<Word> words(bytes.size() / sizeof(Word));
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  // SPIRV-Tools takes either byte order, a driver only its own.
  if (words.size() < header_words || words[0] != spv::MagicNumber) {
    fail(fmt::format("it does not start with a header of SPIR-V: 0x{:08x} in this machine's byte order, then 4 words",
                     Word{spv::MagicNumber}));
  }
  return words;
}

/// SPIRV-Tools with the first error that it reports.
struct Tools {
  Tools() : context(SPV_ENV_VULKAN_1_3) {  // each later version of Vulkan takes what the ones before took
    context.SetMessageConsumer([this](spv_message_level_t level, const char*, const spv_position_t&, const char* text) {
      if (level <= SPV_MSG_ERROR && error.empty()) error = text;
    });
  }
  void check(spv_result_t result, const std::vector<Word>& words) const {
    if (result == SPV_SUCCESS) return;
    fail(fmt::format("{} (the module is of SPIR-V {}.{})", error, words[1] >> 16, words[1] >> 8 & 0xFF));
  }

  spvtools::Context context;
  std::string error;
};

/// Calls take(opcode, words) for each instruction; words[0] is its first word. Nothing may be thrown through
/// SPIRV-Tools.
template <typename Take>
void parse(std::string_view bytes, Take take) {
  const auto forward = [](void* user, const spv_parsed_instruction_t* instruction) {
    (*static_cast<Take*>(user))(instruction->opcode, instruction->words, instruction->num_words);
    return SPV_SUCCESS;
  };
  const std::vector<Word> words = words_of(bytes);
  Tools tools;
  tools.check(spvBinaryParse(tools.context.CContext(), &take, words.data(), words.size(), nullptr, forward, nullptr),
              words);
}

template <typename Key, typename Value>
Value found_or(const std::map<Key, Value>& map, const std::type_identity_t<Key>& key, Value otherwise) {
  const auto found = map.find(key);
  return found == map.end() ? otherwise : found->second;
}

/// SPIRV-Tools has checked how many operands an instruction has, and that a string ends in it.
class Reader {
 public:
  void take(Word opcode, const Word* word, std::size_t length) {
    switch (opcode) {
      case spv::OpCapability:
        module_.capabilities.push_back(word[1]);
        break;
      case spv::OpEntryPoint:
        if (word[1] == spv::ExecutionModelGLCompute) {
          EntryPoint& one = entry_points_.emplace_back();
          one.function = word[2];
          one.name = reinterpret_cast<const char*>(word + 3);
          one.variables.assign(word + 4 + one.name.size() / sizeof(Word), word + length);
        }
        break;
      case spv::OpExecutionMode:
        if (word[2] == spv::ExecutionModeLocalSize) literal_sizes_[word[1]] = {word[3], word[4], word[5]};
        break;
      case spv::OpExecutionModeId:
        if (word[2] == spv::ExecutionModeLocalSizeId) id_sizes_[word[1]] = {word[3], word[4], word[5]};
        break;
      case spv::OpDecorate:
        if (word[2] == spv::DecorationSpecId) spec_ids_[word[1]] = word[3];
        if (word[2] == spv::DecorationArrayStride) array_strides_[word[1]] = word[3];
        if (word[2] == spv::DecorationBuiltIn && word[3] == spv::BuiltInWorkgroupSize) workgroup_size_ = word[1];
        break;
      case spv::OpMemberDecorate:
        if (word[3] == spv::DecorationOffset) member_offsets_[{word[1], word[2]}] = word[4];
        break;
      case spv::OpConstant:
      case spv::OpSpecConstant:
        if (length == 4) constants_[word[2]] = word[3];
        break;
      case spv::OpConstantComposite:
      case spv::OpSpecConstantComposite:
        if (length == 6) composites_[word[2]] = {word[3], word[4], word[5]};
        break;
      case spv::OpVariable:
        if (word[3] == spv::StorageClassPushConstant) {
          module_.push_constant_bytes = std::max(module_.push_constant_bytes, size_of(pointees_[word[1]]));
        }
        if (word[3] == spv::StorageClassWorkgroup) shared_[word[2]] = least_of(pointees_[word[1]], 1);
        module_.uses_descriptors |= word[3] == spv::StorageClassUniformConstant ||
                                    word[3] == spv::StorageClassUniform || word[3] == spv::StorageClassStorageBuffer;
        break;
      case spv::OpTypeBool:
        least_[word[1]] = sizeof(Word);
        break;
      case spv::OpTypeInt:
      case spv::OpTypeFloat:
        sizes_[word[1]] = least_[word[1]] = word[2] / 8;
        break;
      case spv::OpTypePointer:
        pointees_[word[1]] = word[3];
        sizes_[word[1]] = least_[word[1]] = sizeof(std::uint64_t);
        break;
      case spv::OpTypeVector:
        sizes_[word[1]] = size_of(word[2]) * word[3];
        least_[word[1]] = least_of(word[2], word[3]);
        break;
      case spv::OpTypeMatrix:
        least_[word[1]] = least_of(word[2], word[3]);
        break;
      case spv::OpTypeArray:
        sizes_[word[1]] = std::min(
            std::uint64_t{found_or(array_strides_, word[1], ~Word{0})} * found_or(constants_, word[3], ~Word{0}),
            unknown_size);
        least_[word[1]] = least_of(word[2], found_or(constants_, word[3], Word{0}));
        break;
      case spv::OpTypeStruct: {
        std::uint64_t &end = sizes_[word[1]], &least = least_[word[1]];
        for (Word member = 0; member + 2 < length; ++member) {
          const std::uint64_t offset = found_or(member_offsets_, {word[1], member}, ~Word{0});
          end = std::max(end, offset + size_of(word[member + 2]));
          least = std::min(least + least_of(word[member + 2], 1), unknown_size);
        }
        break;
      }
      default:
        break;
    }
  }

  SpirvModule finish() {
    for (auto& [function, name, variables] : entry_points_) {
      ShaderInfo shader{.function = std::move(name)};
      // Those before SPIR-V 1.4 do not name what they share: what a module of one shader has is that one's.
      for (const auto& [variable, bytes] : shared_) {
        const bool is_its = entry_points_.size() == 1 || std::ranges::find(variables, variable) != variables.end();
        shader.shared_bytes += is_its ? bytes : 0;
      }
      const auto literal = literal_sizes_.find(function);
      // The specification lets WorkgroupSize win over the execution modes.
      if (workgroup_size_ == 0 && literal != literal_sizes_.end()) {
        shader.threads = literal->second;
      } else {
        resolve(workgroup_size_ != 0 ? composites_[workgroup_size_] : id_sizes_[function], shader);
      }
      module_.shaders.push_back(std::move(shader));
    }
    return std::move(module_);
  }

 private:
  using Size = std::array<Word, 3>;

  void resolve(const Size& ids, ShaderInfo& shader) const {
    shader.threads_from_constants = true;
    for (Word axis = 0; axis < ids.size(); ++axis) {
      const auto value = constants_.find(ids[axis]);
      if (value == constants_.end()) {
        throw Error(ErrorCode::compile, fmt::format("the workgroup size of '{}' is not three constants of 32 bits: set "
                                                    "it by numbers, or leave local_size to gpumap.glsl",
                                                    shader.function));
      }
      shader.threads[axis] = value->second;
      if (found_or(spec_ids_, ids[axis], ~Word{0}) != axis) shader.threads_from_constants = false;
    }
  }

  /// Types come before what is made of them, and decorations before types.
  [[nodiscard]] std::uint64_t size_of(Word type) const { return found_or(sizes_, type, unknown_size); }

  [[nodiscard]] std::uint64_t least_of(Word type, Word count) const {
    const std::uint64_t one = found_or(least_, type, std::uint64_t{0});
    return count != 0 && one > unknown_size / count ? unknown_size : one * count;
  }

  struct EntryPoint {
    Word function = 0;
    std::string name;
    std::vector<Word> variables;
  };
  SpirvModule module_;
  std::vector<EntryPoint> entry_points_;
  std::map<Word, Size> literal_sizes_, id_sizes_, composites_;
  std::map<Word, Word> spec_ids_, constants_, array_strides_, pointees_;
  std::map<Word, std::uint64_t> sizes_;
  std::map<Word, std::uint64_t> least_;   ///< of types that are shared: without padding
  std::map<Word, std::uint64_t> shared_;  ///< of variables
  std::map<std::pair<Word, Word>, Word> member_offsets_;
  Word workgroup_size_ = 0;
};

}  // namespace

void check_valid_spirv(std::string_view bytes) {
  const std::vector<Word> words = words_of(bytes);
  spv_const_binary_t binary{words.data(), words.size()};
  spvtools::ValidatorOptions options;
  options.SetScalarBlockLayout(true);
  Tools tools;
  tools.check(spvValidateWithOptions(tools.context.CContext(), options, &binary, nullptr), words);
}

SpirvModule read_spirv(std::string_view bytes) {
  Reader reader;
  parse(bytes, [&](Word opcode, const Word* words, std::size_t length) { reader.take(opcode, words, length); });
  return reader.finish();
}

std::string with_capabilities_of_constants(std::string spirv) {
  std::map<Word, Word> needed_by;  // type: capability
  std::set<Word> needed, declared;
  parse(spirv, [&](Word opcode, const Word* word, std::size_t) {
    if (opcode == spv::OpCapability) declared.insert(word[1]);
    if (opcode == spv::OpTypeInt && word[2] == 8) needed_by[word[1]] = spv::CapabilityInt8;
    if (opcode == spv::OpTypeInt && word[2] == 16) needed_by[word[1]] = spv::CapabilityInt16;
    if (opcode == spv::OpTypeFloat && word[2] == 16) needed_by[word[1]] = spv::CapabilityFloat16;
    const bool constant = opcode == spv::OpConstant || opcode == spv::OpConstantNull;
    if (constant && needed_by.contains(word[1])) needed.insert(needed_by[word[1]]);
  });
  for (const Word capability : needed) {
    if (declared.contains(capability)) continue;
    const Word instruction[] = {2U << spv::WordCountShift | spv::OpCapability, capability};
    spirv.insert(header_words * sizeof(Word), reinterpret_cast<const char*>(instruction), sizeof(instruction));
  }
  return spirv;
}

}  // namespace gpumap
