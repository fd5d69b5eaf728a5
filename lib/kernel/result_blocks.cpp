// SPDX-License-Identifier: MIT
#include "gpumap/result_blocks.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernel/compile/compilers.hpp"

namespace gpumap {

namespace {

/// More are not under way: a launch then waits.
constexpr std::size_t max_blocks = 64;
/// The words of the result lie behind the word `given`, in cache lines of their own.
constexpr std::size_t result_offset = 128;

void fill_with_zeros(const Mapping& memory) {
  std::memset(memory.host(), 0, memory.bytes());
  memory.flush(0, memory.bytes());
}

}  // namespace

ResultBlocks::ResultBlocks(std::shared_ptr<Device> device, Backend backend, std::uint32_t words, bool guarded)
    : device_(std::move(device)), backend_(backend), words_(words), guarded_(guarded), current_(allocate()) {}

void ResultBlocks::change(std::uint32_t words) {
  collect();
  words_ = words;
  free_.clear();
  current_ = allocate();
}

ResultBlocks::Block ResultBlocks::allocate() const {
  const std::size_t bytes = result_offset + words_ * sizeof(std::uint64_t) + (guarded_ ? BoundsCheck::guard_bytes : 0);
  Block block{device_->allocate({.placement = Placement::host, .bytes = bytes}, backend_), {}};
  fill_with_zeros(*block.memory);
  return block;
}

bool ResultBlocks::may_name(const KernelSource& source, std::string_view field) {
  if (source.language != Language::cuda && source.language != Language::glsl) return true;
  const auto names = [field](std::string_view text) { return text.find(field) != text.npos; };
  return names(source.code) || std::ranges::any_of(source.defines, names) || includes_others(source.code);
}

bool ResultBlocks::take(const std::atomic<bool>& cancelled) {
  if (current_.memory) free_.push_back(std::exchange(current_, {}));
  for (;;) {
    const auto idle =
        std::find_if(free_.begin(), free_.end(), [](const Block& block) { return block.done.signalled(); });
    if (idle != free_.end()) {
      current_ = std::move(*idle);
      free_.erase(idle);
      break;
    }
    if (free_.size() + kept_.size() < max_blocks) {
      current_ = allocate();
      return true;
    }
    const Fence oldest = free_.empty() ? kept_.front().done : free_.front().done;
    if (oldest.wait(cancelled) != WaitResult::ready) return false;
    collect();
  }
  fill_with_zeros(*current_.memory);
  return true;
}

void ResultBlocks::show(gpumap_frame& frame) const noexcept {
  frame.given = current_.memory->address(backend_);
  frame.result = frame.given + result_offset;
  frame.result_words = words_;
}

BoundsCheck::Range ResultBlocks::range() const {
  const std::size_t bytes = words_ * sizeof(std::uint64_t);
  return {.memory = current_.memory.get(),
          .end = result_offset + bytes,
          .bytes = bytes,
          .what = "its result block",
          .remedy = "frame.result_words, and ask for more by the line result-words"};
}

std::uint64_t ResultBlocks::given() const {
  std::uint64_t given = 0;
  current_.memory->invalidate(0, sizeof given);
  std::memcpy(&given, current_.memory->host(), sizeof given);
  return given;
}

void ResultBlocks::keep() {
  kept_.push_back(std::exchange(current_, {}));
}

void ResultBlocks::collect() {
  while (!kept_.empty() && kept_.front().done.signalled()) {
    Block& block = kept_.front();
    Words words(words_);
    const std::size_t bytes = words.size() * sizeof words[0];
    block.memory->invalidate(result_offset, bytes);
    std::memcpy(words.data(), block.memory->host() + result_offset, bytes);
    read_.push_back(std::move(words));
    free_.push_back(std::move(block));
    kept_.pop_front();
  }
  while (read_.size() > most_unread) read_.pop_front();
}

std::optional<ResultBlocks::Words> ResultBlocks::next() {
  collect();
  if (read_.empty()) return {};
  Words words = std::move(read_.front());
  read_.pop_front();
  return words;
}

void ResultBlocks::forget() {
  for (Block& block : kept_) free_.push_back(std::move(block));
  kept_.clear();
  read_.clear();
}

}  // namespace gpumap
