// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/file.hpp"
#include "gpumap/kernel.h"

namespace gpumap {

/// Files of numbers that a kernel of the user's reads, in device memory, loaded again when they change: in a thread of
/// its own, into new memory, so that what was launched goes on with what it has.
/// Ownership: keeps the device open; the owner waits for what was launched with it before it destroys this. Thread
/// safety: one thread at a time.
class GPUMAP_API Tables {
 public:
  /// A larger file is refused.
  static constexpr std::uint64_t max_bytes = std::uint64_t{1} << 30U;

  /// Load each of `declared` from its file. `kernel` is for messages. Throws Error(invalid) for a table without a path
  /// and for files of a wrong size, Error(io) for what cannot be read, Error(no_memory | device_lost). Error(io) within
  /// seconds, too, once `given_up` (null: nobody does) was set.
  Tables(std::shared_ptr<Device> device, Backend backend, std::string kernel, std::vector<DeclaredTable> declared,
         const std::atomic<bool>* given_up = nullptr);
  ~Tables();
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  /// For the next launch.
  void lend(gpumap_frame& frame) const;

  /// Cheap enough for every frame: looks at the files ten times a second. What was loaded meanwhile holds from here on,
  /// and what it replaces stays until `launched`, the end of all that was launched so far. What is wrong with a file
  /// that changed, in whose place the previous one stays; empty where nothing is, or nothing changed.
  [[nodiscard]] std::string refresh(const Fence& launched);

 private:
  struct Loaded {
    std::shared_ptr<Mapping> memory;
    std::uint64_t count = 0;
    std::string problem;   ///< why there is none
    bool changed = false;  ///< while it was read: there will be another version
  };
  struct Table {
    DeclaredTable declared;
    std::optional<FileStamp> taken;  ///< the version that is loaded, or was refused
    std::optional<FileStamp> seen;   ///< at the last look
    Loaded content;
  };
  [[nodiscard]] Loaded load(const Table& table, const std::atomic<bool>& given_up, bool is_start) const;
  void take(Loaded loaded, const Fence& launched);

  std::shared_ptr<Device> device_;
  Backend backend_;
  std::string kernel_;
  std::atomic<bool> ends_{false};  ///< nobody waits for a table any more
  std::vector<Table> tables_;
  std::vector<std::pair<Fence, std::shared_ptr<Mapping>>> replaced_;
  std::chrono::steady_clock::time_point next_look_{};
  std::size_t loading_table_ = 0;
  std::future<Loaded> loading_;  ///< its destruction waits
};

}  // namespace gpumap
