// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "gst/channel/alarm.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/ptr.hpp"
#include "gst/sink/core.hpp"

namespace gpumap::gst {

/// Puts buffers that are smaller than a slot one behind the other into one, and hands that on as a frame: the property
/// `gather`. Bytes and samples are cut so that each frame has as many; other buffers stay whole; pictures pass as they
/// come. Thread safety: the stream lock of the pad protects every member but the constructor.
///
/// A buffer is copied, unless upstream wrote it where it belongs: allocator() lends the part of the open slot behind
/// what is there. It lends one part at a time, the next once nothing is left of that, to the thread that brings the
/// buffers. What comes otherwise (another buffer first, a part behind its frame's end) is copied; a slot is not written
/// anew while its part is out.
class Gather {
 public:
  /// Takes the frame.
  using HandOn = std::function<GstFlowReturn(GstBuffer* frame)>;

  Gather(GstElement* element, GstPad* pad, SinkCore& core, HandOn hand_on);
  ~Gather();
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;

  /// Before the first buffer: frames of `bytes` bytes, 0: each buffer is one. A frame is open for `limit_us` at most;
  /// 0: until it is full.
  void start(std::uint64_t bytes, std::uint32_t limit_us);
  /// What start() said. From any thread.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_on() const noexcept { return bytes_ != 0; }
  /// Buffers of the present caps are put together.
  [[nodiscard]] bool gathers() const noexcept { return is_on() && cut_ != Cut::never; }
  /// Bytes of a frame of the present caps, as far as the time limit lets it come.
  [[nodiscard]] std::size_t usual_bytes() const noexcept;
  /// For upstream, of any thread; it may outlive the element.
  [[nodiscard]] GstAllocator* allocator() const noexcept { return allocator_.get(); }
  /// The pad is closed.
  void stop();

  /// In the pad's chain function. Takes `buffer`. An error is on the bus already.
  [[nodiscard]] GstFlowReturn take(GstBuffer* buffer);
  /// In the pad's event function, before the event takes effect. Hands the open frame on before whatever is serialized
  /// with it, and drops it at a flush.
  void see(GstEvent* event);
  /// Hands on what there is.
  GstFlowReturn finish();

 private:
  enum class Cut {
    anywhere,         ///< between two samples or bytes: each frame has frame_bytes()
    between_buffers,  ///< a frame has frame_bytes() at most
    never             ///< nothing is gathered
  };

  /// What the allocator has of it.
  struct Lender {
    Lender(GstPad* of, Gather* lends) : pad(GST_PAD(gst_object_ref(of))), gather(lends) {}
    const Ptr<GstPad> pad;
    Gather* gather;                             ///< under the stream lock; null: gone
    std::atomic<std::thread::id> upstream{{}};  ///< that brings the buffers
  };

  void drop();
  [[nodiscard]] static std::unique_ptr<FrameMemory> lend_by(Lender& lender, std::size_t bytes, std::size_t align);
  [[nodiscard]] std::unique_ptr<FrameMemory> lend(std::size_t bytes, std::size_t align);
  [[nodiscard]] GstMemory* part_in_place(GstBuffer* buffer) const;
  [[nodiscard]] GstFlowReturn pass_by_part();
  void open_slot(SinkCore::Writer writer);
  void set_caps(const GstCaps* caps);
  void set_latency(GstClockTime latency);
  [[nodiscard]] std::size_t frame_bytes() const noexcept;
  [[nodiscard]] GstFlowReturn add(GstBuffer* buffer, std::size_t bytes);
  [[nodiscard]] bool breaks_at(GstBuffer* buffer) const noexcept;
  [[nodiscard]] GstFlowReturn begin(GstBuffer* first, std::size_t from, GstClockTime duration);
  [[nodiscard]] GstClockTime duration_of(GstBuffer* buffer, std::size_t bytes) const noexcept;
  void set_alarm(std::uint64_t number);

  GstElement* const element_;
  GstPad* const pad_;
  SinkCore& core_;
  const HandOn hand_on_;
  const std::shared_ptr<Lender> lender_;
  const Ptr<GstAllocator> allocator_;
  std::atomic<std::size_t> bytes_{0};
  GstClockTime limit_ = 0;
  GstClockTime latency_ = 0;  ///< as the channel has it

  Cut cut_ = Cut::anywhere;
  std::size_t unit_ = 1;    ///< bytes of a sample
  std::uint64_t rate_ = 0;  ///< samples a second; 0: not known

  Ptr<GstMemory> slot_;                     ///< of the frame, or of the next one, of which a part is lent
  Ptr<GstBuffer> frame_;                    ///< its times, flags and metas; null: no frame is open
  std::size_t filled_ = 0;                  ///< of the slot
  bool is_lent_ = false;                    ///< what is behind that, and has not come
  bool is_in_order_ = true;                 ///< parts came before other buffers
  std::uint64_t buffers_ = 0;               ///< whose last byte is in there
  GstClockTime due_ = GST_CLOCK_TIME_NONE;  ///< pts of the next buffer, where that follows on the last one
  std::uint64_t number_ = 0;                ///< frames that were opened
  Alarm alarm_;
};

}  // namespace gpumap::gst
