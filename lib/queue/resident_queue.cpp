// SPDX-License-Identifier: MIT
#include "queue/resident_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/cuda_timeline.hpp"
#include "device/residents.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"
#include "memory/gpu_mapping.hpp"
#include "queue/executable.hpp"
#include "queue/queues.hpp"
#include "queue/turn.h"

namespace gpumap {
namespace {

constexpr std::uint64_t slots = 64;
/// Two that leave: see find_room().
constexpr std::uint64_t reserve = 2;
/// A turn each at most, at once.
constexpr std::size_t most_awaited = slots / 2;
static_assert(most_awaited + 1 + reserve <= slots);
/// In one go. The limit is a second or more, and no call tells it.
constexpr std::chrono::milliseconds longest_with_time_limit{200};
/// Behind the turns, of which each begins a cache line: see gpumap_residence.
constexpr std::size_t parts_offset = slots * sizeof(gpumap_turn);

/// Empty but for the frame, which is not written: of that a turn has as much as its kernel takes, or none.
gpumap_turn turn_of(gpumap_turn_kind kind) {
  gpumap_turn turn;
  std::memset(&turn, 0, offsetof(gpumap_turn, frame));
  turn.kind = kind;
  return turn;
}

std::uint64_t product(const std::array<std::uint32_t, 3>& numbers) {
  return std::uint64_t{numbers[0]} * numbers[1] * numbers[2];
}

/// On a GPU with stream memory operations: their word is where the kernel tells of its turns.
class ResidentQueue final : public Queue, private Residents::Guest {
 public:
  ResidentQueue(std::shared_ptr<GpuDevice> device, const ResidentOptions& options)
      : device_(std::move(device)),
        context_(*device_->cuda()),
        options_(options),
        residents_(context_.residents()),
        timeline_(create_cuda_timeline(device_, options.cuda)) {
    const bool shares = timeline_->multiprocessors() != 0;
    multiprocessors_ = shares
                           ? timeline_->multiprocessors()
                           : static_cast<std::uint32_t>(context_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    max_blocks_ = options.blocks != 0 ? options.blocks
                  : shares            ? multiprocessors_
                                      : std::max((multiprocessors_ - 1) / 2, 1U);
    allocate_turns();
    know_time_limit();
    for (std::uint64_t i = 0; i < slots; ++i) slot(i).number = 0;
    store_fence();
    watcher_ = std::thread([this] { watch(); });
  }

  ~ResidentQueue() override {
    {
      const std::lock_guard lock(asked_mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    watcher_.join();
    try {
      const std::lock_guard lock(mutex_);
      leave();
      if (const CudaContext::CleanupScope scope(context_); scope) {
        context_.driver().cuStreamSynchronize(timeline_->stream());
      }
    } catch (const std::exception&) {
      // The device is lost: nothing runs on it any more.
    }
    be_away();
  }

  [[nodiscard]] Backend backend() const noexcept override { return Backend::cuda; }
  [[nodiscard]] const std::string& doorbell() const noexcept { return doorbell_; }

  WaitResult wait(const Fence& fence, const std::atomic<bool>* cancel) override {
    device_->check_alive();
    if (fence.signalled()) return WaitResult::ready;
    auto timeline = std::dynamic_pointer_cast<CudaTimeline>(fence.timeline());
    if (timeline == timeline_) return WaitResult::ready;  // turns are in order
    if (!timeline || &timeline->context() != &context_ || timeline->word() == 0) {
      return fence.wait(no_deadline, cpu_wait_spin, cancel);
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
    return fence.wait(no_deadline, cpu_wait_spin, cancel);
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
    if (source.address(Backend::cuda) == 0 || target.address(Backend::cuda) == 0) {
      throw Error(ErrorCode::invalid,
                  "copy: host memory that was allocated for Vulkan has no CUDA address: use a queue of Vulkan");
    }
    if (bytes != 0) {
      move(GPUMAP_TURN_COPY, target.address(Backend::cuda) + to_offset, source.address(Backend::cuda) + from_offset,
           bytes);
    }
  }

  void clear(const Mapping& mapping, std::size_t offset, std::size_t bytes) override {
    const auto& target = own_mapping(mapping, *device_);
    check_clear(target, offset, bytes);
    if (target.address(Backend::cuda) == 0) {
      throw Error(ErrorCode::invalid, "clear: this memory has no CUDA address: use a queue of Vulkan");
    }
    if (bytes != 0) move(GPUMAP_TURN_CLEAR, target.address(Backend::cuda) + offset, 0, bytes);
  }

  [[nodiscard]] Fence submit() override {
    device_->check_alive();
    const bool has_room = find_room();
    const std::lock_guard lock(mutex_);
    leave_if_needed();
    if (!awaited_.empty() && present_) {
      gpumap_turn nothing = turn_of(GPUMAP_TURN_COPY);
      // Else they stay for the next turn. Who gave up the frame is told until when what was asked for runs.
      if (has_room) post(nothing, offsetof(gpumap_turn, frame));
    } else if (!awaited_.empty() || stream_used_) {
      const CudaContext::Scope scope(context_);
      wait_on_stream();
      timeline_->signal(++posted_);
      stream_used_ = false;
    }
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

  void allocate_turns() {
    MappingOptions options{
        .placement = Placement::bar, .bytes = parts_offset + sizeof(std::uint64_t), .require_coherent = true};
    doorbell_ = "its doorbell is in the GPU's memory";
    std::string why = fmt::format("{} does not keep the order of writes over PCIe", context_.gpu_name());
    const char* asked = std::getenv("GPUMAP_CUDA_DOORBELL");
    if (asked != nullptr && std::string_view(asked) == "host") {
      why = "GPUMAP_CUDA_DOORBELL=host says so";
    } else if (context_.attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
               CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER) {
      try {
        turns_ = device_->allocate(options, Backend::cuda);
        return;
      } catch (const Error& error) {
        why = error.what();
      }
    }
    options.placement = Placement::host;
    turns_ = device_->allocate(options, Backend::cuda);
    doorbell_ = "its doorbell is in host memory: " + why;
  }

  void know_time_limit() {
    if (context_.attribute(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT) == 0) return;
    stay_ = std::min<std::chrono::nanoseconds>(stay_, longest_with_time_limit);
    doorbell_ += fmt::format("; {} limits the time of kernels, as one with a display does: it leaves after {} ms",
                             context_.gpu_name(), std::chrono::duration_cast<std::chrono::milliseconds>(stay_).count());
  }

  [[nodiscard]] gpumap_turn& slot(std::uint64_t number) const noexcept {
    return reinterpret_cast<gpumap_turn*>(turns_->host())[number % slots];
  }

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
      if (!oldest.signalled() && !(options_.wait ? options_.wait(oldest) : oldest.wait() == WaitResult::ready)) {
        return false;
      }
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
    seen_busy_ = true;
  }

  /// Where find_room() has seen to room.
  void put(gpumap_turn& turn, std::size_t bytes) {
    gpumap_turn& at = slot(posted_);
    constexpr std::size_t begin = offsetof(gpumap_turn, kind);
    stream_copy(reinterpret_cast<std::byte*>(&at) + begin, reinterpret_cast<const std::byte*>(&turn) + begin,
                bytes - begin);
    store_fence();
    ++posted_;
    std::atomic_ref<gpumap_u64>(at.number).store(posted_, std::memory_order_release);
    store_fence();
  }

  /// `kernel` is on the GPU, in blocks as `grid` has them and as many as help.
  void come(const ResidentKernel& kernel, const Grid& grid) {
    leave_if_needed();
    const auto wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>(product(grid.blocks), max_blocks_));
    if (present_ == kernel.owner() && threads_ == grid.threads && std::min(wanted, room_) <= blocks_) return;
    leave();
    threads_ = grid.threads;
    room_ = room_for(kernel);
    blocks_ = std::min(wanted, room_);
    crowded_ = residents_.come(*this, timeline_->multiprocessors() != 0 ? 0 : blocks_);
    try {
      launch_to_stay(kernel);
    } catch (...) {
      be_away();
      throw;
    }
    present_ = kernel.owner();
    came_ = Clock::now();
    look_ = came_ + options_.idle;
    {
      const std::lock_guard lock(asked_mutex_);
      comes_ = true;
    }
    changed_.notify_all();
    stream_used_ = false;  // what was there comes before the kernel
  }

  /// Blocks that can be there at a time: a turn waits for all of them.
  [[nodiscard]] std::uint32_t room_for(const ResidentKernel& kernel) const {
    const CudaContext::Scope scope(context_);
    int of_one = 0;
    context_.check(context_.driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
                       &of_one, kernel.resident_function(), static_cast<int>(product(threads_)), kernel.shared_bytes()),
                   fmt::format("asking how many blocks of kernel {} a multiprocessor takes", kernel.name()));
    return static_cast<std::uint32_t>(std::max(of_one, 1)) * multiprocessors_;
  }

  void launch_to_stay(const ResidentKernel& kernel) {
    const CudaContext::Scope scope(context_);
    const auto& driver = context_.driver();
    if (crowded_) wait_on_stream();
    const std::string what = fmt::format("launching kernel {} to stay, in {} blocks of {}x{}x{} threads", kernel.name(),
                                         blocks_, threads_[0], threads_[1], threads_[2]);
    const std::uint64_t parts = turns_->address(Backend::cuda) + parts_offset;
    context_.check(driver.cuMemsetD32Async(parts, 0, 2, timeline_->stream()), what);
    gpumap_residence residence{.turns = turns_->address(Backend::cuda),
                               .slots = slots,
                               .stride = sizeof(gpumap_turn),
                               .first = posted_,
                               .parts = parts,
                               .done = timeline_->word()};
    void* arguments[] = {&residence};
    context_.check(driver.cuLaunchKernel(kernel.resident_function(), blocks_, 1, 1, threads_[0], threads_[1],
                                         threads_[2], kernel.shared_bytes(), timeline_->stream(), arguments, nullptr),
                   what);
  }

  /// The GPU is for others, once what was asked for is done.
  void leave() {
    if (!present_) return;
    gpumap_turn turn = turn_of(GPUMAP_TURN_LEAVE);
    put(turn, offsetof(gpumap_turn, frame));
    keep(std::exchange(present_, nullptr), posted_);
    be_away();
  }
  void be_away() noexcept {
    residents_.leave(*this);
    asked_ = false;
  }

  void ask_to_leave() noexcept override {
    {
      const std::lock_guard lock(asked_mutex_);
      asked_ = true;
    }
    changed_.notify_all();
  }
  /// It was asked to, or what it is to wait for may need one of its multiprocessors.
  void leave_if_needed() {
    if (asked_ || (crowded_ && !awaited_.empty())) leave();
  }

  void move(gpumap_turn_kind kind, std::uint64_t to, std::uint64_t from, std::size_t bytes) {
    device_->check_alive();
    make_room();
    const std::lock_guard lock(mutex_);
    leave_if_needed();
    if (present_) {
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
    for (Awaited& one : awaited_) {
      one.timeline->make_wait(timeline_->stream(), one.value);
      keep(std::move(one.timeline), posted_ + 1);
    }
    awaited_.clear();
  }

  /// Idle or there for long enough, or asked to, the kernel leaves.
  void watch() noexcept try {
    constexpr std::chrono::hours nobody_there{1};
    for (Clock::time_point wake = Clock::now() + nobody_there;;) {
      {
        std::unique_lock lock(asked_mutex_);
        changed_.wait_until(lock, wake, [this] { return ends_ || asked_ || comes_; });
        if (ends_) return;
        comes_ = false;
      }
      const std::lock_guard lock(mutex_);
      const Clock::time_point now = Clock::now();
      bool idle = false;
      if (present_ && now >= look_) {
        idle = !std::exchange(seen_busy_, false) && timeline_->completed() == posted_;
        look_ = now + options_.idle;
      }
      if (asked_ || idle || now - came_ >= stay_) leave();
      wake = present_ ? std::min(look_, came_ + stay_) : now + nobody_there;
    }
  } catch (const std::exception&) {
    // The device is lost: nothing runs on it any more.
  }

  const std::shared_ptr<GpuDevice> device_;
  const CudaContext& context_;
  const ResidentOptions options_;
  std::chrono::nanoseconds stay_ = options_.stay;
  Residents& residents_;
  const std::shared_ptr<CudaTimeline> timeline_;
  std::uint32_t multiprocessors_ = 0, max_blocks_ = 0;
  std::string doorbell_;
  std::shared_ptr<Mapping> turns_;

  std::mutex asked_mutex_;  ///< of what the watcher waits for
  std::condition_variable changed_;
  std::atomic<bool> asked_{false};  ///< to leave
  bool ends_ = false, comes_ = false;

  std::mutex mutex_;
  std::uint64_t posted_ = 0;             ///< turns, and what the stream did between them
  std::shared_ptr<const void> present_;  ///< owner of the kernel that is on the GPU; null: none
  Clock::time_point came_, look_;        ///< when it came, and when it may be found idle
  std::array<std::uint32_t, 3> threads_{};
  std::uint32_t blocks_ = 0, room_ = 0;  ///< of what is there: blocks, and how many could be
  bool crowded_ = false;                 ///< it came where no multiprocessor was left for others
  std::vector<Awaited> awaited_;         ///< by the next turn
  std::vector<Used> used_;
  bool stream_used_ = false;  ///< since the last submit(), and no kernel came
  bool seen_busy_ = false;
  std::thread watcher_;
};

}  // namespace

std::unique_ptr<Queue> create_resident_queue(std::shared_ptr<GpuDevice> device, const ResidentOptions& options) {
  return std::make_unique<ResidentQueue>(std::move(device), options);
}

std::string doorbell_of(const Queue& resident) {
  return dynamic_cast<const ResidentQueue&>(resident).doorbell();
}

}  // namespace gpumap
