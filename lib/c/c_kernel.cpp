// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c/c_memory.hpp"
#include "c/c_ring.hpp"
#include "c/stream_messages.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gpumap/printable.hpp"
#include "gpumap/sample_format.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap::c {
namespace {

constexpr std::int64_t usual_timeout_ns = 60'000'000'000;
constexpr std::uint32_t gap_flag = 64;  ///< of gpumap_frame_info

/// Notes for a slot what reads it.
class SlotHolder final : public FrameHolder {
 public:
  explicit SlotHolder(SlotObject& slot) : slot_(slot) {}
  void add_read_fence(const Fence& fence) override {
    const std::lock_guard lock(slot_.mutex);
    if (slot_.read) slot_.read.add_read_fence(fence);
  }
  void stamp(Stamp, std::int64_t) const noexcept override {}

 private:
  SlotObject& slot_;
};

class MemoryHolder final : public FrameHolder {
 public:
  explicit MemoryHolder(MemoryObject& memory) : memory_(memory) {}
  void add_read_fence(const Fence& fence) override { memory_.add_user(fence); }
  void stamp(Stamp, std::int64_t) const noexcept override {}

 private:
  MemoryObject& memory_;
};

/// The layout of a frame at `address`. Bytes where it is none.
gpumap_view view_of(const gpumap_layout& layout, std::uint64_t address, std::size_t bytes) {
  gpumap_view view{};
  view.format = layout.format;
  view.width = layout.width;
  view.height = layout.height;
  view.channels = layout.channels;
  view.rate = layout.rate;
  view.plane[0] = address;
  view.bytes = bytes;
  for (std::uint32_t plane = 0; plane < layout.planes && plane < GPUMAP_MAX_PLANES; ++plane) {
    view.plane[plane] = address + layout.offset[plane];
    view.stride[plane] = static_cast<std::uint32_t>(layout.stride[plane]);
  }
  if (layout.planes != 0) view.bytes -= std::min<std::uint64_t>(layout.offset[0], bytes);
  return view;
}

FrameLayout frame_layout_of(const gpumap_layout& layout) {
  const std::size_t sample = std::size_t{sample_bits(layout.format)} * layout.channels / CHAR_BIT;
  gpumap_view view = view_of(layout, 0, layout.bytes);
  view.bytes = layout.bytes;  // of the whole frame, with what lies before its first plane
  return {.view = view, .bytes_per_sample = is_picture(layout.format) ? 0 : std::max<std::size_t>(sample, 1)};
}

struct Colours {
  ColorMatrix matrix;
  ColorRange range;
  unsigned bits;
};
/// As GStreamer takes them where caps do not say.
Colours usual_colours_of(const gpumap_layout& layout) {
  constexpr std::uint32_t highest_sd = 576;
  const ColorMatrix video = layout.height > highest_sd ? ColorMatrix::bt709 : ColorMatrix::bt601;
  switch (layout.format) {
    case GPUMAP_FORMAT_NV12:
    case GPUMAP_FORMAT_I420:
    case GPUMAP_FORMAT_YUY2:
    case GPUMAP_FORMAT_UYVY:
    case GPUMAP_FORMAT_Y42B:
    case GPUMAP_FORMAT_Y444:
      return {video, ColorRange::limited, 8};
    case GPUMAP_FORMAT_P010:
    case GPUMAP_FORMAT_V210:
    case GPUMAP_FORMAT_Y210:
    case GPUMAP_FORMAT_I420_10:
    case GPUMAP_FORMAT_Y444_10:
      return {video, ColorRange::limited, 10};
    case GPUMAP_FORMAT_P016:
      return {video, ColorRange::limited, 16};
    default:
      break;
  }
  const bool wide = layout.format == GPUMAP_FORMAT_GRAY16 ||
                    (layout.format >= GPUMAP_FORMAT_BAYER16_BGGR && layout.format <= GPUMAP_FORMAT_BAYER16_RGGB);
  return {ColorMatrix::rgb, ColorRange::full, wide ? 16U : 8U};
}

Colours colours_of(const gpumap_layout& layout) {
  // As GstVideoColorMatrix has them.
  constexpr std::array matrices{ColorMatrix::rgb,   ColorMatrix::rgb,       ColorMatrix::fcc,   ColorMatrix::bt709,
                                ColorMatrix::bt601, ColorMatrix::smpte240m, ColorMatrix::bt2020};
  Colours made = usual_colours_of(layout);
  if (is_yuv(layout.format) && layout.matrix > 1 && layout.matrix < matrices.size()) {
    made.matrix = matrices[layout.matrix];
  }
  if (layout.range != 0) made.range = layout.range == 1 ? ColorRange::full : ColorRange::limited;
  if (made.bits == 16 && layout.bits != 0 && !is_yuv(layout.format)) made.bits = layout.bits;
  return made;
}
gpumap_color to_rgb(const gpumap_layout& layout) {
  const auto [matrix, range, bits] = colours_of(layout);
  return color_matrix(matrix, range, bits);
}
gpumap_color from_rgb(const gpumap_layout& layout) {
  const auto [matrix, range, bits] = colours_of(layout);
  // Brightness is made of colours, as GStreamer makes it.
  return color_from_rgb(is_gray(layout.format) ? ColorMatrix::bt601 : matrix, range, bits);
}

/// What a launch reads.
struct Input {
  const Place place;
  const std::size_t offset;  ///< in `place`
  const std::size_t bytes;
  const Fence written;
  std::optional<gpumap_layout> layout;
  FrameHolder* holder;
  std::uint64_t sequence = 0;
  std::int64_t pts = no_time, duration = no_time;
  bool gap = false;         ///< as gpumap_run_options
  std::uint32_t flags = 0;  ///< as gpumap_frame_info
};

/// Ends the waits of a launcher when a time is over. Once what was launched has not ended in that time either, others
/// that wait behind it count their own: until then they take it for work that somebody waits for. Thread safety: one
/// thread at a time.
class TimeLimit {
 public:
  explicit TimeLimit(KernelLauncher& launcher) : launcher_(launcher) {}
  ~TimeLimit() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    // Ends: the thread looks at ends_ whenever it is woken.
    if (thread_.joinable()) thread_.join();
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  /// Until stop(). Throws no_thread().
  void start(Deadline deadline) {
    const std::lock_guard lock(mutex_);
    time_ = {};
    if (deadline == no_deadline) return;
    if (!thread_.joinable()) thread_ = start_thread("gpumap-limit", "the time limit of a kernel", [this] { watch(); });
    deadline_ = deadline;
    time_ = std::clamp<Clock::duration>(deadline - Clock::now(), shortest, longest);
    // Else it looks in time by itself, as a rule.
    if (deadline < looks_) changed_.notify_all();
  }
  void stop() noexcept {
    const std::lock_guard lock(mutex_);
    deadline_ = no_deadline;
    launcher_.cancel(false);
    if (ends_by_ != no_deadline) return;
    look_at_last(Clock::now());
    if (ends_by_ < looks_) changed_.notify_all();
  }

 private:
  static constexpr std::chrono::seconds shortest{1};  // a call may not want to wait at all
  static constexpr std::chrono::hours longest{24};    // the clock has no later times than the latest deadline

  void look_at_last(Deadline now) {
    launched_ = launcher_.last_launched();
    ends_by_ = no_deadline;
    if (launched_.signalled() || time_ == Clock::duration::zero()) return;
    reached_ = launched_.timeline()->completed();
    ends_by_ = now + time_;
  }
  void tell_of_endless(Deadline now) {
    // Where there are many, each has its time.
    if (launched_.signalled() || launched_.timeline()->completed() != reached_) return look_at_last(now);
    launched_.timeline()->set_endless(launched_.value());
    ends_by_ = no_deadline;
  }
  void watch() {
    constexpr std::chrono::hours seldom(1);
    for (std::unique_lock lock(mutex_); !ends_; changed_.wait_until(lock, looks_)) {
      const auto now = Clock::now();
      if (now >= deadline_) {
        launcher_.cancel(true);
        deadline_ = no_deadline;
      }
      if (now >= ends_by_) tell_of_endless(now);
      looks_ = std::min<Deadline>({deadline_, ends_by_, now + seldom});
    }
  }

  KernelLauncher& launcher_;
  std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  Deadline deadline_ = no_deadline, looks_ = no_deadline;
  Clock::duration time_{};  ///< of the last call; 0: without an end
  Fence launched_;
  std::uint64_t reached_ = 0;       ///< completed() of its timeline, at the last look
  Deadline ends_by_ = no_deadline;  ///< no_deadline: `launched_` is not looked at
  bool ends_ = false;
  std::thread thread_;  ///< from the first limit on
};

class KernelObject final : public Object {
 public:
  static constexpr const char* name = "kernel";
  KernelObject(const KernelSettings& settings, std::shared_ptr<Device> on)
      : device(std::move(on)), launcher_(settings, device), result_words_(result_words()) {}
  [[nodiscard]] const char* what() const noexcept override { return name; }

  /// As gpumap_kernel_run(). The output is null where there is none.
  [[nodiscard]] gpumap_status run(const Input& input, const gpumap_run_options& options,
                                  std::unique_ptr<Object>& output);
  void set_params(const std::string& params) {
    const Turns::Turn turn(turns_, deadline_of(usual_timeout_ns));
    check_turn(static_cast<bool>(turn));
    launcher_.set_params(params);
  }
  [[nodiscard]] gpumap_kernel_info info() const {
    gpumap_kernel_info made{};
    put_text(made.name, launcher_.name());
    made.backend = number_of(launcher_.backend());
    made.result_words = result_words_;
    made.frames = launcher_.frames();
    return made;
  }
  [[nodiscard]] gpumap_layout output(const gpumap_layout& in) {
    const Turns::Turn turn(turns_, deadline_of(usual_timeout_ns));
    check_turn(static_cast<bool>(turn));
    return declared_output(in);
  }
  [[nodiscard]] gpumap_status result(std::uint64_t* words, std::uint32_t count, std::int64_t timeout_ns);

  const std::shared_ptr<Device> device;

 private:
  [[nodiscard]] std::uint32_t result_words() const {
    return launcher_.has_result() ? launcher_.declaration().result_words : 0;
  }
  void set_stream(const gpumap_layout& in, const gpumap_layout& out);
  [[nodiscard]] gpumap_layout declared_output(const gpumap_layout& in) const;
  void check_turn(bool came) const {
    if (came) return;
    throw Error(ErrorCode::busy, fmt::format("kernel {} has been in other calls for a minute", launcher_.name()),
                "give these a shorter timeout_ns");
  }

  Turns turns_;  ///< at the launcher, and what follows
  KernelLauncher launcher_;
  std::atomic<std::uint32_t> result_words_;  ///< for any thread: a call may be in the launcher for long
  TimeLimit limit_{launcher_};
  std::optional<std::pair<gpumap_layout, gpumap_layout>> stream_;
  bool is_first_ = true;  ///< the next frame: none went before it since the stream, or another version, began
};

bool is_same(const gpumap_layout& one, const gpumap_layout& other) {
  return std::memcmp(&one, &other, sizeof one) == 0;
}

void KernelObject::set_stream(const gpumap_layout& in, const gpumap_layout& out) {
  if (stream_ && is_same(stream_->first, in) && is_same(stream_->second, out)) return;
  stream_.reset();
  // What it declares holds where the caller describes the frame; a file's kernel may take one that nobody describes as
  // it likes.
  const std::string& input = launcher_.declaration().input;
  const bool is_described = in.format != GPUMAP_FORMAT_BYTES || launcher_.settings().location.empty();
  if (!input.empty() && is_described && !takes(input, in)) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("kernel {} takes {}; a layout of format {}, {}x{} with {} channels at {} Hz is not one of them",
                    launcher_.name(), printable(input), in.format, in.width, in.height, in.channels, in.rate),
        "give the gpumap_layout of such a frame");
  }
  launcher_.set_stream(frame_layout_of(in), frame_layout_of(out), to_rgb(in), 0, 1, from_rgb(out));
  stream_ = {in, out};
  is_first_ = true;
}

/// Of an input like this, as the kernel's line `output` says it; as the input where there is none, or where it leaves
/// something open that the input does not say.
gpumap_layout KernelObject::declared_output(const gpumap_layout& in) const {
  const Declaration& declaration = launcher_.declaration();
  if (declaration.output.empty()) return in;
  const auto params =
      parameter_variables(declaration.params, numbers_of(declaration, launcher_.name(), launcher_.params()),
                          std::numeric_limits<std::int32_t>::max());
  const std::vector<std::pair<std::string_view, std::uint64_t>> variables(params.begin(), params.end());
  try {
    gpumap_layout made = layout_of_output(declaration.output, in, variables).value_or(in);
    if (is_yuv(made.format) == is_yuv(in.format)) {
      made.matrix = in.matrix;
      made.range = in.range;
    }
    return made;
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: its output caps \"{}\": {}: give the layout of its output, `out` of "
                            "gpumap_run_options",
                            launcher_.name(), printable(declaration.output), error.what()));
  }
}

gpumap_status KernelObject::run(const Input& input, const gpumap_run_options& options,
                                std::unique_ptr<Object>& output) {
  const Deadline deadline = deadline_of(options.timeout_ns == 0 ? usual_timeout_ns : options.timeout_ns);
  const gpumap_layout in = options_of(input.layout ? &*input.layout : nullptr, "gpumap_layout");
  gpumap_layout out = options_of(options.out, "the gpumap_layout of the output");
  check_layout(in, input.bytes);
  if (options.out != nullptr) check_layout(out, is_picture(out.format) ? out.bytes : input.bytes);
  // What fills it may be others' work that never ends.
  const Fence others = fence_of(*device, options.after);
  const std::atomic<bool> never{false};
  if (others.wait(never, deadline) != WaitResult::ready) return GPUMAP_TIMEOUT;
  const Turns::Turn turn(turns_, deadline);
  if (!turn) return GPUMAP_TIMEOUT;
  const auto without_limit = [](TimeLimit* limit) { limit->stop(); };
  const std::unique_ptr<TimeLimit, decltype(without_limit)> limited(&limit_);
  limit_.start(deadline);  // of reload(), too, which waits for what was launched before
  if (const auto news = launcher_.reload()) {
    if (!news->empty()) throw Error(ErrorCode::compile, *news);
    is_first_ = true;
    stream_.reset();  // another version may take other input
  }
  if (const std::string problem = launcher_.refresh_tables(); !problem.empty()) {
    throw Error(ErrorCode::invalid, problem);
  }
  result_words_ = result_words();
  if (options.out == nullptr) out = declared_output(in);
  set_stream(in, out);
  const Backend backend = launcher_.backend();
  FrameInput frame;
  frame.mapping = &input.place.mapping;
  frame.offset = input.place.offset + input.offset;
  frame.address = input.place.address(backend) + input.offset;
  if (input.place.address(backend) == 0) {
    throw Error(ErrorCode::not_supported, fmt::format("kernel {} runs in {}, which does not reach this memory: "
                                                      "allocate it on the kernel's device",
                                                      launcher_.name(), to_string(backend)));
  }
  frame.bytes = input.bytes;
  frame.view = view_of(in, frame.address, input.bytes);
  frame.picture_bytes = is_picture(in.format) ? input.bytes : 0;
  frame.written = input.written;
  frame.holder = input.holder;
  frame.sequence = input.sequence;
  frame.pts = input.pts;
  frame.duration = input.duration;
  frame.by_field = is_by_field(in, input.flags) && has_room_by_field(in, input.bytes);
  if (launcher_.declaration().converted) {
    frame.by_field = (frame.by_field || is_by_field(out, input.flags)) && has_room_by_field(out, out.bytes);
  }
  is_first_ = is_first_ || input.gap;  // also where this frame is lost
  frame.gap = is_first_;
  if (input.gap) {
    launcher_.begin();
    launcher_.realign();
  }
  FrameOutput made =
      launcher_.launch(frame, {.place = options.to_host != 0 ? FrameTarget::Place::host : FrameTarget::Place::device});
  if (made.outcome == FrameOutput::Outcome::cancelled) return GPUMAP_TIMEOUT;
  is_first_ = false;
  LentBlock& block = options.to_host != 0 ? made.host : made.block;
  if (made.outcome == FrameOutput::Outcome::given && block) {
    output = std::make_unique<MemoryObject>(device, keep(std::move(block)), 0, made.bytes, made.done);
  }
  return GPUMAP_OK;
}

gpumap_status KernelObject::result(std::uint64_t* words, std::uint32_t count, std::int64_t timeout_ns) {
  const Deadline deadline = deadline_of(timeout_ns);
  for (Fence last;;) {
    {
      const Turns::Turn turn(turns_, deadline);
      if (!turn) return GPUMAP_TIMEOUT;
      const std::uint32_t has = result_words();
      if (has == 0) {
        throw Error(ErrorCode::invalid,
                    fmt::format("kernel {} tells no results: result_words in its info is 0", launcher_.name()));
      }
      need(words, "where the words are to go");
      if (count < has) {
        throw Error(ErrorCode::invalid,
                    fmt::format("kernel {} tells {} result words, and there is room for {}: give room "
                                "for as many as gpumap_kernel_info says",
                                launcher_.name(), has, count));
      }
      if (!launcher_.has_next_result()) {
        throw Error(ErrorCode::invalid,
                    fmt::format("kernel {}: each result was asked for: run it first", launcher_.name()));
      }
      if (const std::optional<ResultBlocks::Words> told = launcher_.next_result()) {
        std::copy_n(told->begin(), std::min<std::size_t>(told->size(), count), words);
        return GPUMAP_OK;
      }
      // Another thread may have taken it, and launched anew.
      const Fence before = std::exchange(last, launcher_.last_launched());
      if (before.timeline() && before.value() == last.value()) return GPUMAP_TIMEOUT;
    }
    // Others have their turns meanwhile.
    const std::atomic<bool> never{false};
    if (last.wait(never, deadline) != WaitResult::ready) return GPUMAP_TIMEOUT;
  }
}

KernelSettings settings_of(const gpumap_kernel_options& options, const Device& device) {
  const bool has_builtin = options.builtin != nullptr && *options.builtin != '\0';
  const bool has_file = options.file != nullptr && *options.file != '\0';
  if (has_builtin == has_file) {
    throw Error(ErrorCode::invalid, "a kernel is either a built-in or a file: give one of the two");
  }
  KernelSettings settings;
  settings.backend.reset();
  switch (options.backend) {
    case GPUMAP_BACKEND_DEFAULT:
      break;
    case GPUMAP_BACKEND_CUDA:
      settings.backend = Backend::cuda;
      break;
    case GPUMAP_BACKEND_VULKAN:
      settings.backend = Backend::vulkan;
      break;
    default:
      throw Error(ErrorCode::invalid, fmt::format("no back end is {}: see gpumap_backend", options.backend));
  }
  if (has_builtin) {
    settings.kernel = options.builtin;
  } else {
    settings.location = options.file;
    if (std::filesystem::path(settings.location).extension().empty()) {
      settings.location += settings.backend.value_or(device.default_backend()) == Backend::cuda ? ".cu" : ".comp";
    }
  }
  settings.params = text_or(options.params);
  settings.function = text_or(options.function);
  settings.declare = text_or(options.declare);
  settings.defines = text_or(options.defines);
  settings.include_path = text_or(options.include_path);
  settings.check_bounds = (options.flags & GPUMAP_KERNEL_CHECK_BOUNDS) != 0;
  settings.reload = (options.flags & GPUMAP_KERNEL_RELOAD) != 0;
  constexpr std::uint32_t known = GPUMAP_KERNEL_CHECK_BOUNDS | GPUMAP_KERNEL_RELOAD;
  if ((options.flags & ~known) != 0) {
    throw Error(ErrorCode::invalid, fmt::format("kernel flags {:#x}: only {:#x} are known", options.flags, known));
  }
  return settings;
}

/// How much of `room` the input takes, from `offset` on.
std::size_t bytes_of(const gpumap_run_options& options, std::size_t room, std::size_t usual) {
  if (options.offset > room || options.bytes > room - options.offset) {
    throw Error(ErrorCode::invalid, fmt::format("an input of {} bytes at offset {} ends behind its {} bytes: give less",
                                                options.bytes, options.offset, room));
  }
  return options.bytes != 0 ? options.bytes : usual - std::min<std::size_t>(options.offset, usual);
}

gpumap_status run_on_memory(KernelObject& kernel, const gpumap_run_options& options, std::unique_ptr<Object>& output) {
  const auto memory = use<MemoryObject>(options.memory);
  const Place place = memory->place();
  MemoryHolder holder(*memory);
  Input input{.place = place,
              .offset = options.offset,
              .bytes = bytes_of(options, place.bytes, place.bytes),
              .written = memory->written(),
              .layout = {},
              .holder = &holder,
              .gap = options.gap != 0};
  if (options.layout != nullptr) input.layout = options_of(options.layout, "gpumap_layout");
  return kernel.run(input, options, output);
}

gpumap_status run_on_slot(KernelObject& kernel, const gpumap_run_options& options, std::unique_ptr<Object>& output) {
  const auto slot = use<SlotObject>(options.slot);
  if (!slot->is_taken)
    throw Error(ErrorCode::invalid, "a kernel reads slots of gpumap_ring_take(): publish it, and take it");
  const Place place = slot->place();
  SlotHolder holder(*slot);
  Input input{.place = place,
              .offset = options.offset,
              .bytes = bytes_of(options, place.bytes, slot->info.bytes),
              .written = slot->written,
              .layout = {},
              .holder = &holder,
              .sequence = slot->info.sequence,
              .pts = slot->info.pts,
              .duration = slot->info.duration,
              .gap = options.gap != 0 || (slot->info.flags & gap_flag) != 0,
              .flags = slot->info.flags};
  if (options.layout != nullptr) {
    input.layout = options_of(options.layout, "gpumap_layout");
  } else {
    input.layout = slot->known_layout();
  }
  return kernel.run(input, options, output);
}

}  // namespace
}  // namespace gpumap::c

using namespace gpumap;     // NOLINT: definitions of the C interface
using namespace gpumap::c;  // NOLINT

gpumap_status gpumap_kernel_open(gpumap_device device, const gpumap_kernel_options* options, gpumap_kernel* kernel) {
  return guarded([&] {
    need(kernel, "where the kernel is to go");
    need(options, "gpumap_kernel_options");
    const auto on = use<DeviceObject>(device);
    const KernelSettings settings = settings_of(options_of(options, "gpumap_kernel_options"), *on->device);
    hand_out(std::make_unique<KernelObject>(settings, on->device), kernel);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_kernel_close(gpumap_kernel kernel) {
  return guarded([&] {
    if (kernel != nullptr) static_cast<void>(close<KernelObject>(kernel));
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_kernel_get_info(gpumap_kernel kernel, gpumap_kernel_info* info) {
  return guarded([&] {
    tell(use<KernelObject>(kernel)->info(), info, "gpumap_kernel_info");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_kernel_set_params(gpumap_kernel kernel, const char* params) {
  return guarded([&] {
    use<KernelObject>(kernel)->set_params(text_or(params));
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_kernel_output(gpumap_kernel kernel, const gpumap_layout* in, gpumap_layout* out) {
  return guarded([&] {
    tell(use<KernelObject>(kernel)->output(options_of(in, "gpumap_layout")), out, "gpumap_layout");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_kernel_run(gpumap_kernel kernel, const gpumap_run_options* options, gpumap_memory* output) {
  return guarded([&] {
    need(options, "gpumap_run_options");
    need(output, "where the output is to go");
    *output = nullptr;
    const auto object = use<KernelObject>(kernel);
    const gpumap_run_options wanted = options_of(options, "gpumap_run_options");
    if ((wanted.memory == nullptr) == (wanted.slot == nullptr)) {
      throw Error(ErrorCode::invalid, "a kernel's input is either memory or a slot: give one of the two");
    }
    std::unique_ptr<Object> made;
    const gpumap_status status =
        wanted.memory != nullptr ? run_on_memory(*object, wanted, made) : run_on_slot(*object, wanted, made);
    if (status == GPUMAP_OK && made) hand_out(std::move(made), output);
    return status;
  });
}

gpumap_status gpumap_kernel_result(gpumap_kernel kernel, uint64_t* words, uint32_t count, int64_t timeout_ns) {
  return guarded([&] { return use<KernelObject>(kernel)->result(words, count, timeout_ns); });
}
