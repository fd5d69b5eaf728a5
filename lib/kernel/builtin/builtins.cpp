// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "gpumap/kernel.hpp"
#include "kernel/builtin/convert_program.hpp"
#include "kernel/embedded_sources.hpp"
#include "kernel/radio/radio_kernel.hpp"

namespace gpumap {
namespace {

constexpr KernelText radio_keep{"radio_keep", embedded::radio_keep_cu, embedded::radio_keep_comp};
constexpr KernelText radio_fft{"radio_fft", embedded::radio_fft_cu, embedded::radio_fft_comp};
constexpr std::array<KernelText, 2> ddc_kernels{{
    radio_keep,
    {"ddc_filter", embedded::ddc_filter_cu, embedded::ddc_filter_comp},
}};
constexpr KernelText audio_filter{"audio_filter", embedded::audio_filter_cu, embedded::audio_filter_comp};
constexpr std::array<KernelText, 3> fm_kernels{{
    radio_keep,
    {"fm_angle", embedded::fm_angle_cu, embedded::fm_angle_comp},
    audio_filter,
}};
constexpr std::array<KernelText, 3> am_kernels{{
    radio_keep,
    {"am_envelope", embedded::am_envelope_cu, embedded::am_envelope_comp},
    audio_filter,
}};
constexpr std::array<KernelText, 2> ssb_kernels{{radio_keep, audio_filter}};
constexpr std::array<KernelText, 4> spectrum_kernels{{
    radio_keep,
    radio_fft,
    {"spectrum_rows", embedded::spectrum_rows_cu, embedded::spectrum_rows_comp},
    {"spectrum_power", embedded::spectrum_power_cu, embedded::spectrum_power_comp},
}};
constexpr std::array<KernelText, 4> channelizer_kernels{{
    radio_keep,
    radio_fft,
    {"radio_chirp", embedded::radio_chirp_cu, embedded::radio_chirp_comp},
    {"channelizer_fold", embedded::channelizer_fold_cu, embedded::channelizer_fold_comp},
}};

/// What no line can declare: several kernels, and arithmetic between them.
constexpr std::array<Builtin, 7> programs{{
    {.name = "convert", .cuda = {}, .glsl = {}, .make_program = make_convert_program},
    {.name = "ddc", .cuda = {}, .glsl = {}, .make_program = make_ddc, .kernels = ddc_kernels},
    {.name = "fm", .cuda = {}, .glsl = {}, .make_program = make_fm, .kernels = fm_kernels},
    {.name = "am", .cuda = {}, .glsl = {}, .make_program = make_am, .kernels = am_kernels},
    {.name = "ssb", .cuda = {}, .glsl = {}, .make_program = make_ssb, .kernels = ssb_kernels},
    {.name = "spectrum", .cuda = {}, .glsl = {}, .make_program = make_spectrum, .kernels = spectrum_kernels},
    {.name = "channelizer", .cuda = {}, .glsl = {}, .make_program = make_channelizer, .kernels = channelizer_kernels},
}};

/// As meson.build lists them.
constexpr auto table = [] {
  std::array<Builtin, std::size(embedded::builtin_texts)> made{};
  for (std::size_t i = 0; i < made.size(); ++i) {
    const embedded::BuiltinText& text = embedded::builtin_texts[i];
    for (const Builtin& program : programs) {
      if (program.name == text.name) made[i] = program;
    }
    made[i].name = text.name;
    made[i].cuda = text.cuda;
    made[i].glsl = text.glsl;
  }
  return made;
}();
static_assert(std::all_of(programs.begin(), programs.end(), [](const Builtin& program) {
  return std::any_of(table.begin(), table.end(), [&](const Builtin& builtin) { return builtin.name == program.name; });
}));

}  // namespace

std::span<const Builtin> builtins() noexcept {
  return table;
}

const Builtin* find_builtin(std::string_view name) noexcept {
  const auto* found = std::find_if(table.begin(), table.end(), [&](const Builtin& b) { return b.name == name; });
  return found == table.end() ? nullptr : found;
}

Declaration declaration_of(const Builtin& builtin) {
  return parse_declaration(builtin.cuda);
}

void declare_launch(KernelSource& source, const Declaration& declaration) {
  source.block = declaration.block;
  source.grid = declaration.grid;
  source.work = declaration.work;
  source.shared_bytes = declaration.shared_bytes;
}

KernelSource source_of(const Builtin& builtin, Backend backend) {
  KernelSource source = source_of(KernelText{builtin.name, builtin.cuda, builtin.glsl}, backend);
  declare_launch(source, declaration_of(builtin));
  return source;
}

KernelSource source_of(const KernelText& kernel, Backend backend) {
  const Language language = traits_of(backend).source;
  return {.language = language,
          .name = std::string(kernel.name),
          .code = std::string(language == Language::glsl ? kernel.glsl : kernel.cuda),
          .function = {}};
}

namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = mix64(bytes.size());
  std::uint64_t step = 0;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    step += 0x9E3779B97F4A7C15U;
    sum += mix64(word + step);
  }
  return sum;
}

}  // namespace gpumap
