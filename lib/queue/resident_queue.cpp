// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/cuda_timeline.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"
#include "gpumap/memory.hpp"
#include "memory/gpu_mapping.hpp"
#include "queue/queues.hpp"
#include "queue/resident_control.hpp"
#include "queue/turn.h"

namespace gpumap {

/// Empty but for the frame, which is not written: of that a turn has as much as its kernel takes, or none.
[[nodiscard]] gpumap_turn turn_of(gpumap_turn_kind kind);

/// The slots by which the CPU asks something of a kernel that stays on the GPU, and their doorbells (queue/turn.h).
/// Thread safety: one thread at a time.
class TurnRing {
 public:
  static constexpr std::uint64_t slots = 64;

  /// In the GPU's memory where that keeps the order of writes over PCIe, else in host memory. Throws Error.
  explicit TurnRing(GpuDevice& device);

  /// Turn `number`, of which the first `bytes` of `turn` count. Precondition: turn `number - slots` is done.
  void put(std::uint64_t number, const gpumap_turn& turn, std::size_t bytes) noexcept;
  /// For a kernel that comes and begins with turn `first`. Its parts are to be zeros then.
  [[nodiscard]] gpumap_residence residence(std::uint64_t first, std::uint64_t done) const;
  [[nodiscard]] const std::shared_ptr<Mapping>& memory() const noexcept { return memory_; }
  /// Where the doorbell is, and why: for people.
  [[nodiscard]] const std::string& doorbell() const noexcept { return doorbell_; }

 private:
  void allocate(GpuDevice& device);
  [[nodiscard]] gpumap_turn& slot(std::uint64_t number) const noexcept;

  std::string doorbell_;
  std::shared_ptr<Mapping> memory_;
};

namespace {

/// Two words behind the turns, of which each begins a cache line: see gpumap_residence.
constexpr std::size_t parts_offset = TurnRing::slots * sizeof(gpumap_turn);
constexpr std::size_t go_offset = parts_offset + sizeof(gpumap_u64);

}  // namespace

gpumap_turn turn_of(gpumap_turn_kind kind) {
  gpumap_turn turn;
  std::memset(&turn, 0, offsetof(gpumap_turn, frame));
  turn.kind = kind;
  return turn;
}

TurnRing::TurnRing(GpuDevice& device) {
  allocate(device);
  for (std::uint64_t i = 0; i < slots; ++i) slot(i).number = 0;
  store_fence();
}

void TurnRing::allocate(GpuDevice& device) {
  const CudaContext& context = *device.cuda();
  MappingOptions options{
      .placement = Placement::bar, .bytes = go_offset + sizeof(gpumap_u64), .require_coherent = true};
  doorbell_ = "its doorbell is in the GPU's memory";
  std::string why = fmt::format("{} does not keep the order of writes over PCIe", context.gpu_name());
  const char* asked = std::getenv("GPUMAP_CUDA_DOORBELL");
  if (asked != nullptr && std::string_view(asked) == "host") {
    why = "GPUMAP_CUDA_DOORBELL=host says so";
  } else if (context.attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
             CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER) {
    try {
      memory_ = device.allocate(options, Backend::cuda);
      return;
    } catch (const Error& error) {
      why = error.what();
    }
  }
  options.placement = Placement::host;
  memory_ = device.allocate(options, Backend::cuda);
  doorbell_ = "its doorbell is in host memory: " + why;
}

gpumap_turn& TurnRing::slot(std::uint64_t number) const noexcept {
  return reinterpret_cast<gpumap_turn*>(memory_->host())[number % slots];
}

void TurnRing::put(std::uint64_t number, const gpumap_turn& turn, std::size_t bytes) noexcept {
  gpumap_turn& at = slot(number);
  constexpr std::size_t begin = offsetof(gpumap_turn, kind);
  stream_copy(reinterpret_cast<std::byte*>(&at) + begin, reinterpret_cast<const std::byte*>(&turn) + begin,
              bytes - begin);
  store_fence();
  std::atomic_ref<gpumap_u64>(at.number).store(number + 1, std::memory_order_release);
  store_fence();
}

gpumap_residence TurnRing::residence(std::uint64_t first, std::uint64_t done) const {
  const std::uint64_t address = memory_->address(Backend::cuda);
  return {.turns = address,
          .slots = slots,
          .stride = sizeof(gpumap_turn),
          .first = first,
          .parts = address + parts_offset,
          .go = address + go_offset,
          .done = done};
}

namespace {

constexpr std::uint64_t slots = TurnRing::slots;
/// Two that leave: see find_room().
constexpr std::uint64_t reserve = 2;
/// For kernels of others.
constexpr std::chrono::seconds longest_wait{60};
constexpr std::chrono::microseconds look_again{100};
/// A turn each at most, at once.
constexpr std::size_t most_awaited = slots / 2;
static_assert(most_awaited + 1 + reserve <= slots);

/// On a GPU with stream memory operations: their word is where the kernel tells of its turns.
class ResidentQueue final : public Queue {
 public:
  ResidentQueue(std::shared_ptr<GpuDevice> device, const ResidentOptions& options)
      : device_(std::move(device)),
        context_(*device_->cuda()),
        options_(options),
        timeline_(create_cuda_timeline(device_, options.cuda)),
        turns_(*device_),
        stay_(context_, timeline_, watcher_, options),
        watcher_([this] { return look(); }) {
    doorbell_ = turns_.doorbell();
    if (const std::string limit = stay_.time_limit(); !limit.empty()) doorbell_ += "; " + limit;
  }

  ~ResidentQueue() override {
    watcher_.stop();
    try {
      const std::lock_guard lock(mutex_);
      leave();
    } catch (const std::exception&) {
      // It was told to leave, and what it uses could not be written down.
    }
    if (end_stream(timeline_, posted_, last_kernel_.empty() ? std::string() : "kernel " + last_kernel_)) return;
    keep_for_good(turns_.memory());
    for (Used& one : used_) keep_for_good(std::move(one.what));
    for (Awaited& one : awaited_) keep_for_good(std::move(one.timeline));
  }

  [[nodiscard]] Backend backend() const noexcept override { return Backend::cuda; }
  [[nodiscard]] std::uint32_t multiprocessors() const noexcept override { return timeline_->multiprocessors(); }
  [[nodiscard]] const std::string& doorbell() const noexcept { return doorbell_; }

  WaitResult wait(const Fence& fence, const std::atomic<bool>& cancel) override {
    device_->check_alive();
    if (fence.signalled()) return WaitResult::ready;
    auto timeline = std::dynamic_pointer_cast<CudaTimeline>(fence.timeline());
    if (timeline == timeline_) return WaitResult::ready;  // turns are in order
    if (!timeline || &timeline->context() != &context_ || timeline->word() == 0) {
      return fence.wait(cancel);
    }
    {
      const std::lock_guard lock(mutex_);
      const auto known = std::ranges::find(awaited_, timeline, &Awaited::timeline);
      if (known != awaited_.end()) {
        known->value = std::max(known->value, fence.value());
        return WaitResult::ready;
      }
      if (awaited_.size() < most_awaited) {
        awaited_.push_back({std::move(timeline), fence.value()});
        return WaitResult::ready;
      }
    }
    return fence.wait(cancel);
  }

  void launch(const Kernel& kernel, const Grid& grid, const gpumap_frame& frame) override {
    const auto* resident = dynamic_cast<const ResidentKernel*>(&kernel);
    if (resident == nullptr) {
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {} was not loaded to stay on the GPU: use another queue", kernel.name()));
    }
    device_->check_alive();
    make_room();
    const std::lock_guard lock(mutex_);
    last_kernel_ = kernel.name();
    come(*resident, grid);
    gpumap_turn turn = turn_of(GPUMAP_TURN_RUN);
    turn.function = resident->index();
    std::copy(grid.blocks.begin(), grid.blocks.end(), turn.blocks);
    std::memcpy(&turn.frame, &frame, resident->frame_bytes());
    post(turn, offsetof(gpumap_turn, frame) + resident->frame_bytes());
  }

  void copy(const Mapping& from, std::size_t from_offset, const Mapping& to, std::size_t to_offset,
            std::size_t bytes) override {
    const auto& source = own_mapping(from, *device_);
    const auto& target = own_mapping(to, *device_);
    check_copy(source, from_offset, target, to_offset, bytes);
    const std::uint64_t source_address = cuda_address(source, "copy") + from_offset;
    const std::uint64_t target_address = cuda_address(target, "copy") + to_offset;
    if (bytes != 0) move(GPUMAP_TURN_COPY, target_address, source_address, bytes);
  }

  void clear(const Mapping& mapping, std::size_t offset, std::size_t bytes) override {
    const auto& target = own_mapping(mapping, *device_);
    check_clear(target, offset, bytes);
    const std::uint64_t address = cuda_address(target, "clear");
    if (bytes != 0) move(GPUMAP_TURN_CLEAR, address + offset, 0, bytes);
  }

  [[nodiscard]] Fence submit() override {
    device_->check_alive();
    const bool has_room = find_room();
    const std::lock_guard lock(mutex_);
    leave_if_needed();
    if (has_room && stay_.is_there() && !may_wait()) leave();
    if (!awaited_.empty() && stay_.is_there()) {
      gpumap_turn nothing = turn_of(GPUMAP_TURN_COPY);
      // Else they stay for the next turn. Who gave up the frame is told until when what was asked for runs.
      if (has_room) post(nothing, offsetof(gpumap_turn, frame));
    } else if (!awaited_.empty() || stream_used_) {
      const CudaContext::Scope scope(context_);
      wait_on_stream();
      timeline_->signal(++posted_);
      stream_used_ = false;
    }
    if (stay_.is_demanded()) leave();
    return {timeline_, posted_};
  }

  [[nodiscard]] std::string no_span_reason() const override {
    return "a kernel that stays on the GPU passes no events that tell the time";
  }

 private:
  struct Awaited {
    std::shared_ptr<CudaTimeline> timeline;
    std::uint64_t value;
  };
  struct Used {
    std::shared_ptr<const void> what;
    std::uint64_t until;  ///< turn
  };

  /// For a turn, those that wait before it, and those by which kernels leave until this is called again: one that is
  /// there, and one that this turn brings. False when who waits gives up. Who waits asks the driver whether the GPU is
  /// well, and it may answer once the GPU runs nothing: not while to leave needs the lock. The same holds for what is
  /// freed here, which no turn uses any more.
  [[nodiscard]] bool find_room() {
    std::vector<std::shared_ptr<const void>> unused;
    std::unique_lock lock(mutex_);
    const std::uint64_t ahead = posted_ + awaited_.size() + 1 + reserve;
    if (ahead > slots) {
      const Fence oldest(timeline_, ahead - slots);
      lock.unlock();
      if (!waited_for(oldest)) return false;
      lock.lock();
    }
    if (used_.empty()) return true;
    const std::uint64_t done = timeline_->completed();
    std::erase_if(used_, [&](Used& one) {
      if (one.until > done) return false;
      unused.push_back(std::move(one.what));
      return true;
    });
    return true;
  }
  void make_room() {
    if (!find_room()) throw QueueCancelled();
  }
  void keep(std::shared_ptr<const void> what, std::uint64_t until) {
    const auto known = std::ranges::find(used_, what, &Used::what);
    if (known != used_.end()) {
      known->until = until;
    } else {
      used_.push_back({std::move(what), until});
    }
  }

  /// The next turn: the first `bytes` of `turn` count. What is waited for comes first.
  void post(gpumap_turn& turn, std::size_t bytes) {
    for (std::size_t i = 0; i < awaited_.size(); ++i) {
      const bool last = i + 1 == awaited_.size();
      gpumap_turn only_waits{};
      only_waits.kind = GPUMAP_TURN_COPY;
      gpumap_turn& waits = last ? turn : only_waits;
      waits.after = awaited_[i].timeline->word();
      waits.until = awaited_[i].value;
      keep(std::move(awaited_[i].timeline), posted_ + 1);
      if (!last) put(only_waits, offsetof(gpumap_turn, frame));
    }
    awaited_.clear();
    put(turn, bytes);
    stay_.note_use();
  }

  /// Where find_room() has seen to room.
  void put(const gpumap_turn& turn, std::size_t bytes) noexcept {
    turns_.put(posted_, turn, bytes);
    timeline_->note_due(++posted_);
  }

  /// `kernel` is on the GPU, in blocks as `grid` has them and as many as help.
  void come(const ResidentKernel& kernel, const Grid& grid) {
    leave_if_needed();
    if (!stay_.serves(kernel, grid)) come_anew(kernel, grid, false);
    // What it comes behind the second time has not to be waited for any more: a turn less, for the one that leaves.
    if (!may_wait()) come_anew(kernel, grid, true);
  }
  /// What is waited for is waited for before it, if it comes crowded, and `by_stream` always.
  void come_anew(const ResidentKernel& kernel, const Grid& grid, bool by_stream) {
    leave();
    try {
      stay_.prepare(kernel, grid, [this] { return is_given_up(); });
      if (stay_.is_crowded()) come_behind_others();
      if (by_stream || stay_.is_crowded()) {
        const CudaContext::Scope scope(context_);
        wait_on_stream();
      }
      stay_.launch(kernel, turns_.residence(posted_, timeline_->word()));
    } catch (...) {
      stay_.end();
      throw;
    }
    stream_used_ = false;  // what was there comes before the kernel
  }

  /// So that no block of it stands where one is to run that they wait for, or one of theirs. They may wait for ever,
  /// for another pipeline's kernel, so the CPU waits: no kernel of this queue is there, and nobody needs the lock.
  void come_behind_others() {
    const std::vector<Fence> all = stay_.waits_of_others();
    for (const Fence& one : all) keep(one.timeline(), posted_ + 1);  // none is to go while the lock is held
    const auto are_in_the_way = [&] {
      return std::ranges::any_of(all, [](const Fence& one) { return !one.signalled(); }) ||
             stay_.is_behind_other_priorities();
    };
    for (const Deadline end = Clock::now() + longest_wait; are_in_the_way() && !context_.stuck();
         std::this_thread::sleep_for(look_again)) {
      device_->check_alive();
      if (is_given_up()) throw QueueCancelled();
      if (Clock::now() < end) continue;
      throw Error(
          ErrorCode::io,
          fmt::format("kernel {} found no room on {} for {} s: another kernel that stays there, or what that one "
                      "waits for, does not end: end that one",
                      last_kernel_, context_.gpu_name(), longest_wait.count()));
    }
  }
  /// The next turn may wait on the GPU for what is to be waited for. It is posted at once.
  [[nodiscard]] bool may_wait() { return awaited_.empty() || stay_.waits_until(posted_ + awaited_.size()); }

  /// The GPU is for others, once what was asked for is done.
  void leave() {
    if (!stay_.is_there()) return;
    put(turn_of(GPUMAP_TURN_LEAVE), offsetof(gpumap_turn, frame));
    keep(stay_.end(), posted_);
  }
  /// It was asked to, or what it is to wait for may need one of its multiprocessors.
  void leave_if_needed() {
    if (stay_.is_asked_to_leave() || (stay_.is_crowded() && !awaited_.empty())) leave();
  }

  void move(gpumap_turn_kind kind, std::uint64_t to, std::uint64_t from, std::size_t bytes) {
    device_->check_alive();
    make_room();
    const std::lock_guard lock(mutex_);
    leave_if_needed();
    if (stay_.is_there() && !may_wait()) leave();
    if (stay_.is_there()) {
      gpumap_turn turn = turn_of(kind);
      turn.to = to;
      turn.from = from;
      turn.bytes = bytes;
      post(turn, offsetof(gpumap_turn, frame));
      return;
    }
    // No kernel is there to do it: the stream does, before the next one comes.
    const CudaContext::Scope scope(context_);
    const auto& driver = context_.driver();
    wait_on_stream();
    const CUresult result = kind == GPUMAP_TURN_COPY ? driver.cuMemcpyAsync(to, from, bytes, timeline_->stream())
                                                     : driver.cuMemsetD32Async(to, 0, bytes / 4, timeline_->stream());
    context_.check(result, kind == GPUMAP_TURN_COPY ? "copying" : "clearing");
    stream_used_ = true;
  }

  /// While no kernel is there.
  void wait_on_stream() {
    // One after the other: behind a call that fails those stay that the stream does not wait for yet.
    for (; !awaited_.empty(); awaited_.pop_back()) {
      Awaited& one = awaited_.back();
      one.timeline->make_wait(timeline_->stream(), one.value);
      keep(std::move(one.timeline), posted_ + 1);
    }
  }

  /// The watcher's.
  [[nodiscard]] Clock::time_point look() {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (stay_.is_over(now, posted_)) leave();
    return stay_.next_look(now);
  }

  const std::shared_ptr<GpuDevice> device_;
  const CudaContext& context_;
  const ResidentOptions options_;
  const std::shared_ptr<CudaTimeline> timeline_;
  std::string doorbell_;

  std::mutex mutex_;
  TurnRing turns_;
  Stay stay_;
  std::uint64_t posted_ = 0;      ///< turns, and what the stream did between them
  std::vector<Awaited> awaited_;  ///< by the next turn
  std::vector<Used> used_;
  bool stream_used_ = false;  ///< since the last submit(), and no kernel came
  std::string last_kernel_;   ///< its name
  Watcher watcher_;
};

}  // namespace

std::unique_ptr<Queue> create_resident_queue(std::shared_ptr<GpuDevice> device, const ResidentOptions& options) {
  return std::make_unique<ResidentQueue>(std::move(device), options);
}

std::string doorbell_of(const Queue& resident) {
  return dynamic_cast<const ResidentQueue&>(resident).doorbell();
}

}  // namespace gpumap
