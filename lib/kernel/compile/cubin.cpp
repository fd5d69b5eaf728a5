// SPDX-License-Identifier: MIT
//
// A cubin is an ELF file of 64 bits. A fatbin is a row of containers: a magic number, a version, the length of the
// header and that of what follows it.
#include "kernel/compile/cubin.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

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
