// SPDX-License-Identifier: MIT
#include "gst/src/output.hpp"

#include <fmt/format.h>
#include <gst/video/video.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/gst_error.hpp"
#include "gst/latency/latency_report.hpp"
#include "gst/memory/caps_text.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

/// Elements accept what their template says, so ask for more than that. But some that have caps (muxers) name only
/// those, and accept others.
bool peer_takes(GstPad* pad, GstCaps* caps) {
  if (!gst_pad_peer_query_accept_caps(pad, caps)) return false;
  if (gst_pad_has_current_caps(pad)) return true;
  const Ptr<GstCaps> allowed(gst_pad_peer_query_caps(pad, caps));
  return !gst_caps_is_empty(allowed.get());
}

bool is_raw_video(const GstCaps* caps) {
  return gst_structure_has_name(gst_caps_get_structure(caps, 0), "video/x-raw") != 0;
}

}  // namespace

SrcOutput::SrcOutput(GstElement* element, GstPad* pad, Hooks hooks)
    : element_(element), pad_(pad), giver_(std::make_shared<const Giver>(pad)), hooks_(std::move(hooks)) {
  forget_memory_at_unlink(pad);
  // Behind probes that block, which applications add: while they do, another element may be linked.
  gst_pad_add_probe(
      pad, GST_PAD_PROBE_TYPE_BUFFER,
      [](GstPad*, GstPadProbeInfo* info, gpointer self) { return static_cast<SrcOutput*>(self)->fit_at_last(*info); },
      this, nullptr);
}

SrcOutput::~SrcOutput() {
  reset();
}

void SrcOutput::begin(RingNames names) {
  names_ = std::move(names);
  keeps_ = false;
  keeping_told_ = false;
  lost_one_ = false;
  host_copies_ = 0;
}

void SrcOutput::reset() {
  gst_clear_caps(&upstream_);
  negotiated_ = false;
  agreed_ = false;
  awaits_caps_ = false;
  plain_for_branch_ = false;
  gpu_ = false;
  gave_gpu_ = false;
  cuda_ = false;
  cuda_slots_.reset();
  kernel_behind_ = false;
  video_ = false;
  reads_video_meta_ = false;
  kept_buffers_ = 0;
}

void SrcOutput::set_caps(GstCaps* upstream) {
  // Upstream may name the same caps again because downstream has asked for others.
  agreed_ = agreed_ && upstream_ != nullptr && gst_caps_is_equal(upstream_, upstream) != 0;
  gst_caps_replace(&upstream_, upstream);
  negotiated_ = false;
  awaits_caps_ = false;
  plain_for_branch_ = false;
}

namespace {

/// Encoded streams carry bytes that tell a reader nothing.
Ptr<GstCaps> without_headers(const GstCaps* caps) {
  GstCaps* copy = gst_caps_copy(caps);
  gst_structure_remove_fields(gst_caps_get_structure(copy, 0), "codec_data", "streamheader", nullptr);
  return Ptr<GstCaps>(copy);
}

/// What follows takes these caps, and yet refused a frame.
std::string relink_text(const GstCaps* caps, const ElementNames& names) {
  const Ptr<gchar> given(gst_caps_to_string(without_headers(caps).get()));
  return fmt::format(
      "what follows {} takes {}, and an element behind it refused a frame: one that was linked while frames flowed may "
      "have got the caps of the last one, in memory:GPUMap, from an element in between, such as a queue: put "
      "gpumapdownload before the place where it is linked",
      names.gives, given.get());
}

}  // namespace

std::string SrcOutput::refusal() const {
  if (gave_gpu_ && upstream_ != nullptr) {
    const Ptr<GstCaps> plain(with_feature(upstream_, false));
    const Ptr<GstCaps> taken(gst_pad_peer_query_caps(pad_, plain.get()));  // ACCEPT_CAPS may end at a template
    if (gst_caps_can_intersect(taken.get(), plain.get())) return relink_text(plain.get(), names_.elements);
  }
  if (upstream_ != nullptr) return refusal_text(pad_, upstream_, names_.elements);
  const Ptr<GstCaps> bytes(gst_caps_new_empty_simple(bytes_name));
  return refusal_text(pad_, bytes.get(), names_.elements);
}

bool SrcOutput::check_reconfigure() {
  if (gst_pad_needs_reconfigure(pad_) == 0) return false;
  undecided_ = true;  // before the flag goes
  const bool anew = gst_pad_check_reconfigure(pad_) != 0;
  if (anew) {
    negotiated_ = false;
    keeps_ = false;
  }
  return anew;
}

bool SrcOutput::negotiate() {
  if (!negotiated_) {
    undecided_ = true;
    negotiated_ = choose_caps();
  }
  undecided_ = false;
  return negotiated_;
}

bool SrcOutput::choose_caps() {
  if (upstream_ == nullptr) {
    // Caps that upstream did not name would mislead typefind and demuxers; but GPU memory is agreed on by caps.
    Ptr<GstCaps> bytes(gst_caps_new_empty_simple(bytes_name));
    if (peer_names_gpu_memory(pad_, bytes.get())) upstream_ = bytes.release();
    negotiated_ = upstream_ == nullptr;
    if (negotiated_) return true;
  }
  const Ptr<GstCaps> gpu(with_feature(upstream_, true));
  const Ptr<GstCaps> plain(with_feature(upstream_, false));
  gpu_ = peer_names_gpu_memory(pad_, upstream_);
  cuda_ = !gpu_ && prefers_cuda(plain.get());
  if (cuda_) {
    const Ptr<GstCaps> cuda(in_cuda_memory(plain.get()));
    cuda_slots_.forget_pool();
    awaits_caps_ = false;
    negotiated_ = agreed_ = push_caps(cuda.get());
    GST_INFO_OBJECT(pad_, "%" GST_PTR_FORMAT ", downstream keeps %u buffers", static_cast<void*>(cuda.get()),
                    kept_buffers_);
    return negotiated_;
  }
  // Pushing them would not tell: a sticky event counts as sent even where downstream refuses it.
  if (!gpu_ && gst_pad_is_linked(pad_) && !peer_takes(pad_, plain.get())) {
    // Downstream wants others now, which upstream hears of, but it has agreed to these for what was made before.
    negotiated_ = awaits_caps_ = agreed_ && upstream_gives_others();
    return negotiated_;
  }
  awaits_caps_ = false;
  gpu_ = gpu_ && !stays_plain(plain.get());
  negotiated_ = push_caps((gpu_ ? gpu : plain).get());
  // One branch of a tee names GPU memory, another takes anything and reads no GstVideoMeta: plain caps suit both, and
  // the first finds GPU memory in the buffers.
  if (negotiated_ && gpu_ && is_raw_video(gpu.get()) && !reads_video_meta_ && peer_takes(pad_, plain.get())) {
    gpu_ = false;
    negotiated_ = plain_for_branch_ = push_caps(plain.get());
  }
  GST_INFO_OBJECT(pad_, "%" GST_PTR_FORMAT ", downstream keeps %u buffers%s",
                  static_cast<void*>((gpu_ ? gpu : plain).get()), kept_buffers_,
                  default_layout_only() ? ", reads no GstVideoMeta" : "");
  agreed_ = negotiated_;
  gave_gpu_ = gave_gpu_ || (negotiated_ && gpu_);
  return negotiated_;
}

std::shared_ptr<Device> SrcOutput::device() const noexcept {
  try {
    return Device::open(hooks_.device());
  } catch (const std::exception&) {
    return nullptr;  // the element that has the slots says what is wrong
  }
}

/// Downstream names CUDA memory. Where it takes others, too, it gets it only where it can be had.
bool SrcOutput::prefers_cuda(GstCaps* plain) const {
  const Ptr<GstCaps> cuda(in_cuda_memory(plain));
  if (gst_caps_is_empty(cuda.get()) || !peer_names_memory(pad_, cuda.get(), cuda_feature_name)) return false;
  if (!peer_takes(pad_, plain)) return true;
  const auto gpu = device();
  return gpu != nullptr && cuda_obstacle(*gpu).empty();
}

bool SrcOutput::answer_context(GstQuery* query) {
  const gchar* type = nullptr;
  if (GST_QUERY_TYPE(query) != GST_QUERY_CONTEXT) return false;
  gst_query_parse_context_type(query, &type);
  if (g_strcmp0(type, cuda_context_type) != 0) return false;
  const auto gpu = device();
  if (gpu == nullptr || !answer_cuda_context(element_, query, *gpu)) return false;
  if (!context_told_.exchange(true)) post_cuda_context(element_, *gpu);
  return true;
}

/// Whether plain caps, which were chosen for one branch of a tee, still suit. That is asked under them: they would go
/// to and fro at each change of a branch. An element that is new there may not answer before it has caps.
bool SrcOutput::stays_plain(GstCaps* plain) {
  if (!std::exchange(plain_for_branch_, false) || !peer_takes(pad_, plain)) return false;
  if (!ask_allocation(plain)) {
    gst_pad_push_event(pad_, gst_event_new_caps(plain));
    (void)ask_allocation(plain);
  }
  plain_for_branch_ = !reads_video_meta_;
  return plain_for_branch_;
}

bool SrcOutput::await_caps() {
  if (upstream_ == nullptr || !agreed_) return false;
  const Ptr<GstCaps> sent(cuda_ ? in_cuda_memory(upstream_) : with_feature(upstream_, gpu_));
  const Ptr<GstCaps> allowed(gst_pad_peer_query_caps(pad_, sent.get()));
  awaits_caps_ = gst_caps_is_empty(allowed.get()) && upstream_gives_others();
  return awaits_caps_;
}

bool SrcOutput::upstream_gives_others() const {
  const Ptr<GstCaps> takes(gst_pad_peer_query_caps(pad_, nullptr));
  const Ptr<GstCaps> wanted(from_either_memory(takes.get(), cuda_feature_name));
  return !gst_caps_is_empty(wanted.get()) && hooks_.upstream_gives(wanted.get());
}

bool SrcOutput::push_caps(GstCaps* caps) {
  const Ptr<GstCaps> current(gst_pad_get_current_caps(pad_));
  const bool same = current && gst_caps_is_equal(current.get(), caps) != 0;
  if (!same && gst_pad_push_event(pad_, gst_event_new_caps(caps)) == 0) return false;
  ask_allocation(caps);
  kernel_behind_ = !gpu_ && peer_reads_gpu_memory(pad_);
  return true;
}

bool SrcOutput::ask_allocation(GstCaps* caps) {
  const Ptr<GstQuery> query(gst_query_new_allocation(caps, FALSE));
  const bool answered = gst_pad_peer_query(pad_, query.get()) != 0;
  kept_buffers_ = 0;
  for (guint i = 0; answered && i < gst_query_get_n_allocation_pools(query.get()); ++i) {
    guint least = 0;
    gst_query_parse_nth_allocation_pool(query.get(), i, nullptr, nullptr, &least, nullptr);
    kept_buffers_ = std::max(kept_buffers_, least);
  }
  reads_video_meta_ = answered && gst_query_find_allocation_meta(query.get(), GST_VIDEO_META_API_TYPE, nullptr) != 0;
  video_ = is_raw_video(caps) && gst_video_info_from_caps(&info_, caps) != 0;
  return answered;
}

namespace {

// No slot came back for this time, with all but one lent: downstream keeps them (an encoder with lookahead, a queue
// with a threshold, videorate), it is not merely slow. While it prerolls nothing can be slow: it waits for frames or
// has them.
constexpr auto patience_playing = 1000ms;
constexpr auto patience_prerolling = 200ms;
constexpr auto look_again = 20ms;

/// The slot's bytes in host memory of its own (transfer full). The slot is free when `lease` goes.
GstMemory* copy_of(const ReadLease& lease, gsize bytes, const std::function<bool()>& given_up) {
  Ptr<GstMemory> memory(gst_allocator_alloc(nullptr, bytes, nullptr));
  GstMapInfo map;
  if (!memory || gst_memory_map(memory.get(), &map, GST_MAP_WRITE) == 0) {
    throw FiguredError(Error(ErrorCode::no_memory, fmt::format("no host memory for a copy of {} bytes", bytes),
                             "free some, or set slots to more than downstream keeps"),
                       {{"asked-bytes", bytes}});
  }
  const auto unmap = [&map](GstMemory* mapped) { gst_memory_unmap(mapped, &map); };
  const std::unique_ptr<GstMemory, decltype(unmap)> mapped(memory.get(), unmap);
  if (bytes != 0) {
    lease.ring()->mapping()->download_unless(given_up, lease.offset(), {reinterpret_cast<std::byte*>(map.data), bytes});
  }
  return memory.release();
}

}  // namespace

/// False: a flush or a stop came, or patience is over.
bool SrcOutput::waits_for_return(Loans& loans) const {
  const std::uint64_t returned = loans.returned();
  auto waited = 0ms;
  while (true) {
    if (loans.wait_for_return(returned, look_again)) return true;
    const Moment now = hooks_.moment();
    if (now.flushing) return false;
    const bool prerolls = is_changing_state(element_);
    // Paused for good, no one takes anything, and that is as it should be.
    if (!now.playing && !prerolls) continue;
    waited += look_again;
    if (waited >= (prerolls ? patience_prerolling : patience_playing)) return false;
  }
}

SrcOutput::Memory SrcOutput::memory_for(const Channel::Next& frame, Channel& channel) {
  // Downstream may keep it (each sink keeps its last picture), and where a share is kept no frame follows that would
  // take its place.
  if (frame.loans->scarce() && !needs_gpu_memory()) {
    host_copies_.fetch_add(1, std::memory_order_relaxed);
    return Memory::copy;
  }
  const std::uint32_t slots = frame.lease.ring()->slots();
  const std::uint32_t lent = frame.loans->count();
  if (lent + 1 < slots) return Memory::slot;
  // With this one downstream would have them all, and upstream none to write into.
  if (!keeps_ && waits_for_return(*frame.loans)) return Memory::slot;
  if (hooks_.moment().flushing) return Memory::slot;
  const std::uint32_t kept = channel.kept_slots();
  if (needs_gpu_memory()) {
    // Frames to come lie in a larger ring.
    channel.set_kept_slots(kept + slots);
    tell_of_keeping(frame, true);
    return Memory::slot;
  }
  keeps_ = true;
  tell_of_keeping(frame, false);
  host_copies_.fetch_add(1, std::memory_order_relaxed);
  return Memory::copy;
}

void SrcOutput::tell_of_keeping(const Channel::Next& frame, bool more_slots) {
  if (std::exchange(keeping_told_, true)) return;
  const std::uint32_t slots = frame.lease.ring()->slots();
  const char* outcome = "while it does, it gets copies in host memory";
  if (more_slots)
    outcome = names_.is_elsewhere ? "no frame comes until it gives one back" : "the ring gets twice as many";
  const auto kept = frame.loans->count();
  const std::size_t bytes = frame.lease.ring()->mapping()->bytes();
  post_warning(
      element_,
      FiguredError(
          Error(ErrorCode::no_memory,
                fmt::format("what follows {} keeps {} of the {} slots ({}){}", names_.elements.gives, kept, slots,
                            format_bytes(bytes), names_.where),
                fmt::format("{}; set slots on {} to more than it keeps{}", outcome, names_.elements.takes,
                            more_slots && names_.is_elsewhere ? ", or put gpumapkernel before what keeps them" : "")),
          {{"kept-slots", kept}, {"slots", slots}, {"bytes", bytes}}));
}

GstBuffer* SrcOutput::wrap(Channel::Next&& frame, Memory memory) {
  const auto bytes = static_cast<gsize>(frame.lease.info().bytes);
  GstMemory* copied = nullptr;
  if (memory == Memory::copy) {
    const auto given_up = [this] { return hooks_.moment().flushing || is_stopping(element_); };
    await_written(frame.lease.written(), given_up, "the upload of a frame");
    copied = copy_of(frame.lease, bytes, given_up);
  }
  GstBuffer* buffer = frame.carrier ? frame.carrier.release() : gst_buffer_new();
  if (frame.after_hole) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
  if (copied != nullptr) {
    const std::int64_t released = frame.lease.release();
    if (frame.trace) frame.trace->stamp(Stamp::released, released);
    add_latency_meta(buffer, std::move(frame.trace));
    gst_buffer_append_memory(buffer, copied);
  } else {
    auto slot = std::make_unique<FrameMemory>(std::move(frame.lease));
    slot->set_written(slot->written(), giver_);
    slot->set_sequence(frame.sequence);
    slot->set_trace(frame.trace);
    slot->set_loan(Loans::Loan(std::move(frame.loans)));
    add_latency_meta(buffer, std::move(frame.trace));
    // Read-only: a CPU element that wants to change the frame gets a copy, made by DMA.
    gst_buffer_append_memory(buffer,
                             memory_new(wrapping_allocator(), std::move(slot), bytes, GST_MEMORY_FLAG_READONLY));
  }
  return fit(buffer);
}

GstBuffer* SrcOutput::fit(GstBuffer* buffer) {
  if (cuda_ && !video_) return cuda_slots_.convert_bytes(buffer);
  if (cuda_) return cuda_slots_.convert(buffer, info_, pad_);
  return default_layout_only() ? in_default_layout(buffer, info_) : buffer;
}

/// A frame on its last step to what follows. Another element may have been linked since it was made: that one gets its
/// caps first, and the frame as it reads frames.
GstPadProbeReturn SrcOutput::fit_at_last(GstPadProbeInfo& info) {
  if (gst_pad_is_linked(pad_) == 0 || !check_reconfigure()) return GST_PAD_PROBE_OK;
  // What was made for an element of CUDA's no other element of ours can read.
  if (negotiate() && (cuda_ || !is_cuda_memory(gst_buffer_peek_memory(GST_BUFFER_CAST(info.data), 0)))) {
    try {
      info.data = fit(GST_BUFFER_CAST(std::exchange(info.data, nullptr)));
      return GST_PAD_PROBE_OK;
    } catch (const std::exception&) {
      failed_ = std::current_exception();
      return GST_PAD_PROBE_HANDLED;
    }
  }
  // The next frame, or event, says what is wrong, if it still is.
  gst_pad_mark_reconfigure(pad_);
  lost_one_ = true;
  return GST_PAD_PROBE_DROP;
}

GstFlowReturn SrcOutput::push(GstBuffer* buffer) {
  const GstFlowReturn flow = gst_pad_push(pad_, buffer);
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  if (flow != GST_FLOW_NOT_NEGOTIATED || gst_pad_needs_reconfigure(pad_) == 0) return flow;
  // Another peer while this frame was under way, in the memory that the last one agreed to: as GstBaseSrc does.
  GST_INFO_OBJECT(element_, "linked anew: a frame is lost");
  lost_one_ = true;
  return GST_FLOW_OK;
}

namespace {

/// No structure is of our media type, though there are some.
bool taken_media_differ(const GstCaps* takes, const GstStructure* ours) {
  for (guint i = 0; i < gst_caps_get_size(takes); ++i) {
    if (gst_structure_has_name(gst_caps_get_structure(takes, i), gst_structure_get_name(ours))) return false;
  }
  return gst_caps_get_size(takes) != 0;
}

/// Fields in one frame are all that is wrong: what follows takes such pictures where each is one of its own.
bool takes_progressive(GstPad* pad, const GstCaps* caps) {
  const gchar* mode = gst_structure_get_string(gst_caps_get_structure(caps, 0), "interlace-mode");
  if (!is_raw_video(caps) || mode == nullptr || g_strcmp0(mode, "progressive") == 0) return false;
  const Ptr<GstCaps> progressive(gst_caps_copy(caps));
  GstStructure* structure = gst_caps_get_structure(progressive.get(), 0);
  gst_structure_set(structure, "interlace-mode", G_TYPE_STRING, "progressive", nullptr);
  gst_structure_remove_field(structure, "field-order");
  const Ptr<GstCaps> taken(gst_pad_peer_query_caps(pad, progressive.get()));
  return !gst_caps_is_empty(taken.get());
}

}  // namespace

std::string refusal_text(GstPad* pad, const GstCaps* caps, const ElementNames& names) {
  const GstStructure* ours = gst_caps_get_structure(caps, 0);
  const Ptr<GstCaps> takes(gst_pad_peer_query_caps(pad, nullptr));
  const std::string taken = kinds_text(takes.get(), ours);
  const bool is_other_media = taken_media_differ(takes.get(), ours);
  const char* remedy = "the element that makes that (videoconvert, audioconvert, a decoder)";
  if (gst_structure_has_name(ours, "video/x-raw"))
    remedy = is_other_media ? "what makes that of video" : "videoconvert";
  if (takes_progressive(pad, caps)) remedy = "deinterlace";
  if (gst_structure_has_name(ours, "audio/x-raw"))
    remedy = is_other_media ? "what makes that of audio" : "audioconvert";
  if (gst_structure_has_name(ours, bytes_name)) remedy = "the element that knows the bytes (rawvideoparse, a decoder)";
  // Of nothing no element upstream makes anything.
  std::string advice = taken.empty() ? "see what the elements behind it are asked for"
                                     : fmt::format("put {} before {}", remedy, names.takes);
  // No element of GStreamer's joins single fields to a picture.
  if (has_feature(gst_caps_get_features(caps, 0), GST_CAPS_FEATURE_FORMAT_INTERLACED)) {
    advice = "set upstream to give both fields in one frame (interlace-mode=interleaved)";
  }
  const Ptr<gchar> given(gst_caps_to_string(without_headers(caps).get()));
  return fmt::format("what follows {} does not take {}; it takes {}: {}", names.gives, given.get(),
                     taken.empty() ? "nothing" : taken, advice);
}

}  // namespace gpumap::gst
