// SPDX-License-Identifier: MIT
#include "gst/memory/gpumap_memory.hpp"

#include <fmt/format.h>
#include <gst/video/video.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <new>
#include <utility>

#include "gpumap/copy.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gpumap/memory.hpp"
#include "gpumap/slot_copier.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/gpumap/gstgpumapallocator-private.h"
#include "gst/memory/frame_format.hpp"

GST_DEBUG_CATEGORY_STATIC(gpumap_memory_debug);
#define GST_CAT_DEFAULT gpumap_memory_debug

namespace gpumap::gst {

void await_written(const Fence& written, const std::function<bool()>& stops, const char* what, const Giver* giver,
                   bool once) {
  constexpr std::chrono::seconds patience{30};
  constexpr std::chrono::seconds patience_while_stopping{1};
  constexpr std::chrono::milliseconds look_again{20};
  Deadline end = Clock::now() + (once ? std::chrono::seconds(0) : patience);
  bool ends = false;
  while (written.wait_for(std::min<Clock::duration>(look_again, end - Clock::now())) != WaitResult::ready) {
    const auto now = Clock::now();
    if (!ends && stops()) {
      ends = true;
      end = std::min(end, now + patience_while_stopping);
    }
    if (ends && giver != nullptr) end = std::min(end, giver->end_of_waits());
    if (now < end) continue;
    throw Error(ErrorCode::io, ends ? fmt::format("{} has not ended, and is to stop", what)
                                    : fmt::format("{} has not ended for {} s: see what it waits for, and what else "
                                                  "keeps the GPU busy",
                                                  what, patience.count()));
  }
}

FrameMemory::FrameMemory(WriteLease lease, std::shared_ptr<MapCounters> counters, bool trust_readwrite)
    : device_(&lease.ring()->device()),
      mapping_(lease.ring()->mapping().get()),
      offset_(lease.offset()),
      bytes_(lease.bytes()),
      counters_(std::move(counters)),
      trust_readwrite_(trust_readwrite) {
  holder_ = std::move(lease);
}

FrameMemory::FrameMemory(std::size_t host_bytes) : bytes_(host_bytes), cpu_clock_(true) {}

FrameMemory::FrameMemory(Ptr<GstMemory> slot, std::size_t at, std::size_t bytes, bool trust_readwrite)
    : bytes_(bytes), trust_readwrite_(trust_readwrite) {
  const FrameMemory& whole = *frame_memory(slot.get());
  device_ = whole.device_;
  mapping_ = whole.mapping_;
  offset_ = whole.offset_ + at;
  counters_ = whole.counters_;
  holder_ = std::move(slot);
}

FrameMemory::FrameMemory(ReadLease&& lease)
    : device_(&lease.ring()->device()),
      mapping_(lease.ring()->mapping().get()),
      offset_(lease.offset()),
      bytes_(lease.ring()->slot_bytes()),
      has_content_(true),
      written_(lease.written()) {
  holder_.emplace<ReadLease>(std::move(lease));
}

FrameMemory::FrameMemory(std::shared_ptr<Device> device, MemoryBlock block, std::size_t bytes,
                         std::shared_ptr<BlockPool> pool)
    : mapping_(block.mapping.get()),
      own_device_(std::move(device)),
      bytes_(bytes),
      pool_(std::move(pool)),
      has_content_(true) {
  holder_ = std::move(block);
}

FrameMemory::~FrameMemory() {
  if (trace_) {
    if (auto* lease = std::get_if<ReadLease>(&holder_)) trace_->stamp(Stamp::released, lease->release());
    return;
  }
  auto* block = std::get_if<MemoryBlock>(&holder_);
  if (block == nullptr || !pool_) return;
  block->add_reader(written_);
  pool_->give_back(std::move(*block));
}

void FrameMemory::check_recall() const {
  if (!recalled()) return;
  throw Error(ErrorCode::io,
              "the producer has taken this frame back, for its stall-limit was over: take frames faster, set leaky on "
              "gpumapsrc, or raise stall-limit on gpumapsink");
}

void FrameMemory::make_shadow() {
  constexpr std::size_t page = 4096;
  decltype(shadow_) made(static_cast<std::byte*>(std::aligned_alloc(page, (bytes_ + page - 1) / page * page)),
                         &std::free);
  if (!made) throw std::bad_alloc();
  if (!has_content_) {
    std::memset(made.get(), 0, bytes_);
  } else {
    // What this thread stored through the BAR must have left the CPU before DMA reads it back.
    store_fence();
    const std::shared_ptr<const Giver> giver = this->giver();
    mapping_->download_unless([&giver] { return giver && giver->is_about_to_stop(); }, offset_, {made.get(), bytes_});
    check_recall();
  }
  // Only now: after a download that failed there is nothing to see.
  shadow_ = std::move(made);
}

std::chrono::nanoseconds FrameMemory::now() const noexcept {
  timespec time{};
  clock_gettime(cpu_clock_ ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Under mutex_.
bool FrameMemory::reads_what_is_written(GstMapFlags flags) const noexcept {
  if (shadow_ || !has_content_) return false;
  return std::holds_alternative<MemoryBlock>(holder_) ||
         !is_direct((flags & GST_MAP_READ) != 0, (flags & GST_MAP_WRITE) != 0);
}

std::byte* FrameMemory::map(GstMapFlags flags) {
  std::unique_lock lock(mutex_);
  if (reads_what_is_written(flags)) {
    lock.unlock();  // others ask for the fence meanwhile
    await_written();
    lock.lock();
  }
  std::byte* data = locate(flags);
  if (maps_++ == 0) {
    if (is_timed()) mapped_since_ = now();
    mapped_to_write_ = false;
  }
  if ((flags & GST_MAP_WRITE) != 0) {
    if (!mapped_to_write_) stamp_store(Stamp::first_store, mapped_since_);
    mapped_to_write_ = true;
  }
  return data;
}

/// `now`: as now() just gave it, where the maps are timed.
void FrameMemory::stamp_store(Stamp stamp, std::chrono::nanoseconds now) noexcept {
  auto* lease = std::get_if<WriteLease>(&holder_);
  if (lease == nullptr || !lease->ring()->stamping()) return;
  lease->stamp(stamp, cpu_clock_ || !is_timed() ? monotonic_ns() : now.count());
}

void FrameMemory::stamp(Stamp stamp, std::int64_t at_ns) const noexcept {
  if (const auto* lease = std::get_if<ReadLease>(&holder_)) lease->stamp(stamp, at_ns);
}

/// Whether the CPU may go to the slot itself. A writer's own slot: to write; to read as well where that is not through
/// the BAR. A part of one: likewise, also once the rest is published. A published one: to read, where that is not
/// through the BAR. What is there then is what the producer wrote, also where kernels see a mirror of it or the slot
/// itself: those that work in place only read. A block of host memory: to read and to write, once the GPU has filled
/// it.
bool FrameMemory::is_direct(bool reads, bool writes) const noexcept {
  const auto* lease = std::get_if<WriteLease>(&holder_);
  const bool own = (lease != nullptr && !lease->published()) || is_part();
  if (cpu_readable()) return own || !writes || std::holds_alternative<MemoryBlock>(holder_);
  return own && (!reads || (writes && trust_readwrite_));
}

std::byte* FrameMemory::locate(GstMapFlags flags) {
  const bool reads = (flags & GST_MAP_READ) != 0;
  const bool writes = (flags & GST_MAP_WRITE) != 0;
  if (!shadow_) {
    auto* lease = std::get_if<WriteLease>(&holder_);
    if (is_direct(reads, writes)) {
      check_recall();
      if (std::holds_alternative<MemoryBlock>(holder_)) mapping_->invalidate(offset_, bytes_);
      has_content_ = true;
      return mapping_->host() + offset_;
    }
    if (counters_ && reads && !is_written_) {
      counters_->cpu_reads.fetch_add(1, std::memory_order_relaxed);
      if ((lease != nullptr && !lease->published()) || is_part()) {
        counters_->upstream_reads.store(true, std::memory_order_relaxed);
      }
    }
    make_shadow();
  }
  if (writes) shadow_dirty_ = true;
  return shadow_.get();
}

void FrameMemory::unmap() {
  const std::lock_guard lock(mutex_);
  if (--maps_ != 0) return;
  const std::chrono::nanoseconds end = is_timed() ? now() : mapped_since_;
  time_mapped_ += end - mapped_since_;
  if (mapped_to_write_) stamp_store(Stamp::last_store, end);
}

std::chrono::nanoseconds FrameMemory::take_time_mapped() {
  const std::lock_guard lock(mutex_);
  return std::exchange(time_mapped_, std::chrono::nanoseconds(0));
}

std::size_t FrameMemory::fill_slot(std::size_t bytes, SlotCopier& copier) {
  const std::lock_guard lock(mutex_);
  is_written_ = is_part();
  const auto* slot = std::get_if<Ptr<GstMemory>>(&holder_);
  FrameMemory* whole = slot != nullptr ? frame_memory(slot->get()) : this;
  WriteLease* lease = whole->writable_lease();
  if (lease == nullptr || !shadow_dirty_) return copied_;
  copier.copy(*lease, offset_ - whole->offset_, {shadow_.get(), bytes});
  if (lease->ring()->stamping()) lease->stamp(Stamp::last_store, monotonic_ns());
  shadow_dirty_ = false;
  has_content_ = true;
  return bytes;
}

bool FrameMemory::is_part_of(GstMemory* slot, std::size_t at) const noexcept {
  const auto* whole = std::get_if<Ptr<GstMemory>>(&holder_);
  return whole != nullptr && whole->get() == slot && offset_ == frame_memory(slot)->offset_ + at;
}

void FrameMemory::end_writing() {
  const std::lock_guard lock(mutex_);
  is_written_ = is_part();
}

WriteLease* FrameMemory::writable_lease() noexcept {
  auto* lease = std::get_if<WriteLease>(&holder_);
  return lease != nullptr && !lease->published() ? lease : nullptr;
}

Fence FrameMemory::written() const {
  const std::lock_guard lock(work_mutex_);
  return written_;
}

std::shared_ptr<const Giver> FrameMemory::giver() const {
  const std::lock_guard lock(work_mutex_);
  return giver_;
}

void FrameMemory::await_written() const {
  const std::shared_ptr<const Giver> giver = this->giver();
  const auto stops = [&giver] { return giver && giver->stops(); };
  try {
    gst::await_written(written(), stops, "the kernel that fills this frame", giver.get(), waited_in_vain_);
  } catch (const Error&) {
    waited_in_vain_ = !stops();
    throw;
  }
}

void FrameMemory::let_cuda_stream_wait(void* stream) const {
  if (!gpumap::let_cuda_stream_wait(*device(), written(), stream, std::chrono::nanoseconds(0))) await_written();
}

void FrameMemory::set_written(const Fence& fence, std::shared_ptr<const Giver> giver) {
  const std::lock_guard lock(work_mutex_);
  written_ = fence;
  giver_ = std::move(giver);
  waited_in_vain_ = false;
}

void FrameMemory::add_read_fence(const Fence& fence) {
  if (auto* lease = std::get_if<ReadLease>(&holder_)) {
    lease->add_read_fence(fence);
    return;
  }
  const std::lock_guard lock(work_mutex_);
  if (auto* block = std::get_if<MemoryBlock>(&holder_)) block->add_reader(fence);
}

namespace {

/// GStreamer keeps the parent of a part for as long as the part is there.
struct Memory {
  GstMemory base;
  FrameMemory* bytes;  ///< owned, but by a part: there the parent's
};

struct FrameAllocator {
  GstGpumapAllocator base;
  AllocateSlot* allocate;
};
struct FrameAllocatorClass {
  GstGpumapAllocatorClass base;
};

G_DEFINE_TYPE(FrameAllocator, frame_allocator, gst_gpumap_allocator_get_type())

/// Takes `bytes` where there is no parent.
GstMemory* wrap(GstAllocator* allocator, GstMemory* parent, FrameMemory* bytes, gsize maxsize, gsize offset, gsize size,
                GstMemoryFlags flags) {
  auto* memory = g_new0(Memory, 1);
  constexpr gsize page = 4096;
  const gsize align = bytes->offset() % page == 0 ? page - 1 : gst_memory_alignment;
  gst_memory_init(GST_MEMORY_CAST(memory), flags, allocator, parent, maxsize, align, offset, size);
  memory->bytes = bytes;
  return GST_MEMORY_CAST(memory);
}

gpointer memory_map(GstMemory* base, GstMapInfo* info, gsize /*maxsize*/) {
  auto* memory = reinterpret_cast<Memory*>(base);
  try {
    return memory->bytes->map(info->flags);
  } catch (const std::exception& error) {
    GST_ERROR("cannot map GPU memory for the CPU: %s", error.what());
    return nullptr;
  }
}

void memory_unmap(GstMemory* base, GstMapInfo* /*info*/) {
  reinterpret_cast<Memory*>(base)->bytes->unmap();
}

GstMemory* memory_share(GstMemory* base, gssize offset, gssize size) {
  auto* memory = reinterpret_cast<Memory*>(base);
  GstMemory* parent = base->parent != nullptr ? base->parent : base;
  if (size == -1) size = static_cast<gssize>(base->size) - offset;
  const auto flags = static_cast<GstMemoryFlags>(GST_MINI_OBJECT_FLAGS(parent) | GST_MINI_OBJECT_FLAG_LOCK_READONLY);
  return wrap(base->allocator, parent, memory->bytes, base->maxsize, base->offset + static_cast<gsize>(offset),
              static_cast<gsize>(size), flags);
}

GstMemory* allocator_alloc(GstAllocator* base, gsize size, GstAllocationParams* params) {
  auto* allocator = reinterpret_cast<FrameAllocator*>(base);
  // A slot starts where the frame starts: a prefix cannot be had in one. Nor is there anything in it but what upstream
  // writes: zeros behind that would cost a write of their own.
  const bool zeros = params->padding != 0 && (params->flags & GST_MEMORY_FLAG_ZERO_PADDED) != 0;
  if (allocator->allocate != nullptr && params->prefix == 0 && !zeros) {
    const gsize maxsize = size + params->padding;
    // Where nothing is said, upstream counts on what malloc() gives.
    const gsize align = (params->align | gst_memory_alignment) + 1;
    if (auto bytes = (*allocator->allocate)(maxsize, align)) {
      return wrap(base, nullptr, bytes.release(), maxsize, 0, size, static_cast<GstMemoryFlags>(0));
    }
  }
  return gst_allocator_alloc(nullptr, size, params);
}

void allocator_free(GstAllocator* /*allocator*/, GstMemory* base) {
  auto* memory = reinterpret_cast<Memory*>(base);
  if (base->parent == nullptr) delete memory->bytes;
  g_free(memory);
}

void frame_allocator_finalize(GObject* object) {
  delete reinterpret_cast<FrameAllocator*>(object)->allocate;
  G_OBJECT_CLASS(frame_allocator_parent_class)->finalize(object);
}

guint64 get_cuda_address(GstMemory* memory) {
  const FrameMemory& frame = *frame_memory(memory);
  if (frame.is_host()) return 0;
  const guint64 address = frame.mapping().address(Backend::cuda);
  return address == 0 ? 0 : address + frame.offset() + memory->offset;
}

gpointer get_cpu_address(GstMemory* memory) {
  const FrameMemory& frame = *frame_memory(memory);
  if (!frame.device() || !frame.device()->info().software || frame.mapping().host() == nullptr) return nullptr;
  return frame.mapping().host() + frame.offset() + memory->offset;
}

CudaHandles handles(GstMemory* memory) {
  const FrameMemory& frame = *frame_memory(memory);
  return frame.device() ? cuda_handles(*frame.device()) : CudaHandles();
}

gpointer get_cuda_context(GstMemory* memory) {
  return handles(memory).context;
}

gint get_cuda_device(GstMemory* memory) {
  const FrameMemory& frame = *frame_memory(memory);
  return handles(memory).context != nullptr ? frame.device()->info().cuda_index : -1;
}

gchar* get_device_uuid(GstMemory* memory) {
  const FrameMemory& frame = *frame_memory(memory);
  return frame.device() ? g_strdup(to_string(frame.device()->info().uuid).c_str()) : nullptr;
}

/// Call `use` with the frame, which is on a device.
template <typename Use>
gboolean try_with(GstMemory* memory, GError** error, Use use) {
  try {
    FrameMemory& frame = *frame_memory(memory);
    if (!frame.device()) {
      throw Error(ErrorCode::not_supported, "this frame is in host memory, on no GPU: map it");
    }
    frame.check_recall();
    return static_cast<gboolean>(use(frame));
  } catch (const std::exception& failure) {
    g_set_error_literal(error, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_FAILED, failure.what());
    return FALSE;
  }
}

gboolean wait_on_cuda_stream(GstMemory* memory, gpointer stream, GError** error) {
  return try_with(memory, error, [&](FrameMemory& frame) {
    frame.let_cuda_stream_wait(stream);
    return true;
  });
}

gboolean add_cuda_reader(GstMemory* memory, gpointer stream, GError** error) {
  return try_with(memory, error, [&](FrameMemory& frame) {
    frame.add_read_fence(fence_of_cuda_stream(*frame.device(), stream));
    return true;
  });
}

gboolean wait(GstMemory* memory, GstClockTime timeout, GError** error) {
  return try_with(memory, error, [&](FrameMemory& frame) {
    constexpr auto longest = static_cast<GstClockTime>(std::numeric_limits<std::int64_t>::max() / 2);
    const std::chrono::nanoseconds patience(static_cast<std::int64_t>(std::min(timeout, longest)));
    return frame.written().wait_for(patience) == WaitResult::ready;
  });
}

gboolean export_vulkan(GstMemory* memory, GstGpumapVulkanExport* exported, GError** error) {
  return try_with(memory, error, [&](FrameMemory& frame) {
    const VulkanExport made = export_to_vulkan(frame.mapping());
    *exported = {made.fd,           made.allocation_bytes,
                 made.buffer_bytes, made.base + frame.offset() + memory->offset,
                 made.memory_type,  {}};
    return true;
  });
}

/// Have `klass`, whose memories are FrameMemory, do what <gst/gpumap/gpumap.h> promises to others.
void open_memory(GstGpumapAllocatorClass* klass) {
  klass->get_cuda_address = get_cuda_address;
  klass->get_cuda_context = get_cuda_context;
  klass->get_cuda_device = get_cuda_device;
  klass->get_device_uuid = get_device_uuid;
  klass->wait_on_cuda_stream = wait_on_cuda_stream;
  klass->add_cuda_reader = add_cuda_reader;
  klass->wait = wait;
  klass->export_vulkan = export_vulkan;
  klass->get_cpu_address = get_cpu_address;
}

void frame_allocator_class_init(FrameAllocatorClass* klass) {
  GST_DEBUG_CATEGORY_INIT(gpumap_memory_debug, "gpumapmemory", 0, "gpumap memory");
  G_OBJECT_CLASS(klass)->finalize = frame_allocator_finalize;
  klass->base.parent_class.alloc = allocator_alloc;
  klass->base.parent_class.free = allocator_free;
  open_memory(&klass->base);
}

void frame_allocator_init(FrameAllocator* self) {
  GstAllocator* base = GST_ALLOCATOR_CAST(self);
  base->mem_map_full = memory_map;
  base->mem_unmap_full = memory_unmap;
  base->mem_share = memory_share;
  GST_OBJECT_FLAG_SET(self, GST_ALLOCATOR_FLAG_CUSTOM_ALLOC);
}

}  // namespace

GstAllocator* allocator_new(AllocateSlot allocate) {
  auto* self = static_cast<FrameAllocator*>(g_object_new(frame_allocator_get_type(), nullptr));
  if (allocate) {
    self->allocate = new AllocateSlot(std::move(allocate));
    // Without this flag gst_buffer_new_allocate() asks it for memory, which is what it is for.
    GST_OBJECT_FLAG_UNSET(self, GST_ALLOCATOR_FLAG_CUSTOM_ALLOC);
  }
  return GST_ALLOCATOR_CAST(gst_object_ref_sink(self));
}

GstMemory* memory_new(GstAllocator* allocator, std::unique_ptr<FrameMemory> bytes, std::size_t size,
                      GstMemoryFlags flags) {
  const std::size_t maxsize = bytes->bytes();
  return wrap(allocator, nullptr, bytes.release(), maxsize, 0, size, flags);
}

FrameMemory* frame_memory(GstMemory* memory) {
  if (memory == nullptr || memory->allocator == nullptr ||
      G_OBJECT_TYPE(memory->allocator) != frame_allocator_get_type()) {
    return nullptr;
  }
  return reinterpret_cast<Memory*>(memory)->bytes;
}

GstAllocator* wrapping_allocator() {
  static GstAllocator* allocator = [] {
    GstAllocator* made = allocator_new({});
    GST_OBJECT_FLAG_SET(made, GST_OBJECT_FLAG_MAY_BE_LEAKED);
    return made;
  }();
  return allocator;
}

namespace {

/// GStreamer copies these with the memory only.
void copy_metas_on_memory(GstBuffer* to, GstBuffer* from) {
  static const GQuark on_memory = g_quark_from_static_string(GST_META_TAG_MEMORY_STR);
  static const GQuark copying = g_quark_from_static_string("gst-copy");
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(from, &state)) {
    if (!gst_meta_api_type_has_tag(meta->info->api, on_memory) || meta->info->transform_func == nullptr) continue;
    GstMetaTransformCopy whole{FALSE, 0, static_cast<gsize>(-1)};
    meta->info->transform_func(to, meta, from, copying, &whole);
  }
}

/// Upstream's own functions to map its planes know upstream's memory, which stays behind: the bytes of a slot lie as
/// offsets and strides say, and GStreamer's own functions read them so.
void map_planes_by_layout(GstBuffer* carrier) {
  static const GstVideoMeta usual = [] {
    GstBuffer* any = gst_buffer_new();
    const GstVideoMeta made = *gst_buffer_add_video_meta(any, GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_GRAY8, 1, 1);
    gst_buffer_unref(any);
    return made;
  }();
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta_filtered(carrier, &state, GST_VIDEO_META_API_TYPE)) {
    auto* layout = reinterpret_cast<GstVideoMeta*>(meta);
    layout->map = usual.map;
    layout->unmap = usual.unmap;
  }
}

enum class Metas { none, layout, others };

/// Layout: GstVideoMeta alone, which every frame of a pool has and which looks at no memory.
Metas metas_of(GstBuffer* buffer) {
  gpointer state = nullptr;
  auto found = Metas::none;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    if (meta->info->api != GST_VIDEO_META_API_TYPE) return Metas::others;
    found = Metas::layout;
  }
  return found;
}

}  // namespace

GstBuffer* carrier_of(GstBuffer* from) {
  GstBuffer* carrier = gst_buffer_new();
  const Metas metas = metas_of(from);
  // Some (GstAudioMeta) look at how much memory there is: it is lent meanwhile.
  for (guint i = 0; metas == Metas::others && i < gst_buffer_n_memory(from); ++i) {
    gst_buffer_append_memory(carrier, gst_buffer_get_memory(from, i));
  }
  gst_buffer_copy_into(carrier, from, metas == Metas::none ? copy_flags_and_times : copy_all_but_memory, 0,
                       static_cast<gsize>(-1));
  if (metas != Metas::none) {
    copy_metas_on_memory(carrier, from);
    map_planes_by_layout(carrier);
  }
  if (metas == Metas::others) {
    copy_tensors(carrier, from);
    gst_buffer_remove_all_memory(carrier);
  }
  GST_BUFFER_FLAG_UNSET(carrier, GST_BUFFER_FLAG_TAG_MEMORY);
  return carrier;
}

}  // namespace gpumap::gst
