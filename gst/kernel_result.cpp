// SPDX-License-Identifier: MIT
#include "kernel_result.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace gpumap::gst {

namespace {

constexpr const char* meta_name = "GpumapResult";
/// The words of the result lie behind the word `given`, in cache lines of their own.
constexpr std::size_t result_offset = 128;
using Words = std::vector<std::uint64_t>;

/// True where `code` includes anything but gpumap's own files: what that does is not looked at.
bool includes_others(std::string_view code) {
  constexpr std::string_view directive = "include";
  for (std::size_t at = code.find(directive); at != code.npos; at = code.find(directive, at)) {
    at = code.find_first_not_of(" \t", at + directive.size());
    if (at == code.npos) return true;
    if (!code.substr(at).starts_with("<gpumap")) return true;
  }
  return false;
}

void set_words(GstStructure* structure, const Words& words) {
  GValue array = G_VALUE_INIT;
  g_value_init(&array, GST_TYPE_ARRAY);
  for (const std::uint64_t word : words) {
    GValue value = G_VALUE_INIT;
    g_value_init(&value, G_TYPE_UINT64);
    g_value_set_uint64(&value, word);
    gst_value_array_append_and_take_value(&array, &value);
  }
  gst_structure_take_value(structure, "words", &array);
}

void set_fields(GstStructure* structure, const Words& words, const KernelResult::Fields& fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& [name, type] = fields[i];
    const auto half = static_cast<std::uint32_t>(words[i]);
    switch (type) {
      case ResultType::u64:
        gst_structure_set(structure, name.c_str(), G_TYPE_UINT64, static_cast<guint64>(words[i]), nullptr);
        break;
      case ResultType::i64:
        gst_structure_set(structure, name.c_str(), G_TYPE_INT64, static_cast<gint64>(words[i]), nullptr);
        break;
      case ResultType::f32:
        gst_structure_set(structure, name.c_str(), G_TYPE_DOUBLE, double{std::bit_cast<float>(half)}, nullptr);
        break;
      case ResultType::f64:
        gst_structure_set(structure, name.c_str(), G_TYPE_DOUBLE, std::bit_cast<double>(words[i]), nullptr);
        break;
    }
  }
}

}  // namespace

KernelResult::KernelResult(Device& device, Backend backend, std::string kernel, bool checksum, Fields fields,
                           std::uint32_t words)
    : backend_(backend),
      kernel_(std::move(kernel)),
      checksum_(checksum),
      fields_(std::move(fields)),
      words_(words),
      memory_(device.allocate({.placement = Placement::host, .bytes = result_offset + words * sizeof(std::uint64_t)},
                              backend)) {
  clear();
}

KernelResult::~KernelResult() {
  if (message_ != nullptr) gst_structure_free(message_);
}

bool KernelResult::may_name(const KernelSource& source, std::string_view field) {
  if (source.language != Language::cuda && source.language != Language::glsl) return true;
  return source.code.find(field) != source.code.npos || includes_others(source.code);
}

void KernelResult::show(gpumap_frame& frame) const noexcept {
  frame.given = memory_->address(backend_);
  frame.result = frame.given + result_offset;
  frame.result_words = static_cast<gpumap_u32>(words_);
}

void KernelResult::clear() {
  std::memset(memory_->host(), 0, memory_->bytes());
  memory_->flush(0, memory_->bytes());
}

std::uint64_t KernelResult::given() const {
  std::uint64_t given = 0;
  memory_->invalidate(0, sizeof given);
  std::memcpy(&given, memory_->host(), sizeof given);
  return given;
}

void KernelResult::read(const Of& of, GstBuffer* out) {
  Words words(words_);
  const std::size_t bytes = words_ * sizeof words[0];
  memory_->invalidate(result_offset, bytes);
  std::memcpy(words.data(), memory_->host() + result_offset, bytes);
  const bool none = std::all_of(words.begin(), words.end(), [](std::uint64_t word) { return word == 0; });
  if (none && !checksum_ && fields_.empty()) return;  // by a name, zero is a figure like any other

  const auto tell = [&](GstStructure* to) {
    if (checksum_) {
      gst_structure_set(to, "checksum", G_TYPE_UINT64, static_cast<guint64>(words[0]), nullptr);
    } else if (!fields_.empty()) {
      set_fields(to, words, fields_);
    } else {
      set_words(to, words);
    }
  };
  if (message_ != nullptr) gst_structure_free(message_);
  message_ =
      gst_structure_new(checksum_ ? "gpumap-checksum" : "gpumap-result", "kernel", G_TYPE_STRING, kernel_.c_str(),
                        "bytes", G_TYPE_UINT64, static_cast<guint64>(of.bytes), "sequence", G_TYPE_UINT64,
                        static_cast<guint64>(of.sequence), "pts", G_TYPE_UINT64, static_cast<guint64>(of.pts), nullptr);
  tell(message_);
  if (out == nullptr) return;

  // One that is there is of a kernel before, and of the same bytes: what it says holds beside ours.
  GstCustomMeta* meta = gst_buffer_get_custom_meta(out, meta_name);
  if (meta == nullptr) meta = gst_buffer_add_custom_meta(out, meta_name);
  if (meta != nullptr) tell(gst_custom_meta_get_structure(meta));
}

GstStructure* KernelResult::take_message() noexcept {
  return std::exchange(message_, nullptr);
}

void remove_result_meta(GstBuffer* buffer) {
  while (GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, meta_name))
    gst_buffer_remove_meta(buffer, &meta->meta);
}

}  // namespace gpumap::gst
