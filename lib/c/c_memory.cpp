// SPDX-License-Identifier: MIT
#include "c/c_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/copy.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gpumap/memory.hpp"

namespace gpumap::c {
namespace {

/// How long a read waits for the kernel that writes the memory.
constexpr std::int64_t longest_kernel_ns = 60'000'000'000;

/// The copier of a device and a kind of memory, made with the first copy. Its threads are the process's, and stay.
class DeviceCopier {
 public:
  static DeviceCopier& of(const Place& place) {
    struct All {
      std::mutex mutex;
      std::map<const Device*, std::map<Placement, std::unique_ptr<DeviceCopier>>> copiers;
    };
    static auto* const all = new All;
    const std::lock_guard lock(all->mutex);
    auto& copier = all->copiers[&place.device][place.mapping.placement()];
    if (!copier) copier = std::make_unique<DeviceCopier>(place.device.info().pci_address);
    return *copier;
  }

  explicit DeviceCopier(const std::string& pci_address)
      : copier_({.threads = 0, .kernel = {}, .pci_address = pci_address}) {}

  void copy(const Place& place, std::byte* to, const std::byte* from, std::size_t bytes) {
    measure(place, to, bytes);
    copier_.copy(to, from, bytes);
  }

 private:
  /// On what is to be overwritten, and so may lose its content.
  void measure(const Place& place, std::byte* to, std::size_t bytes) {
    constexpr std::size_t least = std::size_t{64} * 1024;
    if (bytes < least || bytes <= measured_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    if (bytes <= measured_) return;
    const bool bar = place.mapping.placement() == Placement::bar && !place.device.info().software;
    copier_.calibrate({to, bytes}, to_string(place.device.info().uuid) + (bar ? " bar" : " host"), bar);
    measured_ = bytes;
  }

  Copier copier_;
  std::mutex mutex_;
  std::atomic<std::size_t> measured_{0};
};

/// Comes to 1 when a number of the caller's has come to a value.
class ForeignCounter final : public Timeline {
 public:
  ForeignCounter(const volatile std::uint64_t* counter, std::uint64_t value) : counter_(counter), value_(value) {}
  std::uint64_t completed() override { return __atomic_load_n(counter_, __ATOMIC_ACQUIRE) >= value_ ? 1 : 0; }
  void check() override {}

 private:
  const volatile std::uint64_t* counter_;
  const std::uint64_t value_;
};

/// The same of a timeline semaphore of a VkDevice of the caller's. Not asked any more once it has come there.
class ForeignSemaphore final : public Timeline {
 public:
  using GetCounter = std::int32_t (*)(void* device, std::uint64_t semaphore, std::uint64_t* value);
  explicit ForeignSemaphore(const gpumap_fence& fence)
      : device_(fence.vulkan_device),
        semaphore_(fence.vulkan_semaphore),
        get_(reinterpret_cast<GetCounter>(fence.vulkan_get_counter)),
        value_(fence.value) {}
  std::uint64_t completed() override {
    if (done_) return 1;
    std::uint64_t now = 0;
    result_ = get_(device_, semaphore_, &now);
    if (result_ == 0 && now >= value_) done_ = true;
    return done_ ? 1 : 0;
  }
  void check() override {
    if (!done_ && result_ < 0) {
      throw Error(ErrorCode::device_lost,
                  fmt::format("vkGetSemaphoreCounterValue() gave {}: the other VkDevice is lost", result_.load()));
    }
  }

 private:
  void* const device_;
  const std::uint64_t semaphore_;
  const GetCounter get_;
  const std::uint64_t value_;
  std::atomic<std::int32_t> result_{0};
  std::atomic<bool> done_{false};
};

/// An allocation that one handle has.
class OwnAllocation final : public Keeper {
 public:
  explicit OwnAllocation(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
  [[nodiscard]] const std::shared_ptr<Mapping>& mapping() const noexcept override { return mapping_; }
  void let_go(std::vector<Fence> users) noexcept override { outlast(std::move(mapping_), users); }

 private:
  std::shared_ptr<Mapping> mapping_;
};

class KernelBlock final : public Keeper {
 public:
  explicit KernelBlock(LentBlock block) : block_(std::move(block)) {}
  [[nodiscard]] const std::shared_ptr<Mapping>& mapping() const noexcept override { return block_.shared_mapping(); }
  void let_go(std::vector<Fence> users) noexcept override {
    try {
      for (const Fence& user : users) block_.add_read_fence(user);
    } catch (const std::exception&) {
      outlast(block_.shared_mapping(), users);
    }
  }

 private:
  LentBlock block_;
};

}  // namespace

void outlast(std::shared_ptr<Mapping> mapping, const std::vector<Fence>& users, Deadline end) noexcept {
  if (end == no_deadline) end = Clock::now() + patience_at_end;
  const std::atomic<bool> never{false};
  for (const Fence& user : users) {
    try {
      if (user.wait(never, end) == WaitResult::ready) continue;
    } catch (const std::exception&) {
      continue;  // The device is lost: nothing runs on it any more.
    }
    std::fprintf(stderr, "gpumap: memory is still used 5 s after it was given back: %zu bytes stay allocated\n",
                 mapping->bytes());
    for (const Fence& one : users) one.give_up({});
    try {
      for (const Fence& one : users) keep_for_good(one.timeline());  // without it nobody knows that the work still runs
      keep_for_good(mapping);
    } catch (const std::exception&) {
      static_cast<void>(new std::shared_ptr<Mapping>(std::move(mapping)));  // for good, too
    }
    return;
  }
}

std::unique_ptr<Keeper> keep(LentBlock block) {
  return std::make_unique<KernelBlock>(std::move(block));
}

Placement placement_of(std::uint32_t placement) {
  switch (placement) {
    case GPUMAP_PLACEMENT_BAR:
      return Placement::bar;
    case GPUMAP_PLACEMENT_DEVICE:
      return Placement::device;
    case GPUMAP_PLACEMENT_HOST:
      return Placement::host;
    default:
      throw Error(ErrorCode::invalid,
                  fmt::format("no memory is allocated with placement {}: take bar, device or host", placement));
  }
}

void MemoryObject::add_user(const Fence& fence) {
  if (fence.signalled()) return;
  const std::lock_guard lock(mutex_);
  // A stream that uses it often is waited for once.
  std::erase_if(users_, [](const Fence& user) { return user.signalled(); });
  users_.push_back(fence);
}

gpumap_memory_info Place::info() const {
  gpumap_memory_info made{};
  made.host = host();
  made.cuda_address = address(Backend::cuda);
  made.vulkan_address = address(Backend::vulkan);
  made.bytes = bytes;
  switch (mapping.placement()) {
    case Placement::bar:
      made.placement = GPUMAP_PLACEMENT_BAR;
      break;
    case Placement::device:
      made.placement = GPUMAP_PLACEMENT_DEVICE;
      break;
    case Placement::host:
      made.placement = GPUMAP_PLACEMENT_HOST;
      break;
    default:
      made.placement = GPUMAP_PLACEMENT_MIRRORED;
      break;
  }
  made.software = device.info().software ? 1 : 0;
  made.coherent = mapping.coherent() ? 1 : 0;
  // The memory of a software device is ordinary memory.
  made.cpu_readable = mapping.host() != nullptr && (mapping.cpu_readable() || device.info().software) ? 1 : 0;
  return made;
}

void Place::check_range(std::uint64_t at, std::uint64_t count, const char* what) const {
  if (at <= bytes && count <= bytes - at) return;
  throw Error(ErrorCode::invalid, fmt::format("{} {} bytes at offset {} ends behind the memory of {}: ask for less",
                                              what, count, at, bytes));
}

void Place::copy_in(std::uint64_t at, const void* from, std::uint64_t count) const {
  check_range(at, count, "writing");
  if (count == 0) return;
  need(from, "what is to be written");
  if (host() == nullptr) {
    throw Error(ErrorCode::not_supported,
                "the CPU does not reach this memory: allocate with GPUMAP_PLACEMENT_BAR, or copy by the GPU");
  }
  DeviceCopier::of(*this).copy(*this, host() + at, static_cast<const std::byte*>(from), count);
  store_fence();
}

void Place::copy_out(std::uint64_t at, void* to, std::uint64_t count) const {
  check_range(at, count, "reading");
  if (count == 0) return;
  need(to, "where what is read is to go");
  mapping.download(offset + at, {static_cast<std::byte*>(to), count});
}

gpumap_vulkan_export Place::exported() const {
  const VulkanExport from = export_to_vulkan(mapping);
  gpumap_vulkan_export made{};
  made.allocation_bytes = from.allocation_bytes;
  made.buffer_bytes = from.buffer_bytes;
  made.base = from.base + offset;
  made.fd = from.fd;
  made.memory_type = from.memory_type;
  return made;
}

Fence fence_of(Device& device, const gpumap_fence* given) {
  if (given == nullptr) return {};
  const gpumap_fence fence = options_of(given, "gpumap_fence");
  switch (fence.kind) {
    case GPUMAP_FENCE_HOST:
      return {};
    case GPUMAP_FENCE_CUDA:
      return fence_of_cuda_stream(device, fence.cuda_stream);
    case GPUMAP_FENCE_VULKAN:
      if (fence.vulkan_device == nullptr || fence.vulkan_semaphore == 0 || fence.vulkan_get_counter == nullptr) {
        throw Error(ErrorCode::invalid,
                    "a Vulkan fence lacks its device, its semaphore or its function: see gpumap_vulkan_fence()");
      }
      return {std::make_shared<ForeignSemaphore>(fence), 1};
    case GPUMAP_FENCE_COUNTER:
      need(const_cast<const std::uint64_t*>(fence.counter), "the counter of a fence");
      return {std::make_shared<ForeignCounter>(fence.counter, fence.value), 1};
    default:
      throw Error(ErrorCode::invalid, fmt::format("no fence has kind {}: see gpumap_fence_kind", fence.kind));
  }
}

gpumap_status let_wait(Device& device, const Fence& work, const gpumap_fence* who, std::int64_t timeout_ns) {
  if (who != nullptr && options_of(who, "gpumap_fence").kind == GPUMAP_FENCE_CUDA) {
    const bool ordered = let_cuda_stream_wait(device, work, who->cuda_stream, patience_of(timeout_ns));
    return ordered ? GPUMAP_OK : GPUMAP_TIMEOUT;
  }
  return work.wait_for(patience_of(timeout_ns)) == WaitResult::ready ? GPUMAP_OK : GPUMAP_TIMEOUT;
}

// Blocks of one size in few allocations.

namespace {

/// What the pool and its blocks share. Thread safety: any thread.
class Blocks {
 public:
  struct Block {
    std::shared_ptr<Mapping> mapping;
    std::size_t offset = 0;
  };

  Blocks(std::shared_ptr<Device> device, const MappingOptions& allocation, std::size_t stride, std::size_t most)
      : device_(std::move(device)), allocation_(allocation), stride_(stride), most_(most) {}
  ~Blocks() {
    const Deadline end = Clock::now() + patience_at_end;
    for (Used& used : used_) outlast(std::move(used.block.mapping), used.users, end);
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  /// No mapping: there are no more.
  [[nodiscard]] Block take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) collect();
    if (free_.empty() && made_ < most_) grow();
    if (free_.empty()) return {};
    Block block = std::move(free_.back());
    free_.pop_back();
    return block;
  }

  void give_back(Block block, std::vector<Fence> users) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      if (users.empty()) {
        free_.push_back(std::move(block));  // has its room since it was made
      } else {
        used_.push_back({block, std::move(users)});
      }
    } catch (const std::exception&) {
      outlast(std::move(block.mapping), users);  // no memory to note it: the block is lost, its memory is not
    }
  }

  [[nodiscard]] const std::shared_ptr<Device>& device() const noexcept { return device_; }

 private:
  struct Used {
    Block block;
    std::vector<Fence> users;
  };

  void collect() {
    std::erase_if(used_, [this](Used& used) {
      const bool done =
          std::all_of(used.users.begin(), used.users.end(), [](const Fence& user) { return user.signalled(); });
      if (done) free_.push_back(std::move(used.block));
      return done;
    });
  }

  void grow() {
    const std::size_t count = std::min(allocation_.bytes / stride_, most_ - made_);
    MappingOptions options = allocation_;
    options.bytes = count * stride_;
    const std::shared_ptr<Mapping> mapping = device_->allocate(options);
    free_.reserve(made_ + count);
    for (std::size_t number = count; number-- > 0;) free_.push_back({mapping, number * stride_});
    made_ += count;
  }

  const std::shared_ptr<Device> device_;
  const MappingOptions allocation_;
  const std::size_t stride_, most_;
  std::mutex mutex_;
  std::vector<Block> free_;
  std::deque<Used> used_;  ///< given back, in that order, and perhaps still used by a GPU
  std::size_t made_ = 0;
};

class PoolBlock final : public Keeper {
 public:
  PoolBlock(std::shared_ptr<Blocks> pool, Blocks::Block block) : pool_(std::move(pool)), block_(std::move(block)) {}
  [[nodiscard]] const std::shared_ptr<Mapping>& mapping() const noexcept override { return block_.mapping; }
  void let_go(std::vector<Fence> users) noexcept override { pool_->give_back(std::move(block_), std::move(users)); }

 private:
  const std::shared_ptr<Blocks> pool_;
  Blocks::Block block_;
};

class PoolObject final : public Object {
 public:
  static constexpr const char* name = "pool";
  PoolObject(std::shared_ptr<Blocks> all, std::size_t bytes) : blocks(std::move(all)), block_bytes(bytes) {}
  [[nodiscard]] const char* what() const noexcept override { return name; }

  const std::shared_ptr<Blocks> blocks;
  const std::size_t block_bytes;
};

}  // namespace

}  // namespace gpumap::c

using namespace gpumap;     // NOLINT: definitions of the C interface
using namespace gpumap::c;  // NOLINT

gpumap_status gpumap_memory_alloc(gpumap_device device, uint64_t bytes, const gpumap_memory_options* options,
                                  gpumap_memory* memory) {
  return guarded([&] {
    need(memory, "where the memory is to go");
    const auto on = use<DeviceObject>(device);
    const gpumap_memory_options wanted = options_of(options, "gpumap_memory_options");
    MappingOptions mapping;
    mapping.placement = c::placement_of(wanted.placement);
    mapping.bytes = bytes;
    require(mapping, *on, wanted.flags);
    hand_out(std::make_unique<MemoryObject>(on->device, std::make_unique<OwnAllocation>(on->device->allocate(mapping)),
                                            0, bytes),
             memory);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_memory_free(gpumap_memory memory) {
  return guarded([&] {
    if (memory != nullptr) static_cast<void>(close<MemoryObject>(memory));
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_memory_get_info(gpumap_memory memory, gpumap_memory_info* info) {
  return guarded([&] {
    tell(use<MemoryObject>(memory)->place().info(), info, "gpumap_memory_info");
    return GPUMAP_OK;
  });
}

void* gpumap_memory_host(gpumap_memory memory) {
  return guarded_or<void*>(nullptr, [&] { return static_cast<void*>(use<MemoryObject>(memory)->place().host()); });
}

uint64_t gpumap_memory_address(gpumap_memory memory) {
  return guarded_or<std::uint64_t>(0, [&] {
    const auto object = use<MemoryObject>(memory);
    return object->place().address(object->device()->default_backend());
  });
}

uint64_t gpumap_memory_bytes(gpumap_memory memory) {
  return guarded_or<std::uint64_t>(0, [&] { return std::uint64_t{use<MemoryObject>(memory)->place().bytes}; });
}

gpumap_status gpumap_memory_flush(gpumap_memory memory, uint64_t offset, uint64_t bytes) {
  return guarded([&] {
    const auto object = use<MemoryObject>(memory);
    const Place place = object->place();
    place.check_range(offset, bytes, "a flush of");
    store_fence();
    place.mapping.flush(place.offset + offset, bytes);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_memory_invalidate(gpumap_memory memory, uint64_t offset, uint64_t bytes) {
  return guarded([&] {
    const auto object = use<MemoryObject>(memory);
    const Place place = object->place();
    place.check_range(offset, bytes, "an invalidation of");
    place.mapping.invalidate(place.offset + offset, bytes);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_memory_write(gpumap_memory memory, uint64_t offset, const void* from, uint64_t bytes) {
  return guarded([&] {
    const auto object = use<MemoryObject>(memory);
    const Place place = object->place();
    place.copy_in(offset, from, bytes);
    place.mapping.flush(place.offset + offset, bytes);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_memory_read(gpumap_memory memory, uint64_t offset, void* to, uint64_t bytes) {
  return guarded([&]() -> gpumap_status {
    const auto object = use<MemoryObject>(memory);
    if (object->written().wait_for(patience_of(longest_kernel_ns)) != WaitResult::ready) return GPUMAP_TIMEOUT;
    object->place().copy_out(offset, to, bytes);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_memory_wait(gpumap_memory memory, const gpumap_fence* who, int64_t timeout_ns) {
  return guarded([&] {
    const auto object = use<MemoryObject>(memory);
    return let_wait(*object->device(), object->written(), who, timeout_ns);
  });
}

gpumap_status gpumap_memory_used_by(gpumap_memory memory, const gpumap_fence* who) {
  return guarded([&] {
    const auto object = use<MemoryObject>(memory);
    object->add_user(fence_of(*object->device(), who));
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_memory_export_vulkan(gpumap_memory memory, gpumap_vulkan_export* exported) {
  return guarded([&] {
    need(exported, "gpumap_vulkan_export");
    check_size(exported->struct_size, "gpumap_vulkan_export");
    tell(use<MemoryObject>(memory)->place().exported(), exported, "gpumap_vulkan_export");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_pool_create(gpumap_device device, const gpumap_pool_options* options, gpumap_pool* pool) {
  return guarded([&] {
    need(pool, "where the pool is to go");
    need(options, "gpumap_pool_options");
    constexpr std::size_t alignment = 256;
    constexpr std::size_t usual_allocation = std::size_t{1} << 20U;
    const auto on = use<DeviceObject>(device);
    const gpumap_pool_options wanted = options_of(options, "gpumap_pool_options");
    constexpr std::uint64_t largest = std::uint64_t{1} << 40U;
    if (wanted.block_bytes == 0 || wanted.block_bytes > largest) {
      throw Error(ErrorCode::invalid,
                  fmt::format("a pool of blocks of {} bytes: ask for 1 to {}", wanted.block_bytes, largest));
    }
    const std::size_t stride = (wanted.block_bytes + alignment - 1) / alignment * alignment;
    const std::size_t usual = std::max<std::size_t>(usual_allocation / stride, 1);
    MappingOptions allocation;
    allocation.placement = c::placement_of(wanted.placement);
    const std::size_t blocks = wanted.blocks != 0 ? wanted.blocks : usual;
    if (blocks > std::numeric_limits<std::size_t>::max() / stride) {
      throw Error(ErrorCode::invalid, fmt::format("{} blocks of {} bytes in one allocation: no memory has room for "
                                                  "them: ask for fewer",
                                                  blocks, wanted.block_bytes));
    }
    allocation.bytes = stride * blocks;
    require(allocation, *on, wanted.flags);
    const std::size_t most = wanted.max_blocks != 0 ? wanted.max_blocks : std::numeric_limits<std::size_t>::max();
    hand_out(std::make_unique<PoolObject>(std::make_shared<Blocks>(on->device, allocation, stride, most),
                                          wanted.block_bytes),
             pool);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_pool_close(gpumap_pool pool) {
  return guarded([&] {
    if (pool != nullptr) static_cast<void>(close<PoolObject>(pool));
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_pool_take(gpumap_pool pool, gpumap_memory* memory) {
  return guarded([&]() -> gpumap_status {
    need(memory, "where the memory is to go");
    const auto from = use<PoolObject>(pool);
    Blocks::Block block = from->blocks->take();
    if (!block.mapping) return GPUMAP_FULL;
    const std::size_t offset = block.offset;
    hand_out(std::make_unique<MemoryObject>(from->blocks->device(),
                                            std::make_unique<PoolBlock>(from->blocks, std::move(block)), offset,
                                            from->block_bytes),
             memory);
    return GPUMAP_OK;
  });
}
