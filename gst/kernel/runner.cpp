// SPDX-License-Identifier: MIT
#include "gst/kernel/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/printable.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/latency/latency_report.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

namespace gpumap::gst {
namespace {

/// As gpumap_frame tells it.
std::pair<gpumap_u32, gpumap_u32> frame_rate_of(const GstCaps* caps) {
  gint rate = 0, scale = 1;
  gst_structure_get_fraction(gst_caps_get_structure(caps, 0), "framerate", &rate, &scale);
  if (rate <= 0 || scale <= 0) return {0, 1};
  return {static_cast<gpumap_u32>(rate), static_cast<gpumap_u32>(scale)};
}

FramesIn frames_in(const GstCaps* caps) {
  if (is_cuda_caps(caps)) return FramesIn::cuda;
  if (is_vulkan_caps(caps)) return FramesIn::vulkan;
  return is_gpu_caps(caps) ? FramesIn::ours : FramesIn::host;
}

/// And what caps the kernel `declares`.
std::unique_ptr<KernelLauncher> load(const KernelSettings& settings, std::shared_ptr<Device> device,
                                     DeclaredCaps& declares) {
  const auto declared = std::make_shared<std::optional<DeclaredCaps>>();
  // A later version of the file is checked in a thread of its own: what it shares with this is written once, before.
  const PlanCheck check = [declared, params = settings.params, late = settings.late_results](const KernelPlan& plan) {
    DeclaredCaps caps = caps_of(plan.declaration, plan.builtin != nullptr);
    check_declared_caps(caps, params);
    check_analytics(plan.source.name, plan.declaration, late);
    if (!*declared) {
      *declared = std::move(caps);
    } else if (caps != **declared) {
      throw Error(
          ErrorCode::invalid,
          fmt::format("kernel {}: it declares other caps: start the pipeline again for them", plan.source.name));
    }
  };
  auto launcher = std::make_unique<KernelLauncher>(settings, std::move(device), check);
  declares = **declared;
  return launcher;
}

}  // namespace

KernelRunner::KernelRunner(const KernelSettings& settings, std::shared_ptr<Device> device)
    : launcher_(load(settings, std::move(device), declared_)),
      result_(settings.late_results),
      cuda_(*launcher_),
      vulkan_(*launcher_),
      asked_params_(settings.params) {
  result_.change(result_rule());
}

KernelRunner::~KernelRunner() {
  if (!launcher_->end()) cuda_.leave();
}

ResultRule KernelRunner::result_rule() const {
  const Declaration& declaration = launcher_->declaration();
  return {.kernel = launcher_->name(),
          .message = declaration.message,
          .fields = declaration.results,
          .analytics = declaration.analytics};
}

std::optional<std::string> KernelRunner::reload() {
  auto outcome = launcher_->reload();
  if (!outcome || !outcome->empty()) return outcome;
  result_.collect(*launcher_);  // those of the previous version, which has ended
  result_.change(result_rule());
  begin();
  return outcome;
}

void KernelRunner::set_params(const std::string& params) {
  launcher_->set_params(with_center(params));
  asked_params_ = params;
  follow_params();
}

bool KernelRunner::propose_params(const std::string& params) {
  if (params == asked_params_) return false;
  static_cast<void>(gpumap::numbers_of(launcher_->declaration(), name(), params));
  const std::lock_guard lock(proposed_mutex_);
  proposed_ = params;
  return true;
}

std::optional<std::string> KernelRunner::proposed_params() const {
  const std::lock_guard lock(proposed_mutex_);
  return proposed_;
}

std::optional<std::string> KernelRunner::take_proposed() {
  const std::lock_guard lock(proposed_mutex_);
  return std::exchange(proposed_, std::nullopt);
}

std::string KernelRunner::params_for_caps() const {
  const std::optional<std::string> proposed = proposed_params();
  return proposed ? *proposed : params();
}

bool KernelRunner::follows_center(GstBuffer* in) {
  if (!declared_.tuning) return false;
  const std::optional<double> told = radio_of(in).center_frequency;
  if (!told || told == center_) return false;
  center_ = told;
  return true;
}

/// A kernel that tunes gets the centre frequency of its input, unless `params` say it themselves. As long as nobody has
/// said it, what is asked of the sky is taken for it: the first frame may tell.
std::string KernelRunner::with_center(const std::string& params) const {
  if (!declared_.tuning || says_center(params)) return params;
  const double sky = tuning_of(declared_, params).sky;
  if (!center_ && sky == 0.0) return params;
  NamedNumbers all = parse_parameters(params);
  all.emplace_back(declared_.tuning->center, std::vector<Number>{center_.value_or(sky)});
  return format_parameters(all);
}

bool KernelRunner::says_center(const std::string& params) const {
  const NamedNumbers all = parse_parameters(params);
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.first == declared_.tuning->center; });
}

/// Throws Error(invalid) where the sky is asked for and nobody has said where the band is.
void KernelRunner::check_center() const {
  if (!declared_.tuning || center_ || tuning_.sky == 0.0 || says_center(asked_params_)) return;
  throw Error(
      ErrorCode::invalid,
      fmt::format("kernel {}: {}={}, and neither caps nor frames say the centre frequency of the band: put "
                  "capssetter caps=audio/x-raw,center-frequency=(double)HERTZ before it, or set the parameter {}",
                  name(), declared_.tuning->sky, tuning_.sky, declared_.tuning->center));
}

/// What follows for buffers from the parameters, once there are caps.
void KernelRunner::follow_params() {
  if (!in_caps_) return;
  metas_ =
      meta_rule(crop_of(declared_, params()), launcher_->keeps_layout() || in_place(), in_caps_.get(), out_caps_.get());
  tuning_ = tuning_of(declared_, params());
  const std::uint64_t rate = in_format_.rate();
  latency_ns_ = rate != 0 ? gst_util_uint64_scale_ceil(launcher_->gathers(), GST_SECOND, rate) : 0;
}

void KernelRunner::set_caps(const GstCaps* in, const GstCaps* out) {
  const std::optional<std::string> proposed = proposed_params();
  try {
    begin_stream(in, out, proposed);
  } catch (const std::exception&) {
    // Those before may be said again with the parameters in force, and GStreamer hands on no caps that are the same.
    if (proposed && in_caps_) begin_stream(in_caps_.get(), out_caps_.get(), {});
    throw;
  }
  static_cast<void>(take_proposed());
}

void KernelRunner::begin_stream(const GstCaps* in, const GstCaps* out, const std::optional<std::string>& proposed) {
  input_ = frames_in(in);
  output_ = frames_in(out);
  cuda_.drop_pool();
  if (meets_cuda_elements()) {
    const std::string obstacle = cuda_obstacle();
    if (!obstacle.empty()) {
      throw Error(ErrorCode::not_supported, fmt::format("memory:CUDAMemory cannot be {} here: {}",
                                                        output_ == FramesIn::cuda ? "given" : "taken", obstacle));
    }
  }
  vulkan_.set_caps(in, out);
  check_picture_size(in);
  check_picture_size(out);
  if (!declared_.output.empty()) check_output_shape(out);
  check_chroma_site(declared_, in, out);
  in_format_ = FrameFormat::from_caps(in);
  out_format_ = FrameFormat::from_caps(out);
  const gchar* tensor_id = gst_structure_get_string(gst_caps_get_structure(out, 0), "tensor-id");
  const bool by_dims = out_format_.format() == GPUMAP_FORMAT_BYTES;
  tensor_id_ = tensor_id != nullptr ? tensor_id : by_dims ? "gpumap-tensor" : "gpumap-picture";
  center_ = center_frequency_of(gst_caps_get_structure(in, 0));
  const std::string asked = proposed.value_or(asked_params_);
  std::optional<std::string> params;
  if (proposed || declared_.tuning) params = with_center(asked);
  const auto [rate, scale] = frame_rate_of(in);
  launcher_->set_stream(in_format_.layout(), out_format_.layout(), in_format_.color(), rate, scale,
                        out_format_.color_from_rgb(), params);
  asked_params_ = asked;
  if (in != in_caps_.get()) {
    in_caps_.reset(gst_caps_copy(in));
    out_caps_.reset(gst_caps_copy(out));
  }
  begin();
  follow_params();
}

void KernelRunner::begin() {
  times_.forget();
  untold_.reset();
  continuity_.begin();
  cuda_.sweep();
  foreign_sequence_ = 0;
  launcher_->begin();
}

GstStructure* KernelRunner::stats() const {
  std::unique_lock lock(log_mutex_);
  const auto log = log_;
  lock.unlock();
  const KernelLauncher::How how = launcher_->how();
  GstStructure* made = gst_structure_new(
      "gpumapkernel-stats", "kernel", G_TYPE_STRING, printable(name()).c_str(), "backend", G_TYPE_STRING,
      value_name(launcher_->backend()), "frames", G_TYPE_UINT64, static_cast<guint64>(launcher_->frames()),
      "gpu-copies", G_TYPE_UINT64, static_cast<guint64>(vulkan_.gpu_copies()), "host-copies", G_TYPE_UINT64,
      static_cast<guint64>(vulkan_.host_copies()), "multiprocessors", G_TYPE_UINT, multiprocessors(), "mode",
      G_TYPE_STRING, how.resident ? "resident" : "launch", "mode-reason", G_TYPE_STRING, printable(how.why).c_str(),
      nullptr);
  add_latency(made, log.get());
  return made;
}

void KernelRunner::drain() {
  launcher_->drain();
  cuda_.sweep();
  result_.collect(*launcher_);
}

// What a KernelRunner launches on: buffers that came in.
namespace {

std::int64_t time_or_none(GstClockTime time) {
  return GST_CLOCK_TIME_IS_VALID(time) ? static_cast<std::int64_t>(time) : -1;
}

}  // namespace

std::optional<KernelRunner::Input> KernelRunner::input_of(GstBuffer* in) {
  std::optional<Input> made(std::in_place);
  switch (input_) {
    case FramesIn::host:
    case FramesIn::ours:
      find_ours(*made, in);
      break;
    case FramesIn::cuda:
      if (!map_cuda(*made, in)) return {};
      break;
    case FramesIn::vulkan:
      if (!copy_vulkan(*made, in)) return {};
      break;
  }
  FrameInput& frame = made->frame;
  if (!launcher_->declaration().input_tensors.empty()) {
    made->tensors = MappedTensors(in, *launcher_, cuda_);
    if (made->tensors.cancelled()) return {};
    frame.tensors = made->tensors.take();
  }
  frame.pts = time_or_none(GST_BUFFER_PTS(in));
  frame.duration = time_or_none(GST_BUFFER_DURATION(in));
  frame.by_field = in_format_.has_chroma_by_field(in);
  if (declared_.converted) {
    frame.by_field = (frame.by_field || out_format_.has_chroma_by_field(in)) && out_format_.has_room_by_field();
  }
  frame.trace = trace_of(in);
  return made;
}

void KernelRunner::find_ours(Input& input, GstBuffer* in) const {
  GstMemory* memory = gst_buffer_n_memory(in) == 1 ? gst_buffer_peek_memory(in, 0) : nullptr;
  FrameMemory* holder = frame_memory(memory);
  if (memory == nullptr || holder == nullptr) {
    throw Error(ErrorCode::invalid,
                "a frame that is not in GPU memory reached gpumapkernel: put gpumapupload before it (or gpumapsink and "
                "gpumapsrc), with nothing between the two that changes frames on the CPU");
  }
  const Backend backend = launcher_->backend();
  FrameInput& frame = input.frame;
  frame.mapping = &holder->mapping();
  frame.holder = holder;
  frame.written = holder->written();
  frame.sequence = holder->sequence();
  frame.offset = holder->offset() + memory->offset;
  frame.bytes = memory->size;
  frame.address = frame.mapping->address(backend);
  if (frame.address == 0) {
    const auto* reaches = std::ranges::find_if(
        backends, [&](const BackendTraits& traits) { return frame.mapping->address(traits.backend) != 0; });
    throw Error(
        ErrorCode::invalid,
        fmt::format("{} runs {}, which does not reach the page-locked memory of transport=zero-copy on {}: use "
                    "{}transport=pinned on gpumapsink",
                    name(), to_string(backend), name_of(device().info()),
                    reaches == backends.end() ? std::string()
                                              : fmt::format("backend={} on gpumapkernel, or ", reaches->value)));
  }
  frame.address += frame.offset;
  input.meta = in_format_.is_video() ? gst_buffer_get_video_meta(in) : nullptr;
  const GstVideoMeta* shown = input.meta;
  // Where the bytes stay as they are, so does what is said of them.
  std::optional<GstVideoMeta> part;
  if (input.meta != nullptr && !launcher_->keeps_layout() && !in_place()) part = cut_out(in, in_format_.video());
  if (part) {
    shown = &*part;
    input.is_cut = true;
  }
  frame.picture_bytes = shown != nullptr ? in_format_.check(*shown, frame.bytes) : in_format_.image_bytes();
  frame.view = in_format_.view(frame.address, frame.bytes, shown);
}

bool KernelRunner::map_cuda(Input& input, GstBuffer* in) {
  const bool picture = in_format_.is_video();
  input.cuda = picture ? cuda_.map(in, in_format_.video()) : cuda_.map_bytes(in);
  if (!input.cuda) return false;
  input.meta = picture ? &input.cuda.layout() : nullptr;
  FrameInput& frame = input.frame;
  frame.bytes = input.cuda.bytes();
  frame.address = input.cuda.address();
  frame.picture_bytes = picture ? in_format_.check(*input.meta, frame.bytes) : in_format_.image_bytes();
  frame.view = in_format_.view(frame.address, frame.bytes, input.meta);
  frame.copy = picture ? cuda_.copier(in_format_.video()) : cuda_.copier_of_bytes();
  frame.ordered = orders_by_stream(input.cuda);  // and kept until the kernel is done with it
  frame.sequence = foreign_sequence_++;
  return true;
}

bool KernelRunner::copy_vulkan(Input& input, GstBuffer* in) {
  input.block = vulkan_.copy_in(in, in_format_);
  if (!input.block) return false;
  FrameInput& frame = input.frame;
  frame.mapping = &input.block.mapping();
  frame.bytes = frame.picture_bytes = in_format_.image_bytes();
  frame.address = frame.mapping->address(launcher_->backend());
  frame.view = in_format_.view(frame.address, frame.bytes, nullptr);
  frame.sequence = foreign_sequence_++;
  return true;
}

std::string KernelRunner::shortfall(GstBuffer* in) const {
  const FrameMemory* frame = gst_buffer_n_memory(in) == 1 ? frame_memory(gst_buffer_peek_memory(in, 0)) : nullptr;
  if (frame != nullptr && frame->recalled()) return taken_back;
  const std::size_t bytes = gst_buffer_get_size(in);
  const std::size_t wanted = in_format_.image_bytes();
  // Where planes and strides are told, these are checked instead.
  const bool is_told = bytes != 0 && in_format_.is_video() && gst_buffer_get_video_meta(in) != nullptr;
  const bool tells_itself = input_ == FramesIn::vulkan || (input_ == FramesIn::cuda && in_format_.is_video());
  if (bytes >= wanted || is_told || tells_itself) return {};
  return fmt::format(
      "a frame of {} bytes where the caps say {} is left out, and so are others like it: see what upstream sends",
      bytes, wanted);
}

}  // namespace gpumap::gst
