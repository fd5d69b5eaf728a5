// SPDX-License-Identifier: MIT
// kernels: what they cost beside what they cannot be faster than: `convert` beside a copy of as many bytes, `spectrum`
// beside the transform in it, a chain of functions beside each of them alone. Both sides of a pair are timed by turns.
// Time is from the first launch of a batch until the CPU sees the last one done, divided by their number; memory
// rotates over more than a GPU's caches hold. Not measured: bringing frames to the GPU (gpumap-bench does that), and
// GStreamer.
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <random>

#include "bench.hpp"
#include "gpumap/program.hpp"
#include "kernel/radio/fft/fft.hpp"

namespace bench {
namespace {

using gpumap::Backend;

/// Pieces of device memory of one size, filled with random bytes, handed out in turn.
class Rotating {
 public:
  Rotating(gpumap::Device& device, gpumap::Queue& queue, std::size_t bytes, std::size_t in_all)
      : backend_(queue.backend()) {
    const auto seed = device.allocate({.placement = gpumap::Placement::bar, .bytes = bytes});
    std::mt19937 random(7);
    std::uniform_real_distribution<float> samples(-1.0F, 1.0F);  // samples for `spectrum`; pixels take any bits
    for (std::size_t at = 0; at + sizeof(float) <= bytes; at += sizeof(float)) {
      const float value = samples(random);
      std::memcpy(seed->host() + at, &value, sizeof value);
    }
    seed->flush(0, bytes);
    for (std::size_t made = 0; made == 0 || made * bytes < in_all; ++made) {
      pieces_.push_back(device.allocate({.placement = gpumap::Placement::device, .bytes = bytes}, backend_));
      queue.copy(*seed, 0, *pieces_.back(), 0, bytes);
    }
    (void)queue.submit().wait_for(std::chrono::minutes(1));
  }
  const gpumap::Mapping& next() { return *pieces_[at_++ % pieces_.size()]; }
  std::uint64_t next_address() { return next().address(backend_); }

 private:
  Backend backend_;
  std::vector<std::shared_ptr<gpumap::Mapping>> pieces_;
  std::size_t at_ = 0;
};

using Work = std::function<void()>;

struct Size {
  gpumap_u32 width = 1920, height = 1080;
};

class Kernels {
 public:
  explicit Kernels(Context& context, ModeReport& report)
      : context_(context),
        report_(report),
        device_(context.device),
        backend_(context.backend),
        queue_(context.create_queue()),
        batches_(context.small() ? 3 : 50),
        launches_(context.small() ? 1 : 50) {}

  void convert(const std::string& name, gpumap_u32 format, std::size_t pixel_bytes, unsigned planes, Size out_size = {},
               double most = 1 / 0.7) {
    constexpr gpumap_u32 width = 1920, height = 1080;
    constexpr std::size_t in_bytes = std::size_t{width} * height * 3 / 2;
    const std::size_t out_bytes = std::size_t{out_size.width} * out_size.height * pixel_bytes * planes;
    gpumap_frame frame{};
    frame.in.width = width;
    frame.in.height = height;
    frame.out.width = out_size.width;
    frame.out.height = out_size.height;
    frame.in.format = GPUMAP_FORMAT_NV12;
    frame.in.stride[0] = frame.in.stride[1] = width;
    frame.in.bytes = in_bytes;
    frame.out.format = format;
    frame.out.bytes = out_bytes;
    const auto program = gpumap::Program::load(device_, *gpumap::find_builtin("convert"), backend_);
    for (unsigned i = 0; i < planes; ++i) frame.out.stride[i] = static_cast<gpumap_u32>(out_size.width * pixel_bytes);
    program->begin(frame.in, frame.out);
    Rotating in(*device_, *queue_, in_bytes, cache_bytes());
    Rotating out(*device_, *queue_, out_bytes, cache_bytes());
    const std::size_t copied = (in_bytes + out_bytes) / 2;  // each byte of a copy is read and written
    Rotating from(*device_, *queue_, copied, cache_bytes());
    Rotating to(*device_, *queue_, copied, cache_bytes());
    compare(
        "convert, 1080p NV12 to " + name,
        [&] {
          frame.in.plane[0] = in.next_address();
          frame.in.plane[1] = frame.in.plane[0] + std::uint64_t{width} * height;
          const std::uint64_t at = out.next_address();
          for (unsigned i = 0; i < planes; ++i) frame.out.plane[i] = at + i * out_bytes / planes;
          program->run(*queue_, frame);
        },
        "a copy of as many bytes", [&] { queue_->copy(from.next(), 0, to.next(), 0, copied); }, most);
  }

  void spectrum() {
    const unsigned size = context_.software() ? 1U << 14U : gpumap::Fft::max_points;
    const std::size_t bytes = std::size_t{size} * 2 * sizeof(float);
    const gpumap::Builtin& builtin = *gpumap::find_builtin("spectrum");
    const auto program = gpumap::Program::load(device_, builtin, backend_);
    program->set_params(fmt::format("size={},window=3", size));
    gpumap_frame frame{};
    frame.in.format = frame.out.format = GPUMAP_FORMAT_F32;
    frame.in.channels = 2;
    frame.in.rate = 2'000'000;
    frame.in.bytes = bytes;
    program->begin(frame.in, frame.out);
    frame.out.bytes = std::size_t{size} * sizeof(float);
    Rotating in(*device_, *queue_, bytes, cache_bytes());
    Rotating out(*device_, *queue_, frame.out.bytes, cache_bytes());
    const auto fft = gpumap::make_fft(device_, backend_, builtin, size);
    Rotating from(*device_, *queue_, bytes, cache_bytes());
    Rotating to(*device_, *queue_, bytes, cache_bytes());
    compare(
        fmt::format("spectrum, {} points, Blackman-Harris", size),
        [&] {
          frame.in.plane[0] = in.next_address();
          frame.out.plane[0] = out.next_address();
          (void)program->output_bytes(bytes);
          program->run(*queue_, frame);
        },
        "its transform alone", [&] { fft->forward(*queue_, from.next_address(), to.next_address(), 1); }, 1.5);
  }

  /// Receivers bring 1 GS/s at most.
  void transform(unsigned size, unsigned transforms) {
    const std::size_t samples = std::size_t{size} * transforms;
    const std::size_t bytes = samples * 2 * sizeof(float);
    const auto fft = gpumap::make_fft(device_, backend_, *gpumap::find_builtin("spectrum"), size);
    Rotating memory(*device_, *queue_, bytes, 2 * bytes);
    const gpumap::Mapping& from = memory.next();
    const gpumap::Mapping& to = memory.next();
    const std::string name = fmt::format("FFT, {} x {} points", transforms, size);
    const double us = compare(
        name, [&] { fft->forward(*queue_, from.address(backend_), to.address(backend_), transforms); },
        "a copy of as many bytes", [&] { queue_->copy(from, 0, to, 0, bytes); });
    context_.targets.push_back(
        {.claim = name + ", ns a sample", .value = us * 1000 / static_cast<double>(samples), .bound = 1.0});
  }

  void chain() {
    constexpr std::size_t bytes = std::size_t{1920} * 1080 * 4;
    gpumap_frame frame{};
    frame.in.format = frame.out.format = GPUMAP_FORMAT_F32;
    frame.in.bytes = frame.out.bytes = bytes;
    gpumap::Declaration all;
    all.functions = {"one", "two", "three"};
    const auto chained = gpumap::Program::load(device_, chain_source(), all);
    std::vector<std::unique_ptr<gpumap::Program>> alone;
    for (const std::string& function : all.functions) {
      gpumap::Declaration one;
      one.functions = {function};
      alone.push_back(gpumap::Program::load(device_, chain_source(), one));
    }
    Rotating in(*device_, *queue_, bytes, cache_bytes());
    Rotating out(*device_, *queue_, bytes, cache_bytes());
    const auto aim = [&] {
      frame.in.plane[0] = in.next_address();
      frame.out.plane[0] = out.next_address();
    };
    compare(
        "three functions in sequence, 8.3 MB",
        [&] {
          aim();
          chained->run(*queue_, frame);
        },
        "each of them alone",
        [&] {
          for (const auto& program : alone) {
            aim();
            program->run(*queue_, frame);
          }
        },
        1.1);
  }

 private:
  [[nodiscard]] std::size_t cache_bytes() const { return std::size_t{context_.software() ? 16U : 256U} << 20U; }

  [[nodiscard]] gpumap::KernelSource chain_source() const {
    gpumap::KernelSource source;
    source.name = "chain";
    const bool cuda = backend_ == Backend::cuda;
    source.language = cuda ? gpumap::Language::cuda : gpumap::Language::glsl;
    source.code = cuda ? "#include <gpumap/kernel.h>\n" : "#version 460\n#include <gpumap.glsl>\n";
    for (const auto& [name, what] : {std::pair{"one", "+ 1.0f"}, {"two", "* 0.5f"}, {"three", "- 0.25f"}}) {
      source.code += cuda ? fmt::format(
                                "extern \"C\" __global__ void {}(gpumap_frame frame) {{\n"
                                "  gpumap_u64 i = blockIdx.x * 1ull * blockDim.x + threadIdx.x;\n"
                                "  if (4 * i < frame.out.bytes) ((float*)frame.out.plane[0])[i] = "
                                "((float*)frame.in.plane[0])[i] {};\n}}\n",
                                name, what)
                          : fmt::format(
                                "void {}() {{\n  uint64_t i = 4ul * gpumap_thread();\n"
                                "  if (i < frame.out_view.bytes) store_f32(frame.out_view.plane[0] + i, "
                                "load_f32(frame.in_view.plane[0] + i) {});\n}}\n",
                                name, what);
    }
    return source;
  }

  std::int64_t batch(const Work& work) {
    const std::int64_t began = now_ns();
    for (unsigned i = 0; i < launches_; ++i) work();
    poll(queue_->submit());
    return now_ns() - began;
  }

  /// Returns the median of ours, in us. `most`: of the other's time; without it there is no target.
  double compare(const std::string& name, const Work& ours, const std::string& other_name, const Work& other,
                 std::optional<double> most = {}) {
    std::vector<std::int64_t> our_ns, other_ns;
    (void)batch(ours), (void)batch(other);  // compiled, allocated, warm
    for (unsigned i = 0; i < batches_; ++i) {
      our_ns.push_back(batch(ours));
      other_ns.push_back(batch(other));
    }
    const auto add = [&](const std::string& path, bool rival, std::vector<std::int64_t>& ns) {
      return report_.add({.path = path, .detail = name, .rival = rival}, ns, launches_).time.median_us;
    };
    const double our_us = add("gpumap", false, our_ns);
    const double other_us = add(other_name, true, other_ns);
    if (most) {
      context_.targets.push_back({.claim = name + ", over " + other_name, .value = our_us / other_us, .bound = *most});
    }
    return our_us;
  }

  Context& context_;
  ModeReport& report_;
  std::shared_ptr<gpumap::Device> device_;
  Backend backend_;
  std::unique_ptr<gpumap::Queue> queue_;
  unsigned batches_, launches_;
};

}  // namespace

void run_kernels(Context& context, ModeReport& report) {
  report.what = "a frame, of batches of launches back to back, in cold memory";
  report.not_measured = {"bringing frames to the GPU", "GStreamer"};
  Kernels kernels(context, report);
  kernels.convert("RGBA", GPUMAP_FORMAT_RGBA, 4, 1);
  kernels.convert("planar float32", GPUMAP_FORMAT_RGB_F32_PLANAR, 4, 3);
  kernels.convert("224x224, planar float32", GPUMAP_FORMAT_RGB_F32_PLANAR, 4, 3, {.width = 224, .height = 224}, 4.0);
  kernels.spectrum();
  kernels.transform(1024, 64);
  kernels.transform(context.software() ? 1U << 14U : gpumap::Fft::max_points, 1);
  kernels.chain();
}

}  // namespace bench
