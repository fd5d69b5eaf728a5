// SPDX-License-Identifier: MIT
// gpumapkernel takes buffers and events.
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/gst_error.hpp"
#include "gst/kernel/kernel_element.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/stopping.hpp"

#define GST_CAT_DEFAULT gpumap_kernel_debug

namespace gpumap::gst {

namespace {

void post_results(GstBaseTransform* trans, KernelRunner& runner) {
  while (GstStructure* found = runner.take_result()) {
    gst_element_post_message(GST_ELEMENT_CAST(trans), gst_message_new_element(GST_OBJECT_CAST(trans), found));
  }
}

/// device=auto is the GPU of the frames, which shows with the first of them: the runner for `in`, which may be another
/// from here on. Throws Error.
std::shared_ptr<KernelRunner> follow(GstBaseTransform* trans, std::shared_ptr<KernelRunner> runner, GstBuffer* in) {
  if (!runner) return nullptr;
  const auto device = device_to_follow(runner->settings().device, runner->device(), device_of(in));
  if (!device) return runner;
  GST_INFO_OBJECT(trans, "from %s to the GPU of the frames, %s", name_of(runner->device().info()).c_str(),
                  name_of(device->info()).c_str());
  auto other = std::make_shared<KernelRunner>(runner->settings(), device);
  GstCaps* taken = gst_pad_get_current_caps(trans->sinkpad);
  GstCaps* given = gst_pad_get_current_caps(trans->srcpad);
  if (taken != nullptr && given != nullptr) other->set_caps(taken, given);
  gst_clear_caps(&taken);
  gst_clear_caps(&given);
  runner->drain();
  post_results(trans, *runner);
  set_runner(trans, other);
  // A flush, or a stop, that came while it was loaded has ended the waits of the one before.
  if (GST_PAD_IS_FLUSHING(trans->sinkpad) || is_stopping(GST_ELEMENT_CAST(trans))) other->cancel(true);
  return other;
}

/// Before a frame: a downstream that does not say that it reads GstVideoMeta gets none of another layout than the
/// default one. Asked after the caps went out, without which it may not answer.
void ask_for_layout(GstBaseTransform* trans, KernelRunner& runner) {
  if (!state_of(trans).downstream_changed.exchange(false)) return;
  GstCaps* caps = gst_pad_get_current_caps(trans->srcpad);
  if (caps == nullptr) return;
  const bool plain = is_system_caps(caps);
  const bool default_only = plain && !peer_reads_video_meta(trans->srcpad, caps);
  const bool kernel_behind = plain && peer_reads_gpu_memory(trans->srcpad);
  GST_DEBUG_OBJECT(trans, "downstream gets frames %s, in %s memory", default_only ? "without padding" : "as they are",
                   kernel_behind || !plain ? "GPU" : "ordinary");
  runner.set_default_layout_only(default_only);
  runner.set_kernel_behind(kernel_behind);
  runner.vulkan().drop_pool();  // who follows now may be on another device
  gst_caps_unref(caps);
}

/// Where the kernel has moved the band elsewhere, downstream gets new caps before the frame.
void update_center(GstBaseTransform* trans, const KernelRunner& runner) {
  if (!runner.declared().tuning) return;
  const Ptr<GstCaps> in(gst_pad_get_current_caps(trans->sinkpad));
  const Ptr<GstCaps> out(gst_pad_get_current_caps(trans->srcpad));
  if (!in || !out) return;
  const auto center =
      tuning_of(runner.declared(), runner.params()).behind(center_frequency_of(gst_caps_get_structure(in.get(), 0)));
  if (center == center_frequency_of(gst_caps_get_structure(out.get(), 0))) return;
  const Ptr<GstCaps> moved(gst_caps_copy(out.get()));
  set_center_frequency(gst_caps_get_structure(moved.get(), 0), center);
  if (gst_base_transform_update_src_caps(trans, moved.get()) == 0) {
    GST_WARNING_OBJECT(trans, "downstream does not take %" GST_PTR_FORMAT, static_cast<void*>(moved.get()));
  }
}

void tell_refused(GstBaseTransform* trans, const std::string& why) {
  state_of(trans).refused_us = g_get_monotonic_time();
  GST_ELEMENT_WARNING(trans, LIBRARY, SETTINGS, ("%s: keeping the previous parameters", message_of(why).c_str()),
                      (nullptr));
}

/// What follows a flush takes caps again, and gets them.
bool is_flushing(const GstBaseTransform* trans) {
  return GST_PAD_IS_FLUSHING(trans->sinkpad) || GST_PAD_IS_FLUSHING(trans->srcpad);
}

/// Parameters that were set or are controlled, from stream time `time` on, and what of them hangs on `in`. After a
/// mistake the previous ones hold.
void update_params(GstBaseTransform* trans, KernelRunner& runner, GstClockTime time, GstBuffer* in) {
  KernelState& state = state_of(trans);
  const bool set = state.params_changed && state.params_changed.exchange(false);
  const bool controlled = state.parameters.changed(time);
  const bool moved = runner.follows_center(in);
  // A control source may be wrong at each frame: it is warned of once a second.
  const auto is_due = [&state] { return g_get_monotonic_time() >= state.refused_us + G_USEC_PER_SEC; };
  if (!set && !controlled && !moved && !(state.refused_untold && is_due())) return;
  state.refused_untold = false;
  try {
    runner.set_params(state.parameters.over(settings_of(trans).params));
    GST_DEBUG_OBJECT(trans, "params=%s from %" GST_TIME_FORMAT " on", runner.params().c_str(), GST_TIME_ARGS(time));
    update_center(trans, runner);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid) throw;
    state.refused_untold = !set && !is_due();
    if (state.refused_untold) return;
    tell_refused(trans, error.what());
  }
}

/// Parameters that were set before caps are for the stream that these begin, and the caps that come out may hang on
/// them: `take` (which has the event's reference) is tried with them, then with those in force.
gboolean take_caps(GstBaseTransform* trans, KernelRunner& runner, GstEvent* event,
                   const std::function<gboolean(GstEvent*)>& take) {
  KernelState& state = state_of(trans);
  bool proposed = false;
  const bool set = state.params_changed && state.params_changed.exchange(false);
  if (state.parameters.changed(GST_CLOCK_TIME_NONE) || set) {
    try {
      proposed = runner.propose_params(state.parameters.over(settings_of(trans).params));
    } catch (const Error& error) {
      tell_refused(trans, error.what());
    }
  }
  if (!proposed) return take(event);
  state.proposal_refused.clear();
  const Ptr<GstEvent> again(gst_event_ref(event));
  const gboolean taken = take(event);
  if (!runner.take_proposed()) {
    GST_DEBUG_OBJECT(trans, "params=%s from these caps on", runner.params().c_str());
    return taken;
  }
  if (taken != 0 || is_flushing(trans)) {
    // The same caps, or none yet: the next frame takes them.
    state.params_changed = true;
    return taken;
  }
  const gboolean taken_with_previous = take(gst_event_ref(again.get()));
  if (taken_with_previous != 0) {
    tell_refused(trans, !state.proposal_refused.empty() ? state.proposal_refused
                                                        : "what follows takes no caps that go with the new parameters");
  }
  return taken_with_previous;
}

[[nodiscard]] GstClockTime stream_time_of(const GstBaseTransform* trans, const GstBuffer* in) {
  if (trans->segment.format != GST_FORMAT_TIME) return GST_CLOCK_TIME_NONE;
  return gst_segment_to_stream_time(&trans->segment, GST_FORMAT_TIME, GST_BUFFER_PTS(in));
}

void refresh_tables(GstBaseTransform* trans, KernelRunner& runner) {
  const std::string problem = runner.refresh_tables();
  if (!problem.empty()) GST_ELEMENT_WARNING(trans, LIBRARY, SETTINGS, ("%s", message_of(problem).c_str()), (nullptr));
}

void tell_reload(GstBaseTransform* trans, const std::optional<std::string>& outcome) {
  if (!outcome) return;
  if (outcome->empty()) {
    GST_INFO_OBJECT(trans, "the kernel was loaded again");
  } else {
    GST_ELEMENT_WARNING(trans, LIBRARY, SETTINGS, ("%s", message_of(*outcome).c_str()), (nullptr));
  }
}

/// A frame in ordinary memory that was made for the element that was linked here before, and waited in a queue: those
/// that follow lie in GPU memory.
bool is_stale(GstBaseTransform* trans, const KernelRunner& runner, GstBuffer* in) {
  const bool wants_ours = runner.input() == FramesIn::host || runner.input() == FramesIn::ours;
  const bool ours = gst_buffer_n_memory(in) == 1 && frame_memory(gst_buffer_peek_memory(in, 0)) != nullptr;
  return wants_ours && !ours && upstream_gives_gpu_memory(trans->sinkpad);
}

/// One frame that is too short need not end the stream.
bool drops(GstBaseTransform* trans, KernelRunner& runner, GstBuffer* in) {
  const std::string why = runner.shortfall(in);
  if (why.empty()) return false;
  KernelState& state = state_of(trans);
  ++state.dropped;
  runner.leave_out();
  GST_DEBUG_OBJECT(trans, "dropped %" GST_PTR_FORMAT ": %s", static_cast<void*>(in), why.c_str());
  if (!std::exchange(state.shortfall_told, true)) {
    GST_ELEMENT_WARNING(trans, STREAM, FORMAT, ("%s", message_of(why).c_str()), (nullptr));
  }
  return true;
}

/// Once: a kernel whose threads do little has the same grid and is right.
void tell_risk(GstBaseTransform* trans, const KernelRunner& runner) {
  KernelState& state = state_of(trans);
  // Most loops are short: once in a process, and no warning.
  static std::atomic<bool> loop_told{false};
  if (!runner.loop_risk().empty() && !loop_told.exchange(true)) {
    post_info(GST_ELEMENT_CAST(trans), GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_SETTINGS, runner.loop_risk());
  }
  if (state.risk_told) return;
  const std::string risk = runner.risk();
  if (risk.empty()) return;
  state.risk_told = true;
  GST_ELEMENT_WARNING(trans, LIBRARY, SETTINGS, ("%s", message_of(risk).c_str()), (nullptr));
}

/// The kernel gave nothing of `in`: who waits for a frame of that time, a mixer or a sink that prerolls, need not.
void tell_dropped(GstBaseTransform* trans, GstBuffer* in) {
  ++state_of(trans).dropped_by_kernel;
  GST_LOG_OBJECT(trans, "the kernel dropped %" GST_PTR_FORMAT, static_cast<void*>(in));
  if (trans->segment.format != GST_FORMAT_TIME || !GST_BUFFER_PTS_IS_VALID(in)) return;
  gst_pad_push_event(trans->srcpad, gst_event_new_gap(GST_BUFFER_PTS(in), GST_BUFFER_DURATION(in)));
}

GstFlowReturn generate_output(GstBaseTransform* trans, GstBuffer** out) {
  const StartedWith started(state_of(trans).schedule);
  *out = nullptr;
  GstBuffer* in = trans->queued_buf;
  trans->queued_buf = nullptr;
  if (in == nullptr) return GST_FLOW_OK;
  GstFlowReturn flow = GST_FLOW_FLUSHING;
  try {
    const auto runner = follow(trans, runner_of(trans), in);
    if (runner && is_stale(trans, *runner, in)) {
      GST_INFO_OBJECT(trans, "linked anew: left out %" GST_PTR_FORMAT, static_cast<void*>(in));
      runner->leave_out();
      flow = GST_BASE_TRANSFORM_FLOW_DROPPED;
    } else if (runner && drops(trans, *runner, in)) {
      flow = GST_BASE_TRANSFORM_FLOW_DROPPED;
    } else if (runner) {
      update_params(trans, *runner, stream_time_of(trans, in), in);
      tell_reload(trans, runner->reload());
      refresh_tables(trans, *runner);
      ask_for_layout(trans, *runner);
      provide_cuda_pool(trans, *runner);
      provide_vulkan(trans, *runner, in);
      if (runner->begins_anew_at(in)) GST_DEBUG_OBJECT(trans, "after a hole: what is kept is as new");
      const auto [outcome, given] = runner->run(in);
      *out = given;
      if (given != nullptr && std::exchange(state_of(trans).lost_one, false)) {
        *out = gst_buffer_make_writable(given);
        GST_BUFFER_FLAG_SET(*out, GST_BUFFER_FLAG_DISCONT);
      }
      GST_LOG_OBJECT(trans, "%" GST_PTR_FORMAT " gave %" GST_PTR_FORMAT, static_cast<void*>(in),
                     static_cast<void*>(*out));
      tell_risk(trans, *runner);
      // Not GST_BASE_TRANSFORM_FLOW_DROPPED: that would mark what follows as discontinuous.
      if (outcome != FrameOutput::Outcome::cancelled) flow = GST_FLOW_OK;
      if (outcome == FrameOutput::Outcome::dropped) tell_dropped(trans, in);
      post_results(trans, *runner);
    }
  } catch (const std::exception& error) {
    post_error_once(GST_ELEMENT_CAST(trans), error);
    flow = GST_FLOW_ERROR;
  }
  gst_buffer_unref(in);
  return flow;
}

/// What goes wrong in `call` is the element's error.
template <typename Call>
void telling(GstBaseTransform* trans, Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    post_error_once(GST_ELEMENT_CAST(trans), error);
  }
}

gboolean sink_event(GstBaseTransform* trans, GstEvent* event) {
  const auto runner = runner_of(trans);
  if (runner) {
    if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START) runner->cancel(true);
    if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) {
      runner->cancel(false);
      // A stop that came before this has ended the waits for good.
      if (GST_STATE_TARGET(trans) < GST_STATE_PAUSED) runner->cancel(true);
      telling(trans, [&] {
        runner->flush();
        watch_again(trans, runner);
      });
    }
    if (GST_EVENT_TYPE(event) == GST_EVENT_GAP || GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START) runner->break_off();
    if ((gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_SERIALIZED) != 0) {
      telling(trans, [&] {
        // A fault in the last frames' kernels shows only when someone waits for them; so do their results.
        if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) {
          runner->drain();
          g_object_notify(G_OBJECT(trans), "stats");
        }
        runner->collect_results();
        post_results(trans, *runner);
      });
    }
  }
  GstCaps* caps = nullptr;
  if (GST_EVENT_TYPE(event) == GST_EVENT_CAPS) {
    gst_event_parse_caps(event, &caps);
    gst_caps_ref(caps);
  }
  const auto take = [trans](GstEvent* given) { return kernel_parent_class()->sink_event(trans, given); };
  const gboolean taken = caps != nullptr && runner ? take_caps(trans, *runner, event, take) : take(event);
  const bool refused = caps != nullptr && taken == 0 && !is_flushing(trans);
  if (refused && runner && !std::exchange(state_of(trans).caps_refused, true)) {
    post_refusal(trans, *runner, caps);
  }
  gst_clear_caps(&caps);
  return taken;
}

gboolean src_event(GstBaseTransform* trans, GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_RECONFIGURE) state_of(trans).downstream_changed = true;
  return kernel_parent_class()->src_event(trans, event);
}

/// The same but for the memory that they are in.
bool are_of_one_picture(const GstCaps* one, const GstCaps* other) {
  const Ptr<GstCaps> plain(from_either_memory(one));
  const Ptr<GstCaps> other_plain(from_either_memory(other));
  return !gst_caps_is_empty(plain.get()) && gst_caps_is_equal(plain.get(), other_plain.get()) != 0;
}

/// What follows the pad has these caps, and would be given them again. Not what is linked behind a ghost pad since.
bool still_takes(GstPad* pad, GstCaps* caps) {
  const Ptr<GstPad> peer(gst_pad_get_peer(pad));
  const Ptr<GstCaps> has(peer ? gst_pad_get_current_caps(peer.get()) : nullptr);
  if (!has || gst_caps_is_equal(caps, has.get()) == 0) return false;
  const Ptr<GstCaps> takes(gst_pad_peer_query_caps(pad, caps));
  return gst_caps_is_empty(takes.get()) == 0;
}

/// A frame on its last step to what follows, where another element may have been linked since it was made. That one
/// gets its caps first. Where these differ in the memory at most, the frame may go on: one in GPU memory to anybody,
/// for the CPU can read it, one in ordinary memory to those that take that. Else it is left out.
GstPadProbeReturn fit(GstBaseTransform* trans, GstPadProbeInfo& info) {
  GstPad* pad = trans->srcpad;
  const auto runner = runner_of(trans);
  if (!runner || gst_pad_is_linked(pad) == 0 || gst_pad_needs_reconfigure(pad) == 0) return GST_PAD_PROBE_OK;
  const Ptr<GstCaps> before(gst_pad_get_current_caps(pad));
  // What follows may want other caps, and still take these: then the next frame begins them.
  const bool reconfigured = before && (still_takes(pad, before.get()) || gst_base_transform_reconfigure(trans) != 0);
  const Ptr<GstCaps> after(gst_pad_get_current_caps(pad));
  const bool negotiated = reconfigured && after;  // a pad that is stopped meanwhile has no caps
  auto* buffer = GST_BUFFER_CAST(info.data);
  const bool ours = gst_buffer_n_memory(buffer) == 1 && frame_memory(gst_buffer_peek_memory(buffer, 0)) != nullptr;
  if (negotiated && are_of_one_picture(before.get(), after.get()) && (ours || runner->output() == FramesIn::host)) {
    telling(trans, [&] {
      ask_for_layout(trans, *runner);
      info.data = runner->as_downstream_reads(GST_BUFFER_CAST(std::exchange(info.data, nullptr)));
    });
    if (info.data != nullptr) return GST_PAD_PROBE_OK;
    GST_PAD_PROBE_INFO_FLOW_RETURN(&info) = GST_FLOW_ERROR;
    return GST_PAD_PROBE_HANDLED;
  }
  if (negotiated && gst_caps_is_equal(before.get(), after.get()) != 0) return GST_PAD_PROBE_OK;
  GST_INFO_OBJECT(trans, "linked anew: left out %" GST_PTR_FORMAT, static_cast<void*>(buffer));
  state_of(trans).lost_one = true;
  return GST_PAD_PROBE_DROP;
}

}  // namespace

void watch_kernel_link(GstBaseTransform* kernel) {
  forget_memory_at_unlink(kernel->srcpad);
  gst_pad_add_probe(
      kernel->srcpad, GST_PAD_PROBE_TYPE_BUFFER,
      [](GstPad*, GstPadProbeInfo* info, gpointer self) { return fit(static_cast<GstBaseTransform*>(self), *info); },
      kernel, nullptr);
}

void install_kernel_stream(GstBaseTransformClass* klass) {
  klass->generate_output = generate_output;
  klass->sink_event = sink_event;
  klass->src_event = src_event;
}

}  // namespace gpumap::gst
