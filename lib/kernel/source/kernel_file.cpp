// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "gpumap/error.hpp"
#include "gpumap/file.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap {
namespace {

Language language_of(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".cu") return Language::cuda;
  if (extension == ".ptx") return Language::ptx;
  if (extension == ".cubin") return Language::cubin;
  if (extension == ".comp") return Language::glsl;
  if (extension == ".spv") return Language::spirv;
  throw Error(ErrorCode::invalid,
              fmt::format("kernel file {}: unknown extension '{}': use .cu, .ptx or .cubin for CUDA, .comp or .spv "
                          "for Vulkan",
                          path.string(), extension));
}

}  // namespace

KernelSource load_kernel_file(const std::filesystem::path& path, std::string function) {
  const Language language = language_of(path);
  // Looked at first: to open a pipe waits for who writes into it, and a device may have no end.
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    throw Error(ErrorCode::open_read, fmt::format("kernel file {}: is a {}: name a file", path.string(),
                                                  is_folder ? "directory" : "pipe or a device"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int cause = errno;
    throw Error(cause == ENOENT ? ErrorCode::not_found : ErrorCode::open_read,
                fmt::format("kernel file {}: {}: {}", path.string(), std::strerror(cause),
                            remedy_where_closed(cause, "the path")));
  }
  std::optional<std::string> code = read_to_end(file);
  if (!code) {
    throw Error(
        ErrorCode::open_read,
        fmt::format("kernel file {}: cannot be read to its end, or has more than {} MiB: check the file and its disk",
                    path.string(), most_file_bytes >> 20U));
  }
  if (code->empty()) {
    throw Error(ErrorCode::invalid, fmt::format("kernel file {}: is empty: write a kernel into it", path.string()));
  }
  return {.language = language,
          .name = path.string(),
          .code = *std::move(code),
          .function = std::move(function),
          .defines = {},
          .include_folders = {}};
}

}  // namespace gpumap
