// SPDX-License-Identifier: MIT
#include "kernel/builtin/convert_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "gpumap/error.hpp"
#include "kernel/embedded_sources.hpp"
#include "kernel/kernel_memory.hpp"

namespace gpumap {
namespace {

// Of the line `params` of convert.cu: where the numbers of `crop` begin.
constexpr std::size_t crop_first = 6;
constexpr std::uint32_t largest_size = 32767;  // weights are counted in 32 bits, see taps.h

// Of the passes down and across: see convert_down.cu.
constexpr std::size_t taps_begin = 10, taps_end = 11, first_row = 12, all_rows = 13;
constexpr std::size_t base_first = 14;  // what is added to the output's components
// Loads of 4 pixels for an output pixel, of which a thread makes 4: beyond that, two passes are faster.
constexpr std::uint32_t max_loads = 16;
// Rows of the input that a thread of the first pass goes through in a launch. A load has up to 70 turns of loops, where
// nothing is aligned, and lavapipe (Mesa 22.3) ends a thread's loops after 65,535 turns in all.
constexpr std::uint32_t max_taps = 512;
// Between the passes; it stays in the cache of a large GPU.
constexpr std::uint64_t max_between_bytes = std::uint64_t{32} << 20U;
constexpr std::uint64_t pixel_bytes = 4 * sizeof(float);

constexpr KernelText convert_down{"convert_down", embedded::convert_down_cu, embedded::convert_down_comp};
constexpr KernelText convert_across{"convert_across", embedded::convert_across_cu, embedded::convert_across_comp};

using Params = std::array<float, GPUMAP_MAX_PARAMS>;

/// Where the output's pixels come from.
struct Crop {
  std::uint32_t x = 0, y = 0, width = 0, height = 0;
};

/// One axis of a crop; 0 for `length` goes to the edge.
std::pair<std::uint32_t, std::uint32_t> crop_axis(float start, float length, std::uint32_t size,
                                                  std::string_view axis) {
  const auto refuse = [&](std::string_view what) {
    throw Error(ErrorCode::invalid, fmt::format("parameters: crop of kernel convert: from {} on, {} {}: {}; write "
                                                "crop=[x,y,width,height], where 0 for a length goes to the edge",
                                                start, length, axis, what));
  };
  for (const float number : {start, length}) {
    if (number < 0.0F || number > static_cast<float>(largest_size) || number != std::floor(number)) {
      refuse(fmt::format("not whole numbers from 0 to {}", largest_size));
    }
  }
  const auto from = static_cast<std::uint32_t>(start);
  const auto given = static_cast<std::uint32_t>(length);
  if (size == 0) return {from, given};  // no stream yet
  if (from >= size || given > size - from) refuse(fmt::format("outside the picture of {}", size));
  return {from, given == 0 ? size - from : given};
}

Crop crop_of(const Params& params, const gpumap_view& in) {
  const float* given = params.data() + crop_first;
  const auto [x, width] = crop_axis(given[0], given[2], in.width, "pixels across");
  const auto [y, height] = crop_axis(given[1], given[3], in.height, "pixels down");
  return {x, y, width, height};
}

/// Input pixels of an axis that an output pixel is made of, at most.
std::uint32_t reach_of(std::uint32_t from, std::uint32_t to) {
  return 2 * std::max((from + to - 1) / to, 1U);
}

/// For the kernels, which see no out_color: color goes from the input's colours on to the output's, nothing cut off
/// between them, and params say what is added then.
void recolor(gpumap_frame& frame) {
  const gpumap_color &in = frame.color, &out = frame.out_color;
  gpumap_color both{{}, {in.offset[0], in.offset[1], in.offset[2]}};
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 3; ++column) {
      double sum = 0;
      for (std::size_t i = 0; i < 3; ++i) sum += double{out.matrix[3 * row + i]} * double{in.matrix[3 * i + column]};
      both.matrix[3 * row + column] = static_cast<float>(sum);
    }
    frame.params[base_first + row] = out.offset[row];
  }
  frame.color = both;
}

/// Whether two rows of `format` share their chroma, in planes behind the first.
bool has_half_rows(gpumap_u32 format) noexcept {
  return format == GPUMAP_FORMAT_NV12 || format == GPUMAP_FORMAT_I420 || format == GPUMAP_FORMAT_P010;
}

/// Throws Error(invalid) for what convert.cu leaves as it is. Caps of GStreamer's agree on less; who describes frames
/// by hand may say anything.
void check_formats(const gpumap_view& in, const gpumap_view& out) {
  constexpr std::array<std::uint32_t, 15> stored{
      GPUMAP_FORMAT_NV12,    GPUMAP_FORMAT_I420,           GPUMAP_FORMAT_YUY2,           GPUMAP_FORMAT_RGB,
      GPUMAP_FORMAT_RGBA,    GPUMAP_FORMAT_BGRA,           GPUMAP_FORMAT_P010,           GPUMAP_FORMAT_GRAY8,
      GPUMAP_FORMAT_Y444,    GPUMAP_FORMAT_RGB_F32_PLANAR, GPUMAP_FORMAT_RGB_F16_PLANAR, GPUMAP_FORMAT_RGB_U8_PLANAR,
      GPUMAP_FORMAT_RGB_F32, GPUMAP_FORMAT_RGB_F16,        GPUMAP_FORMAT_RGB_U8};
  const bool has_sizes = in.width != 0 && in.height != 0 && out.width != 0 && out.height != 0;
  if (has_sizes && in.format >= GPUMAP_FORMAT_NV12 && in.format <= GPUMAP_FORMAT_P016 &&
      std::ranges::find(stored, out.format) != stored.end()) {
    return;
  }
  throw Error(ErrorCode::invalid,
              fmt::format("kernel convert: from {}x{} in format {} to {}x{} in format {}: it takes pictures of any "
                          "video or Bayer format of enum gpumap_format, and gives NV12, I420, P010, YUY2, Y444, RGB, "
                          "RGBA, BGRA, GRAY8 and tensors: give the layouts of such",
                          in.width, in.height, in.format, out.width, out.height, out.format));
}

class ConvertProgram final : public Program {
 public:
  ConvertProgram(std::shared_ptr<Device> device, Backend backend)
      : device_(std::move(device)), backend_(backend), between_(device_, backend) {}

  void set_params(std::string_view text) override { choose(read(text), in_, out_); }

  void begin(const gpumap_view& in, const gpumap_view& out) override {
    check_formats(in, out);
    choose(params_, in, out);
  }

  void begin_with(std::string_view params, const gpumap_view& in, const gpumap_view& out) override {
    check_formats(in, out);
    choose(read(params), in, out);
  }

  [[nodiscard]] std::optional<std::size_t> output_bytes(std::size_t /*input_bytes*/) const override { return {}; }

  void run(Queue& queue, const gpumap_frame& frame) override {
    if (resamples_ && frame.in.height != in_.height) {
      throw Error(ErrorCode::invalid,
                  "kernel convert: an interlaced picture is neither cropped nor resized: put deinterlace before "
                  "gpumapsink, or leave crop and the output's size out");
    }
    gpumap_frame given = frame;
    std::copy(params_.begin(), params_.end(), std::begin(given.params));
    recolor(given);
    if (across_) {
      run_in_two_passes(queue, given);
    } else {
      queue.launch(*kernel_, kernel_->grid_for(given), given);
    }
  }

 private:
  static Params read(std::string_view text) {
    Params params{};
    apply_parameters(*find_builtin("convert"), text, params);
    return params;
  }

  /// Take these, and the kernel for them; all stays as it was where they do not go together.
  void choose(const Params& params, const gpumap_view& in, const gpumap_view& out) {
    const Crop crop = crop_of(params, in);
    const bool resamples =
        crop.width != in.width || crop.height != in.height || out.width != in.width || out.height != in.height;
    if (in.width != 0) {
      if (resamples && std::max({in.width, in.height, out.width, out.height}) > largest_size) {
        throw Error(
            ErrorCode::invalid,
            fmt::format("kernel convert: {} x {} to {} x {}: pictures of more than {} pixels a side are neither "
                        "cropped nor resized: leave crop and the output's size out",
                        in.width, in.height, out.width, out.height, largest_size));
      }
      const std::uint32_t loads =
          resamples ? (reach_of(crop.width, out.width) / 4 + 1) * reach_of(crop.height, out.height) : 1;
      const bool two_passes = loads > max_loads;
      const auto kernel = load(in, out,
                               two_passes  ? ConvertPass::down
                               : resamples ? ConvertPass::resampled
                                           : ConvertPass::same);
      across_ = two_passes ? load(in, out, ConvertPass::across) : nullptr;
      kernel_ = kernel;
    }
    params_ = params;
    crop_ = crop;
    in_ = in;
    out_ = out;
    resamples_ = resamples;
  }

  std::shared_ptr<Kernel> load(const gpumap_view& in, const gpumap_view& out, ConvertPass pass) {
    const ConvertVariant variant{.in_format = in.format, .out_format = out.format, .pass = pass};
    auto& loaded = kernels_[variant];
    if (!loaded) loaded = Kernel::load(device_, convert_source(variant, backend_));
    return loaded;
  }

  /// As many of the output's rows at a time as there is room for between the two.
  void run_in_two_passes(Queue& queue, const gpumap_frame& frame) {
    const std::uint32_t quads = (crop_.x % 4 + crop_.width + 3) / 4;
    const std::uint64_t stride = 4 * pixel_bytes * quads;
    // An even number, for rows that share their chroma; there is room for 64 at least.
    const auto rows = std::min(static_cast<std::uint32_t>(max_between_bytes / stride) & ~1U, frame.out.height);
    gpumap_frame down = frame, across = frame;
    down.out = {};
    down.out.plane[0] = between_.ready(queue, rows * stride);
    down.out.stride[0] = static_cast<gpumap_u32>(stride);
    down.out.width = quads;
    across.in = down.out;
    const std::array crop{crop_.x, crop_.y, crop_.width, crop_.height};
    for (gpumap_frame* pass : {&down, &across}) std::copy(crop.begin(), crop.end(), pass->params + crop_first);
    down.params[all_rows] = static_cast<float>(frame.out.height);
    for (std::uint32_t row = 0; row < frame.out.height; row += rows) {
      down.out.height = across.in.height = across.out.height = std::min(rows, frame.out.height - row);
      down.params[first_row] = static_cast<float>(row);
      for (std::uint32_t tap = 0; tap <= reach_of(crop_.height, frame.out.height); tap += max_taps) {
        down.params[taps_begin] = static_cast<float>(tap);
        down.params[taps_end] = static_cast<float>(tap + max_taps);
        queue.launch(*kernel_, kernel_->grid_for(down), down);
      }
      for (std::size_t i = 0; i < GPUMAP_MAX_PLANES; ++i) {
        const std::uint32_t first = i != 0 && has_half_rows(frame.out.format) ? row / 2 : row;
        across.out.plane[i] = frame.out.plane[i] + std::uint64_t{first} * frame.out.stride[i];
      }
      queue.launch(*across_, across_->grid_for(across), across);
    }
  }

  std::shared_ptr<Device> device_;
  Backend backend_;
  WorkMemory between_;
  Params params_{};
  Crop crop_;
  gpumap_view in_{}, out_{};  ///< of begin()
  bool resamples_ = false;
  std::map<ConvertVariant, std::shared_ptr<Kernel>> kernels_;  ///< all of them: the queue may still be using any
  std::shared_ptr<Kernel> kernel_;
  std::shared_ptr<Kernel> across_;  ///< where kernel_ is the first of two passes
};

}  // namespace

KernelSource convert_source(const ConvertVariant& variant, Backend backend) {
  const Builtin& builtin = *find_builtin("convert");
  KernelSource source = variant.pass == ConvertPass::down     ? source_of(convert_down, backend)
                        : variant.pass == ConvertPass::across ? source_of(convert_across, backend)
                                                              : source_of(builtin, backend);
  source.defines = {"GPUMAP_FIXED", fmt::format("GPUMAP_FIXED_IN={}u", variant.in_format),
                    fmt::format("GPUMAP_FIXED_OUT={}u", variant.out_format),
                    fmt::format("GPUMAP_FIXED_RESAMPLES={}", variant.pass == ConvertPass::resampled ? 1 : 0)};
  return source;
}

std::unique_ptr<Program> make_convert_program(const std::shared_ptr<Device>& device, Backend backend) {
  return std::make_unique<ConvertProgram>(device, backend);
}

}  // namespace gpumap
