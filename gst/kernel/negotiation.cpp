// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <string>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/cuda/gst_cuda_api.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/gst_error.hpp"
#include "gst/kernel/kernel_caps.hpp"
#include "gst/kernel/kernel_element.hpp"
#include "gst/memory/caps_text.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

// gpumapkernel agrees on caps and answers queries.

#define GST_CAT_DEFAULT gpumap_kernel_debug

namespace gpumap::gst {
namespace {

/// What is set counts from the next start on, or the next frame: the caps are those of the kernel that runs.
KernelSettings settings_in_force(gpointer kernel, const KernelRunner* runner) {
  KernelSettings settings = runner != nullptr ? runner->settings() : settings_of(kernel);
  try {
    settings.params = runner != nullptr ? runner->params_for_caps() : state_of(kernel).parameters.over(settings.params);
  } catch (const std::exception&) {
    settings.params.clear();  // said where the kernel starts
  }
  return settings;
}

DeclaredCaps caps_in_force(const KernelSettings& settings, const KernelRunner* runner) {
  return runner != nullptr ? runner->declared() : declared_caps(settings);
}

GstCaps* transform_caps(GstBaseTransform* trans, GstPadDirection direction, GstCaps* caps, GstCaps* filter) {
  const auto runner = runner_of(trans);
  const KernelSettings settings = settings_in_force(trans, runner.get());
  GstCaps* made = transform_kernel_caps(caps_in_force(settings, runner.get()), settings.params, direction, caps);
  if (filter != nullptr && gst_caps_is_any(made) && !gst_caps_is_any(filter)) {
    // Any media type is not any memory: who asks about one that is not ours is told no.
    gst_caps_unref(made);
    made = in_either_memory(filter);
  }
  // Before the start no one knows; but elements that cannot be linked could not say why.
  if (!runner || runner->cuda_obstacle().empty()) made = offer_cuda(made);
  made = offer_vulkan(made);
  if (filter == nullptr) return made;
  GstCaps* filtered = gst_caps_intersect_full(filter, made, GST_CAPS_INTERSECT_FIRST);
  gst_caps_unref(made);
  return filtered;
}

/// Frames stay in GPU memory for a downstream that names it, as another gpumapkernel does.
GstCaps* fixate_caps(GstBaseTransform* trans, GstPadDirection direction, GstCaps* caps, GstCaps* others) {
  if (direction != GST_PAD_SINK) return kernel_parent_class()->fixate_caps(trans, direction, caps, others);
  const auto runner = runner_of(trans);
  const KernelSettings settings = settings_in_force(trans, runner.get());
  const DeclaredCaps declared = caps_in_force(settings, runner.get());
  GST_DEBUG_OBJECT(trans, "for %" GST_PTR_FORMAT " downstream takes %" GST_PTR_FORMAT, static_cast<void*>(caps),
                   static_cast<void*>(others));
  others = prefer_format(declared, nearest_memory(trans->srcpad, others));
  others = gst_caps_make_writable(fixate_size(declared, settings.params, caps, others));
  fixate_rate(others, caps);
  others = gst_caps_make_writable(kernel_parent_class()->fixate_caps(trans, direction, caps, others));
  add_colorimetry(declared, caps, others);
  GST_DEBUG_OBJECT(trans, "chose %" GST_PTR_FORMAT, static_cast<void*>(others));
  return others;
}

/// Once: what sm-share cannot part, since it is not gpumap's.
void tell_share(GstBaseTransform* trans, const KernelRunner& runner) {
  if (runner.multiprocessors() == 0 || !runner.meets_cuda_elements()) return;
  if (std::exchange(state_of(trans).share_told, true)) return;
  post_info(GST_ELEMENT_CAST(trans), GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_SETTINGS,
            fmt::format("sm-share keeps this kernel to {} multiprocessors; the CUDA elements linked to it run in the "
                        "GPU's primary context, on all of them, and so on these too",
                        runner.multiprocessors()));
}

gboolean set_caps(GstBaseTransform* trans, GstCaps* in, GstCaps* out) {
  const auto runner = runner_of(trans);
  if (!runner) return FALSE;
  // Plain caps are fine: behind a tee whose other branch is on the CPU, the frames still lie in GPU memory.
  if (!is_gpu_caps(in) && !is_cuda_caps(in) && !is_vulkan_caps(in) && !is_system_caps(in)) {
    GST_ELEMENT_ERROR(trans, STREAM, WRONG_TYPE,
                      ("gpumapkernel takes memory:GPUMap: put gpumapupload before it (or gpumapsink and gpumapsrc)"),
                      ("caps %s", message_of(Ptr<gchar>(gst_caps_to_string(in)).get()).c_str()));
    state_of(trans).caps_refused = true;
    return FALSE;
  }
  try {
    const GstClockTime latency = runner->latency();
    runner->set_caps(in, out);
    GST_INFO_OBJECT(trans, "%s runs on %" GST_PTR_FORMAT " and gives %" GST_PTR_FORMAT, runner->name().c_str(),
                    static_cast<void*>(in), static_cast<void*>(out));
    state_of(trans).downstream_changed = true;
    tell_share(trans, *runner);
    if (runner->latency() != latency) {
      gst_element_post_message(GST_ELEMENT_CAST(trans), gst_message_new_latency(GST_OBJECT_CAST(trans)));
    }
  } catch (const std::exception& error) {
    // With the parameters that are in force they may do.
    if (const auto* refusal = dynamic_cast<const Error*>(&error);
        refusal != nullptr && refusal->code() == ErrorCode::invalid && runner->has_proposed()) {
      state_of(trans).proposal_refused = error.what();
      return FALSE;
    }
    post_error_once(GST_ELEMENT_CAST(trans), error);
    state_of(trans).caps_refused = true;
    return FALSE;
  }
  return TRUE;
}

/// GstBaseTransform's own would ask downstream, whose buffers are others.
gboolean propose_allocation(GstBaseTransform* trans, GstQuery* /*decide_query*/, GstQuery* query) {
  const auto runner = runner_of(trans);
  if (!runner || !propose_cuda(query, *runner)) gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
  return TRUE;
}

/// What the kernel gathers before it gives something, on top of what there is before it.
void add_latency(GstQuery& query, GstBaseTransform* trans) {
  const auto runner = runner_of(trans);
  const GstClockTime more = runner ? runner->latency() : 0;
  gboolean live = FALSE;
  GstClockTime least = 0;
  GstClockTime most = 0;
  gst_query_parse_latency(&query, &live, &least, &most);
  GST_DEBUG_OBJECT(trans, "%" GST_TIME_FORMAT " of latency on top of %" GST_TIME_FORMAT, GST_TIME_ARGS(more),
                   GST_TIME_ARGS(least));
  gst_query_set_latency(&query, live, least + more, GST_CLOCK_TIME_IS_VALID(most) ? most + more : most);
}

/// GstBaseTransform puts what downstream asks for first as it is, where it may: tensors of ours and all.
void ask_no_tensors(GstQuery* query, const DeclaredCaps& declared) {
  GstCaps* answer = nullptr;
  gst_query_parse_caps_result(query, &answer);
  if (answer == nullptr || declared.tensors.empty()) return;
  answer = without_tensors(declared, gst_caps_ref(answer));
  gst_query_set_caps_result(query, answer);
  gst_caps_unref(answer);
}

/// Nor may it be told where its own band is by what lies behind a kernel that tunes: what comes in says so, or the
/// `filter`.
void ask_no_center(GstQuery* query, const DeclaredCaps& declared) {
  GstCaps* answer = nullptr;
  GstCaps* filter = nullptr;
  gst_query_parse_caps_result(query, &answer);
  gst_query_parse_caps(query, &filter);
  if (answer == nullptr || gst_caps_is_any(answer) || !declared.tuning) return;
  Ptr<GstCaps> open(gst_caps_copy(answer));
  for (guint i = 0; i < gst_caps_get_size(open.get()); ++i) {
    gst_structure_remove_field(gst_caps_get_structure(open.get(), i), center_frequency_field);
  }
  if (filter != nullptr) open.reset(gst_caps_intersect_full(open.get(), filter, GST_CAPS_INTERSECT_FIRST));
  gst_query_set_caps_result(query, open.get());
}

/// What it makes nothing of is welcome, too: it is refused when it comes, for then the reason can be told.
gboolean accept_caps(GstBaseTransform* trans, GstPadDirection direction, GstCaps* caps) {
  if (kernel_parent_class()->accept_caps(trans, direction, caps) != 0) return TRUE;
  const auto runner = runner_of(trans);
  if (direction != GST_PAD_SINK || !runner) return FALSE;
  return static_cast<gboolean>(!output_problem(runner->declared(), runner->params_for_caps(), caps).empty());
}

/// Before the start, while a pipeline is built: a refused link could not say why, which the start and the first caps
/// can.
void answer_anything(GstQuery* query) {
  GstCaps* filter = nullptr;
  gst_query_parse_caps(query, &filter);
  const Ptr<GstCaps> answer(filter != nullptr ? gst_caps_ref(filter) : gst_caps_new_any());
  gst_query_set_caps_result(query, answer.get());
}

gboolean query(GstBaseTransform* trans, GstPadDirection direction, GstQuery* query) {
  KernelState& state = state_of(trans);
  if (GST_QUERY_TYPE(query) == GST_QUERY_CAPS && !runner_of(trans)) {
    answer_anything(query);
    return TRUE;
  }
  if (direction == GST_PAD_SINK && answer_reads_gpu_memory(query)) return TRUE;
  if (direction == GST_PAD_SRC && asks_for_gpu_memory(query)) {
    const auto runner = runner_of(trans);
    return static_cast<gboolean>(state.downstream_changed || gst_pad_needs_reconfigure(trans->srcpad) != 0 ||
                                 (runner && runner->gives_gpu_memory()));
  }
  if (GST_QUERY_TYPE(query) == GST_QUERY_CONTEXT) {
    const KernelSettings settings = settings_of(trans);
    if (answer_context(GST_ELEMENT_CAST(trans), query, settings, state.context_told)) return TRUE;
  }
  const gboolean answered = kernel_parent_class()->query(trans, direction, query);
  if (GST_QUERY_TYPE(query) == GST_QUERY_LATENCY && answered != 0) add_latency(*query, trans);
  if (GST_QUERY_TYPE(query) == GST_QUERY_CAPS && direction == GST_PAD_SINK && answered != 0) {
    const auto runner = runner_of(trans);
    correct_caps(trans, query);
    const DeclaredCaps declared = caps_in_force(settings_in_force(trans, runner.get()), runner.get());
    ask_no_tensors(query, declared);
    ask_no_center(query, declared);
  }
  return answered;
}

}  // namespace

void install_kernel_negotiation(GstBaseTransformClass* klass) {
  klass->transform_caps = transform_caps;
  klass->fixate_caps = fixate_caps;
  klass->accept_caps = accept_caps;
  klass->set_caps = set_caps;
  klass->propose_allocation = propose_allocation;
  klass->query = query;
}

namespace {

/// What downstream takes where that is nothing but CUDA memory, else null.
Ptr<GstCaps> cuda_downstream(GstBaseTransform* kernel) {
  Ptr<GstCaps> takes(gst_pad_peer_query_caps(GST_BASE_TRANSFORM_SRC_PAD(kernel), nullptr));
  if (!is_cuda_only(takes.get())) takes.reset();
  return takes;
}

/// What downstream takes where that is something, and the kernel makes it of no input; else null.
Ptr<GstCaps> takes_what_is_never_made(GstBaseTransform* kernel) {
  Ptr<GstCaps> takes(gst_pad_peer_query_caps(GST_BASE_TRANSFORM_SRC_PAD(kernel), nullptr));
  const Ptr<GstCaps> taken(
      GST_BASE_TRANSFORM_GET_CLASS(kernel)->transform_caps(kernel, GST_PAD_SRC, takes.get(), nullptr));
  if (gst_caps_is_empty(takes.get()) || !gst_caps_is_empty(taken.get())) takes.reset();
  return takes;
}

/// As if these were taken: the caps then come, and post_refusal() can say why they are not.
void admit(GstQuery* query, const GstCaps* filter) {
  const Ptr<GstCaps> plain(from_either_memory(filter));
  const Ptr<GstCaps> admitted(in_either_memory(plain.get()));
  gst_query_set_caps_result(query, admitted.get());
}

/// The first structure of the media type of `other`, else the first. `caps` have one.
const GstStructure* nearest(const GstCaps* caps, const GstStructure* other) {
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    const GstStructure* one = gst_caps_get_structure(caps, i);
    if (gst_structure_has_name(one, gst_structure_get_name(other))) return one;
  }
  return gst_caps_get_structure(caps, 0);
}

/// Of `caps`, and of any others, the kernel makes something else than what downstream `takes`.
void post_misfit(GstBaseTransform* kernel, const KernelRunner& runner, const GstCaps* caps, const GstCaps* takes) {
  const auto made_of = [&](Ptr<GstCaps> in) {
    return Ptr<GstCaps>(transform_kernel_caps(runner.declared(), runner.params_for_caps(), GST_PAD_SINK, in.get()));
  };
  Ptr<GstCaps> makes = made_of(Ptr<GstCaps>(gst_caps_copy(caps)));
  if (gst_caps_is_empty(makes.get())) makes = made_of(Ptr<GstCaps>(gst_caps_new_any()));
  makes.reset(from_either_memory(makes.get()));
  if (gst_caps_is_any(makes.get()) || gst_caps_is_empty(makes.get())) return;
  const GstStructure* wanted = gst_caps_get_structure(takes, 0);
  const GstStructure* made = nearest(makes.get(), wanted);
  const Ptr<GstCaps> plain(from_either_memory(takes));
  const bool same_media =
      !gst_caps_is_empty(plain.get()) && gst_structure_has_name(made, gst_structure_get_name(wanted));
  const char* converter = "what makes that of it";
  if (same_media && gst_structure_has_name(made, "video/x-raw")) converter = "videoconvert ! videoscale";
  if (same_media && gst_structure_has_name(made, "audio/x-raw")) converter = "audioconvert ! audioresample";
  post_error_once(GST_ELEMENT_CAST(kernel),
                  Error(ErrorCode::invalid,
                        fmt::format("kernel {} makes {}, and what follows takes {}", runner.name(),
                                    kinds_text(makes.get(), wanted), kinds_text(takes, made)),
                        fmt::format("put {} behind gpumapkernel, or ask for what the kernel makes", converter)));
}

}  // namespace

bool answer_context(GstElement* element, GstQuery* query, const KernelSettings& settings, std::atomic<bool>& told) {
  const gchar* type = nullptr;
  gst_query_parse_context_type(query, &type);
  const bool vulkan = type != nullptr && g_str_has_prefix(type, "gst.vulkan.") != 0;
  if (!vulkan && (g_strcmp0(type, cuda_context_type) != 0 || settings.backend == Backend::vulkan)) return false;
  try {
    // Neighbours ask when they start, which those downstream do first.
    const auto device = Device::open(settings.device);
    if (vulkan) return answer_vulkan_context(element, query, *device);
    if (!answer_cuda_context(element, query, *device)) return false;
    if (!told.exchange(true)) post_cuda_context(element, *device);
    return true;
  } catch (const std::exception&) {
    return false;  // this element's own start says what is wrong
  }
}

void correct_caps(GstBaseTransform* kernel, GstQuery* query) {
  GstCaps* answer = nullptr;
  GstCaps* filter = nullptr;
  gst_query_parse_caps_result(query, &answer);
  gst_query_parse_caps(query, &filter);
  if (answer == nullptr || filter == nullptr) return;
  if (const Ptr<GstCaps> on_gpu{without_system_memory(answer)}) {
    gst_query_set_caps_result(query, on_gpu.get());
    return;
  }
  if (!gst_caps_is_empty(answer)) return;
  const auto runner = runner_of(kernel);
  if (runner && !output_problem(runner->declared(), runner->params_for_caps(), filter).empty()) {
    return admit(query, filter);  // as accept_caps()
  }
  if (const Ptr<GstCaps> takes = cuda_downstream(kernel)) {
    // Towards the input memory features do not count: what is to come out says only which picture.
    const Ptr<GstCaps> admitted(
        GST_BASE_TRANSFORM_GET_CLASS(kernel)->transform_caps(kernel, GST_PAD_SRC, takes.get(), filter));
    gst_query_set_caps_result(query, admitted.get());
    return;
  }
  // Once there are frames, a caps event that could tell no longer comes.
  const bool begins = gst_pad_has_current_caps(GST_BASE_TRANSFORM_SINK_PAD(kernel)) == 0;
  if (runner && begins && takes_what_is_never_made(kernel)) admit(query, filter);
}

void post_refusal(GstBaseTransform* kernel, const KernelRunner& runner, const GstCaps* caps) {
  const Ptr<gchar> text(gst_caps_to_string(caps));
  if (const std::string problem = output_problem(runner.declared(), runner.params_for_caps(), caps); !problem.empty()) {
    const std::string refusal = fmt::format("kernel {} makes nothing of {}: {}: change that line, or what comes in",
                                            runner.name(), text.get(), problem);
    GST_ELEMENT_ERROR(kernel, STREAM, FORMAT, ("%s", message_of(refusal).c_str()), (nullptr));
    return;
  }
  if (cuda_downstream(kernel)) {
    const std::string refusal = cuda_refusal_text(runner.cuda_obstacle(), text.get());
    GST_ELEMENT_ERROR(kernel, STREAM, FORMAT, ("%s", message_of(refusal).c_str()), (nullptr));
  } else if (const Ptr<GstCaps> takes = takes_what_is_never_made(kernel)) {
    post_misfit(kernel, runner, caps, takes.get());
  }
}

void provide_cuda_pool(GstBaseTransform* kernel, KernelRunner& runner) {
  if (!runner.lacks_cuda_pool()) return;
  GstPad* pad = GST_BASE_TRANSFORM_SRC_PAD(kernel);
  const Ptr<GstCaps> caps(gst_pad_get_current_caps(pad));
  if (!caps) return;
  const Ptr<GstQuery> query(gst_query_new_allocation(caps.get(), TRUE));
  const bool answered = gst_pad_peer_query(pad, query.get()) != 0;
  runner.cuda().choose_pool(caps.get(), answered ? query.get() : nullptr);
}

void provide_vulkan(GstBaseTransform* kernel, KernelRunner& runner, GstBuffer* in) {
  using Side = VulkanFrames::Side;
  VulkanFrames& vulkan = runner.vulkan();
  if (runner.input() == FramesIn::vulkan) {
    GstVulkanDevice* device = vulkan_device_of(in);
    if (device == nullptr) {
      throw Error(ErrorCode::invalid,
                  "a frame that is not in Vulkan memory came under caps that say so: see what upstream sends");
    }
    if (vulkan.needs_site(Side::in, device)) {
      vulkan.use_site(Side::in, site_on(device, GST_BASE_TRANSFORM_SINK_PAD(kernel)));
    }
  }
  if (!runner.lacks_vulkan_pool()) return;
  GstPad* pad = GST_BASE_TRANSFORM_SRC_PAD(kernel);
  const Ptr<GstCaps> caps(gst_pad_get_current_caps(pad));
  if (!caps) return;
  vulkan.use_site(Side::out, site_of_peer(pad, runner.device()));
  vulkan.make_pool(caps.get(), runner.output_format());
}

bool propose_cuda(GstQuery* query, const KernelRunner& runner) {
  GstCaps* caps = nullptr;
  gst_query_parse_allocation(query, &caps, nullptr);
  if (!is_cuda_caps(caps)) return false;
  gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
  // Without it upstream makes its own, in the context that it was given.
  (void)propose_cuda_pool(runner.device(), query);
  return true;
}

const std::shared_ptr<Device>& device_of(GstBuffer* frame) {
  static const auto& none = *new std::shared_ptr<Device>;  // for good: a thread may come here while the process ends
  const FrameMemory* memory =
      gst_buffer_n_memory(frame) == 1 ? frame_memory(gst_buffer_peek_memory(frame, 0)) : nullptr;
  return memory != nullptr ? memory->device() : none;
}

std::shared_ptr<Device> device_to_follow(std::string_view selector, const Device& own,
                                         const std::shared_ptr<Device>& frames) {
  if (!frames || frames.get() == &own) return nullptr;
  if (selector == "auto") return frames;
  const std::string& address = frames->info().pci_address;
  throw Error(
      ErrorCode::invalid,
      fmt::format("a frame in the memory of {} reached a gpumapkernel with device={}, which is {}: leave device "
                  "out, to follow the frames{}",
                  name_of(frames->info()), selector, name_of(own.info()),
                  address.empty() ? "" : fmt::format(", or set device={}", address)));
}

}  // namespace gpumap::gst
