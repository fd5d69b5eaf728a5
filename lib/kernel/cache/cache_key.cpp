// SPDX-License-Identifier: MIT
#include "kernel/cache/cache_key.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nettle/sha2.h>
#include <sys/stat.h>

#include <algorithm>

namespace gpumap {
namespace {

// As libgpumap was when this process loaded it. It stands for more than the version: shaderc may be linked into it.
const std::string* const own_identity = new std::string(identity_of_code(&own_identity));

bool continues_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Without the backslashes and line ends that split a line, which may stand in the middle of a word.
std::string splice(std::string_view code) {
  std::string spliced;
  spliced.reserve(code.size());
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code.substr(i).starts_with("\\\n")) {
      ++i;
    } else if (code.substr(i).starts_with("\\\r\n")) {
      i += 2;
    } else {
      spliced += code[i];
    }
  }
  return spliced;
}

/// Whether `word` at `at` may be a directive or an operator that looks at another file. Errs on the side of yes.
bool may_look_outside(std::string_view code, std::size_t at, std::string_view word,
                      std::span<const OwnHeader> headers) {
  std::string_view before = code.substr(0, at);
  if (!before.empty() && continues_name(before.back())) return before.ends_with("__has_");
  while (before.ends_with(' ') || before.ends_with('\t')) before.remove_suffix(1);
  // "%:" is a '#', between '#' and the word may stand a comment, and PTX in an asm statement has an .include.
  const auto stands = [before](std::string_view mark) { return before.ends_with(mark); };
  if (!stands("#") && !stands("%:") && !stands("*/") && !stands(".")) return false;

  // #include <gpumap/kernel.h> and nothing else: one in quotes is looked for beside the source first.
  std::string_view after = code.substr(at + word.size());
  after.remove_prefix(std::min(after.find_first_not_of(" \t"), after.size()));
  return !std::any_of(headers.begin(), headers.end(), [&](const OwnHeader& header) {
    return after.starts_with('<') && after.substr(1).starts_with(header.first) &&
           after.substr(1 + header.first.size()).starts_with('>');
  });
}

bool is_self_contained(std::string_view code, std::span<const OwnHeader> headers) {
  const std::string spliced = splice(code);
  const std::string_view text = spliced;
  for (const std::string_view word : {"include", "embed"}) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) {
      if (may_look_outside(text, at, word, headers)) return false;
    }
  }
  // The time of compilation is not in the key either.
  return std::ranges::none_of(std::array{"__DATE__", "__TIME__", "__TIMESTAMP__"},
                              [&](const char* word) { return text.find(word) != text.npos; });
}

}  // namespace

Digest sha256(std::string_view bytes) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, bytes.size(), reinterpret_cast<const std::uint8_t*>(bytes.data()));
  Digest digest;
  sha256_digest(&context, digest.size(), digest.data());
  return digest;
}

std::string identity_of_code(const void* address) {
  Dl_info info{};
  struct stat file {};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr || stat(info.dli_fname, &file) != 0) return {};
  return fmt::format("{} {} {}.{:09}", info.dli_fname, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

CacheKey::CacheKey() {
  add(GPUMAP_VERSION);
  add_compiler(*own_identity);
}

void CacheKey::add(std::string_view field) {
  fields_ += std::to_string(field.size());
  fields_ += ' ';
  fields_ += field;
}

void CacheKey::add_compiler(std::string_view identity) {
  usable_ = usable_ && !identity.empty();
  add(identity);
}

void CacheKey::add_source(std::string_view name, std::string_view code, std::span<const OwnHeader> headers) {
  usable_ = usable_ && is_self_contained(code, headers);
  add(name);
  add(code);
  add(std::to_string(headers.size()));
  for (const auto& [header, text] : headers) {
    add(header);
    add(text);
  }
}

}  // namespace gpumap
