// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "gpumap/kernel.hpp"
#include "kernel/builtin/convert_program.hpp"
#include "kernel/embedded_sources.hpp"
#include "kernel/radio/radio_programs.hpp"

namespace gpumap {
namespace {

constexpr std::array<Parameter, 3> convert_parameters{{
    {.name = "mean", .first = 0, .count = 3, .initial = 0.0},
    {.name = "scale", .first = 3, .count = 3, .initial = 1.0},
    {.name = "crop", .first = 6, .count = 4, .initial = 0.0},
}};

constexpr std::array<Parameter, 5> ddc_parameters{{
    {.name = "frequency", .first = 0, .initial = 0.0},
    {.name = "rate", .first = 1, .initial = 0.0},
    {.name = "bandwidth", .first = 2, .initial = 0.0},
    {.name = "taps", .first = 3, .initial = 0.0},
    {.name = "attenuation", .first = 4, .initial = 80.0},
}};

constexpr KernelText radio_keep{"radio_keep", embedded::radio_keep_cu, embedded::radio_keep_comp};
constexpr std::array<KernelText, 2> ddc_kernels{{
    radio_keep,
    {"ddc_filter", embedded::ddc_filter_cu, embedded::ddc_filter_comp},
}};

constexpr KernelText radio_fft{"radio_fft", embedded::radio_fft_cu, embedded::radio_fft_comp};
constexpr std::array<Parameter, 5> spectrum_parameters{{
    {.name = "size", .first = 0, .initial = 1024.0},
    {.name = "overlap", .first = 1, .initial = 0.0},
    {.name = "average", .first = 2, .initial = 1.0},
    {.name = "window", .first = 3, .initial = 1.0},
    {.name = "db", .first = 4, .initial = 0.0},
}};
constexpr std::array<KernelText, 4> spectrum_kernels{{
    radio_keep,
    radio_fft,
    {"spectrum_rows", embedded::spectrum_rows_cu, embedded::spectrum_rows_comp},
    {"spectrum_power", embedded::spectrum_power_cu, embedded::spectrum_power_comp},
}};

constexpr std::array<Parameter, 4> channelizer_parameters{{
    {.name = "channels", .first = 0, .initial = 16.0},
    {.name = "taps", .first = 1, .initial = 12.0},
    {.name = "oversample", .first = 2, .initial = 1.0},
    {.name = "attenuation", .first = 3, .initial = 80.0},
}};
constexpr std::array<KernelText, 4> channelizer_kernels{{
    radio_keep,
    radio_fft,
    {"radio_chirp", embedded::radio_chirp_cu, embedded::radio_chirp_comp},
    {"channelizer_fold", embedded::channelizer_fold_cu, embedded::channelizer_fold_comp},
}};

constexpr std::array<Builtin, 9> table{{
    {.name = "identity",
     .description = "copies the frame",
     .cuda = embedded::identity_cu,
     .glsl = embedded::identity_comp,
     .parameters = {}},
    {.name = "checksum",
     .description = "64-bit checksum of the frame's bytes in result word 0; the frame goes on unchanged",
     .cuda = embedded::checksum_cu,
     .glsl = embedded::checksum_comp,
     .parameters = {},
     .in_place = true,
     .has_result = true,
     .state_bytes = 16},
    {.name = "convert",
     .description = "video, or a part of it, to video of another format or size, or to a tensor",
     .cuda = embedded::convert_cu,
     .glsl = embedded::convert_comp,
     .parameters = convert_parameters,
     .make_program = make_convert_program},
    {.name = "iq-to-f32",
     .description = "U8, S8, S16LE or F32LE samples of any channel count to float32 in -1 to 1",
     .cuda = embedded::iq_to_f32_cu,
     .glsl = embedded::iq_to_f32_comp,
     .parameters = {}},
    {.name = "iq-power",
     .description = "IQ samples to mono float32 power, I*I + Q*Q",
     .cuda = embedded::iq_power_cu,
     .glsl = embedded::iq_power_comp,
     .parameters = {}},
    {.name = "magnitude",
     .description = "IQ samples to mono float32 magnitude, sqrt(I*I + Q*Q); error below 1e-6",
     .cuda = embedded::magnitude_cu,
     .glsl = embedded::magnitude_comp,
     .parameters = {}},
    {.name = "ddc",
     .description =
         "IQ samples shifted by -frequency, low-pass filtered and resampled to rate, as float32 IQ; error below "
         "1e-5 of full scale",
     .cuda = {},
     .glsl = {},
     .parameters = ddc_parameters,
     .make_program = make_ddc,
     .kernels = ddc_kernels},
    {.name = "spectrum",
     .description = "IQ samples to power spectra of size points, averaged, DC in the middle; error below 1e-5 of the "
                    "largest bin",
     .cuda = {},
     .glsl = {},
     .parameters = spectrum_parameters,
     .make_program = make_spectrum,
     .kernels = spectrum_kernels},
    {.name = "channelizer",
     .description = "IQ samples to equally spaced channels as float32 IQ; error below 1e-5 of full scale",
     .cuda = {},
     .glsl = {},
     .parameters = channelizer_parameters,
     .make_program = make_channelizer,
     .kernels = channelizer_kernels},
}};

}  // namespace

std::span<const Builtin> builtins() noexcept {
  return table;
}

const Builtin* find_builtin(std::string_view name) noexcept {
  const auto* found = std::find_if(table.begin(), table.end(), [&](const Builtin& b) { return b.name == name; });
  return found == table.end() ? nullptr : found;
}

KernelSource source_of(const Builtin& builtin, Backend backend) {
  const bool cuda = backend == Backend::cuda;
  return {.language = cuda ? Language::cuda : Language::glsl,
          .name = std::string(builtin.name),
          .code = std::string(cuda ? builtin.cuda : builtin.glsl),
          .function = {},
          .defines = {},
          .include_folders = {}};
}

KernelSource source_of(const KernelText& kernel, Backend backend) {
  const bool cuda = backend == Backend::cuda;
  return {.language = cuda ? Language::cuda : Language::glsl,
          .name = std::string(kernel.name),
          .code = std::string(cuda ? kernel.cuda : kernel.glsl),
          .function = {}};
}

std::vector<KernelSource> sources_of(const Builtin& builtin, Backend backend) {
  std::vector<KernelSource> sources;
  for (const KernelText& kernel : builtin.kernels) sources.push_back(source_of(kernel, backend));
  if (!builtin.cuda.empty()) sources.push_back(source_of(builtin, backend));
  return sources;
}

}  // namespace gpumap
