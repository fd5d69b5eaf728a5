// SPDX-License-Identifier: MIT
#include "kernel/convert_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

// Of builtins.cpp: where the numbers of `crop` begin.
constexpr std::size_t crop_first = 6;
constexpr std::uint32_t largest_size = 32767;  // weights are counted in 32 bits, see taps.h

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

class ConvertProgram final : public Program {
 public:
  ConvertProgram(std::shared_ptr<Device> device, Backend backend) : device_(std::move(device)), backend_(backend) {}

  void set_params(std::string_view text) override {
    Params params{};
    apply_parameters(*find_builtin("convert"), text, params);
    choose(params, in_, out_);
  }

  void begin(const gpumap_view& in, const gpumap_view& out) override { choose(params_, in, out); }

  [[nodiscard]] std::optional<std::size_t> output_bytes(std::size_t /*input_bytes*/) const override { return {}; }

  void run(Queue& queue, const gpumap_frame& frame) override {
    if (resamples_ && frame.in.height != in_.height) {
      throw Error(ErrorCode::invalid,
                  "kernel convert: an interlaced picture is neither cropped nor resized: put deinterlace before "
                  "gpumapsink, or leave crop and the output's size out");
    }
    gpumap_frame given = frame;
    std::copy(params_.begin(), params_.end(), std::begin(given.params));
    queue.launch(*kernel_, kernel_->grid_for(given), given);
  }

 private:
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
                        "cropped nor resized",
                        in.width, in.height, out.width, out.height, largest_size));
      }
      const ConvertVariant variant{.in_format = in.format, .out_format = out.format, .resamples = resamples};
      auto& loaded = kernels_[variant];
      if (!loaded) loaded = Kernel::load(device_, convert_source(variant, backend_));
      kernel_ = loaded;
    }
    params_ = params;
    in_ = in;
    out_ = out;
    resamples_ = resamples;
  }

  std::shared_ptr<Device> device_;
  Backend backend_;
  Params params_{};
  gpumap_view in_{}, out_{};  ///< of begin()
  bool resamples_ = false;
  std::map<ConvertVariant, std::shared_ptr<Kernel>> kernels_;  ///< all of them: the queue may still be using any
  std::shared_ptr<Kernel> kernel_;
};

}  // namespace

KernelSource convert_source(const ConvertVariant& variant, Backend backend) {
  KernelSource source = source_of(*find_builtin("convert"), backend);
  source.defines = {"GPUMAP_FIXED", fmt::format("GPUMAP_FIXED_IN={}u", variant.in_format),
                    fmt::format("GPUMAP_FIXED_OUT={}u", variant.out_format),
                    fmt::format("GPUMAP_FIXED_RESAMPLES={}", variant.resamples ? 1 : 0)};
  return source;
}

std::unique_ptr<Program> make_convert_program(const std::shared_ptr<Device>& device, Backend backend) {
  return std::make_unique<ConvertProgram>(device, backend);
}

}  // namespace gpumap
