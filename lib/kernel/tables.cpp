// SPDX-License-Identifier: MIT
#include "gpumap/tables.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "device/unique_fd.hpp"
#include "gpumap/error.hpp"
#include "gpumap/queue.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t chunk_bytes = std::size_t{16} << 20U;
/// For the GPU to copy one of them. It takes milliseconds, where it does not stand behind a kernel that does not end.
constexpr auto longest_copy = 60s;

/// An open file and which version of it that is.
struct File {
  UniqueFd descriptor;
  FileStamp stamp;
};

File open_file(const std::string& what, const std::filesystem::path& path) {
  const auto fail = [&](const std::string& why, ErrorCode code = ErrorCode::open_read) -> void {
    throw Error(code, fmt::format("{}: {}", what, why));
  };
  // Without waiting for who writes into a pipe.
  UniqueFd descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (descriptor.get() < 0) {
    const int cause = errno;
    fail(fmt::format("{}: {}", std::strerror(cause), remedy_where_closed(cause, "the path in the line table")),
         cause == ENOENT ? ErrorCode::not_found : ErrorCode::open_read);
  }
  struct stat found {};
  if (fstat(descriptor.get(), &found) != 0) fail(std::strerror(errno));
  if (!S_ISREG(found.st_mode)) {
    fail(fmt::format("is a {}: name a file", S_ISDIR(found.st_mode) ? "directory" : "pipe or a device"));
  }
  return {std::move(descriptor), FileStamp::of(found)};
}

/// Elements of a file of `bytes`. Throws Error(invalid) where these are no whole elements, or not as many as declared.
std::uint64_t count_elements(const std::string& what, const DeclaredTable& declared, std::uint64_t bytes) {
  const std::size_t size = bytes_of(declared.type);
  std::string why;
  if (bytes == 0) {
    why = "is empty: write the table into another file, and move that to here";
  } else if (bytes > Tables::max_bytes) {
    why = fmt::format("has {} bytes, and a table has at most {}: make several of it", bytes, Tables::max_bytes);
  } else if (bytes % size != 0) {
    why = fmt::format("has {} bytes, no multiple of the {} that a {} takes: write whole ones, or declare another type",
                      bytes, size, to_string(declared.type));
  } else if (declared.count && bytes / size != *declared.count) {
    why = fmt::format("has {} elements of {} bytes ({}), and {} are declared: write as many, or leave the number out",
                      bytes / size, size, to_string(declared.type), *declared.count);
  }
  if (!why.empty()) throw Error(ErrorCode::invalid, fmt::format("{} {}", what, why));
  return bytes / size;
}

/// Less only where the file ends before.
std::size_t read_some(const std::string& what, const UniqueFd& file, std::byte* to, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got = read(file.get(), to + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(ErrorCode::io, fmt::format("{} {} at byte {}", what, std::strerror(errno), done));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

/// At a kernel's start, which is a change of state, not for long behind work that somebody was told of as endless.
WaitResult await_copy(const Fence& copied, const std::atomic<bool>& given_up, bool is_start) {
  const Deadline last = Clock::now() + longest_copy;
  for (Deadline end = last;;) {
    const WaitResult waited = copied.wait(given_up, std::min<Deadline>(end, Clock::now() + 100ms));
    const Deadline now = Clock::now();
    if (waited != WaitResult::timeout || now >= end) return waited;
    const bool in_vain = is_start && copied.timeline()->ahead_of(copied.value()) == WorkAhead::endless;
    end = in_vain ? std::min<Deadline>(end, now + patience_at_end) : last;
  }
}

template <typename Result>
bool is_busy(const std::future<Result>& future) {
  return future.valid() && future.wait_for(0s) != std::future_status::ready;
}

}  // namespace

Tables::Tables(std::shared_ptr<Device> device, Backend backend, std::string kernel, std::vector<DeclaredTable> declared,
               const std::atomic<bool>* given_up)
    : device_(std::move(device)), backend_(backend), kernel_(std::move(kernel)) {
  for (DeclaredTable& table : declared) {
    if (table.path.empty()) {
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {}: its table '{}' has no file: set declare=\"table {}=/path/of/file\"", kernel_,
                              table.name, table.name));
    }
    tables_.push_back({.declared = std::move(table), .taken = {}, .seen = {}, .content = {}});
  }
  for (Table& table : tables_) {
    table.seen = table.taken = FileStamp::of(table.declared.path);
    table.content = load(table, given_up != nullptr ? *given_up : ends_, true);
    if (table.content.changed) table.taken.reset();
  }
}

Tables::~Tables() {
  ends_ = true;
}

Tables::Loaded Tables::load(const Table& table, const std::atomic<bool>& given_up, bool is_start) const {
  const std::string what = fmt::format("kernel {}: table {}: {}", kernel_, table.declared.name, table.declared.path);
  const File file = open_file(what, table.declared.path);
  const auto bytes = static_cast<std::uint64_t>(file.stamp.bytes);
  Loaded made;
  made.count = count_elements(what, table.declared, bytes);
  const std::size_t chunk = std::min<std::size_t>(bytes, chunk_bytes);
  std::shared_ptr<Mapping> staging;
  try {
    made.memory = device_->allocate({.placement = Placement::device, .bytes = (bytes + 15) / 16 * 16}, backend_);
    staging = device_->allocate({.placement = Placement::host, .bytes = chunk}, backend_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_memory) throw;
    throw with_remedy(error, fmt::format("make the table {} smaller", table.declared.name));
  }
  const std::shared_ptr<Queue> queue = device_->create_queue(backend_);
  std::uint64_t at = 0;
  while (at < bytes) {
    const std::size_t wanted = std::min<std::uint64_t>(bytes - at, chunk);
    const std::size_t got = read_some(what, file.descriptor, staging->host(), wanted);
    staging->flush(0, got);
    queue->copy(*staging, 0, *made.memory, at, got);
    const Fence copied = queue->submit();
    const Deadline began = Clock::now();
    WaitResult waited = await_copy(copied, given_up, is_start);
    const bool cancelled = waited == WaitResult::cancelled;
    // Nobody wants the table any more. As a rule the copy ends within milliseconds, and what it uses can go.
    if (cancelled) waited = copied.wait_for(patience_at_end);
    if (waited != WaitResult::ready) {
      copied.give_up(fmt::format("the load of table {} of kernel {}", table.declared.name, kernel_));
      for (const std::shared_ptr<const void>& used :
           {std::shared_ptr<const void>(made.memory), std::shared_ptr<const void>(staging),
            std::shared_ptr<const void>(queue)}) {
        keep_for_good(used);
      }
      const std::chrono::duration<double> stood = Clock::now() - began;
      throw Error(
          ErrorCode::io,
          fmt::format(
              "{}: the GPU has not taken {} bytes of it for {:.1f} s: a kernel on it does not end: end that one", what,
              got, stood.count()));
    }
    if (cancelled) throw Error(ErrorCode::io, fmt::format("{}: given up, as its kernel ends", what));
    at += got;
    if (got < wanted) break;
  }
  const auto now = FileStamp::of(table.declared.path);
  made.changed = at != bytes || (now && *now != file.stamp);
  if (at != bytes) {
    throw Error(ErrorCode::io, fmt::format("{} ended after {} bytes of {}: it is being written: write another file, "
                                           "and move that to here",
                                           what, at, bytes));
  }
  return made;
}

void Tables::lend(gpumap_frame& frame) const {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const Loaded& content = tables_[i].content;
    frame.tables[i] = {.address = content.memory->address(backend_), .count = content.count};
  }
}

void Tables::take(Loaded loaded, const Fence& launched) {
  Table& table = tables_[loading_table_];
  replaced_.emplace_back(launched, std::move(table.content.memory));
  table.content = std::move(loaded);
}

std::string Tables::refresh(const Fence& launched) {
  std::erase_if(replaced_, [](const auto& one) { return one.first.signalled(); });
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_ || is_busy(loading_)) return {};
  next_look_ = now + 100ms;
  if (loading_.valid()) {
    // Ends: it is not busy.
    Loaded loaded = loading_.get();
    // Of a version that changed while it was read nothing is known: the next look finds what came of it.
    if (loaded.changed) tables_[loading_table_].taken.reset();
    if (!loaded.problem.empty() && !loaded.changed) return loaded.problem + ": keeping the previous table";
    if (!loaded.changed) take(std::move(loaded), launched);
    return {};
  }
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    Table& table = tables_[i];
    const auto before = std::exchange(table.seen, FileStamp::of(table.declared.path));
    // A file that is being written changes from one look to the next; one that is replaced may be missing for a while.
    if (loading_.valid() || !table.seen || table.seen == table.taken || table.seen != before) continue;
    table.taken = table.seen;
    loading_table_ = i;
    const auto load_it = [this, &table] {
      try {
        return load(table, ends_, false);
      } catch (const std::exception& error) {
        Loaded none;
        none.problem = error.what();
        none.changed = FileStamp::of(table.declared.path) != table.taken;
        return none;
      }
    };
    try {
      // Ends: load() looks at ends_.
      loading_ = std::async(std::launch::async, load_it);
    } catch (const std::system_error& error) {
      return fmt::format("{}: keeping the previous table", no_thread("loading a table", error.code()).what());
    }
  }
  return {};
}

}  // namespace gpumap
