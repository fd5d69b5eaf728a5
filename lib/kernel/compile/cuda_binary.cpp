// SPDX-License-Identifier: MIT
#include "kernel/compile/compilers.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

constexpr std::string_view directive = ".entry";
constexpr std::string_view lowered_as = "// gpumap: the function is ";

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_frame(std::string_view parameter) {
  const std::size_t open = parameter.find('[');
  if (open == parameter.npos) return false;
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(parameter.data() + open + 1, parameter.data() + parameter.size(), bytes);
  return error == std::errc{} && end != parameter.data() + parameter.size() && *end == ']' && is_frame_size(bytes);
}

}  // namespace

bool is_frame_size(std::size_t bytes) noexcept {
  constexpr std::size_t first_version_bytes = offsetof(gpumap_frame, params) + sizeof gpumap_frame::params;
  return bytes >= first_version_bytes && bytes <= sizeof(gpumap_frame);
}

std::vector<PtxEntry> ptx_entries(std::string_view ptx) {
  std::vector<PtxEntry> entries;
  for (std::size_t at = ptx.find(directive); at != ptx.npos; at = ptx.find(directive, at)) {
    at += directive.size();
    if (at == ptx.size() || !is_blank(ptx[at])) continue;
    while (at < ptx.size() && is_blank(ptx[at])) ++at;
    const std::size_t name_end = std::min(ptx.find_first_of(" \t\r\n({", at), ptx.size());
    PtxEntry entry{.name = std::string(ptx.substr(at, name_end - at))};

    // "( .param .align 8 .b8 invert_param_0[352] )"; a kernel without parameters has "()" or nothing before its body.
    const std::size_t stop = std::min(ptx.find_first_of("){", name_end), ptx.size());
    const std::string_view parameters = ptx.substr(name_end, stop - name_end);
    const std::size_t first = parameters.find(".param");
    entry.takes_frame = first != parameters.npos && parameters.find(".param", first + 1) == parameters.npos &&
                        is_frame(parameters.substr(first));
    entries.push_back(std::move(entry));
  }
  return entries;
}

bool is_name_expression(std::string_view function) {
  return function.find('<') != function.npos || function.find("::") != function.npos;
}

std::string with_lowered_name(std::string_view ptx, std::string_view name) {
  return fmt::format("{}{}\n{}", lowered_as, name, ptx);
}

std::string choose_entry(const KernelSource& source, std::string_view ptx) {
  const std::vector<PtxEntry> entries = ptx_entries(ptx);
  std::string_view wanted = source.function;
  if (ptx.starts_with(lowered_as)) {
    wanted = ptx.substr(lowered_as.size(), ptx.find('\n') - lowered_as.size());
  }
  const auto fail = [&source](const std::string& what) -> void {
    throw Error(ErrorCode::compile, fmt::format("kernel {}: {}", source.name, what));
  };
  std::vector<std::string_view> names;
  for (const PtxEntry& entry : entries) names.push_back(entry.name);

  if (entries.empty()) fail("no kernel in it: write extern \"C\" __global__ void name(gpumap_frame frame)");
  if (wanted.empty() && entries.size() > 1) {
    fail(fmt::format("{} kernels in it: choose a function from {}", entries.size(), fmt::join(names, ", ")));
  }
  const auto found = wanted.empty() ? entries.begin()
                                    : std::find_if(entries.begin(), entries.end(),
                                                   [wanted](const PtxEntry& entry) { return entry.name == wanted; });
  if (found == entries.end()) {
    fail(fmt::format("no kernel '{}' in it, only {}; a kernel keeps its name when it is extern \"C\"", source.function,
                     fmt::join(names, ", ")));
  }
  if (!found->takes_frame) {
    fail(
        fmt::format("'{}' does not take one gpumap_frame by value ({} bytes): write extern \"C\" __global__ void "
                    "{}(gpumap_frame frame)",
                    found->name, sizeof(gpumap_frame), found->name));
  }
  return found->name;
}

namespace {

// A cubin is an ELF file of 64 bits. A fatbin is a row of containers: a magic number, a version, the length of the
// header and that of what follows it.
struct FatbinHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t header_bytes = 0;
  std::uint64_t bytes = 0;
};
constexpr std::uint32_t fatbin_magic = 0xBA55ED50;

/// Foreign bytes may lie at any alignment. False beyond the end.
template <typename Header>
bool read(std::string_view bytes, std::uint64_t at, Header& header) {
  if (at > bytes.size() || bytes.size() - at < sizeof header) return false;
  std::memcpy(&header, bytes.data() + at, sizeof header);
  return true;
}

bool lies_within(std::string_view bytes, std::uint64_t at, std::uint64_t length) {
  return at <= bytes.size() && length <= bytes.size() - at;
}

bool is_whole_elf(std::string_view bytes) {
  Elf64_Ehdr file{};
  if (!read(bytes, 0, file) || std::memcmp(file.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_shnum == 0) return false;
  for (std::uint64_t i = 0; i < file.e_shnum; ++i) {
    Elf64_Shdr section{};
    if (file.e_shentsize != sizeof section || !read(bytes, file.e_shoff + i * sizeof section, section)) return false;
    if (section.sh_type != SHT_NOBITS && !lies_within(bytes, section.sh_offset, section.sh_size)) return false;
  }
  for (std::uint64_t i = 0; i < file.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (file.e_phentsize != sizeof segment || !read(bytes, file.e_phoff + i * sizeof segment, segment)) return false;
    if (!lies_within(bytes, segment.p_offset, segment.p_filesz)) return false;
  }
  return true;
}

bool is_whole_fatbin(std::string_view bytes) {
  FatbinHeader header;
  return read(bytes, 0, header) && header.magic == fatbin_magic && header.header_bytes >= sizeof header &&
         lies_within(bytes, header.header_bytes, header.bytes);
}

}  // namespace

void check_cubin(const KernelSource& source) {
  if (is_whole_elf(source.code) || is_whole_fatbin(source.code)) return;
  throw Error(ErrorCode::compile,
              fmt::format("kernel {} is a truncated cubin of {} bytes, or none: build it with nvcc --cubin",
                          source.name, source.code.size()));
}

}  // namespace gpumap
