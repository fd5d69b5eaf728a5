// SPDX-License-Identifier: MIT
#include "gst/kernel/result.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace gpumap::gst {

namespace {

constexpr const char* usual_message = "gpumap-result";
constexpr const char* meta_name = "GpumapResult";
constexpr const char* late_meta_name = "GpumapLateResults";
/// More are not under way: a frame then waits.
constexpr std::size_t most_blocks = 64;
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

void set_fields(GstStructure* structure, const Words& words,
                const std::vector<std::pair<std::string, ResultType>>& fields) {
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

KernelResult::KernelResult(std::shared_ptr<Device> device, Backend backend, ResultRule rule, bool late)
    : device_(std::move(device)), backend_(backend), rule_(std::move(rule)), late_(late), current_(allocate()) {}

void KernelResult::change(ResultRule rule) {
  collect();
  rule_ = std::move(rule);
  free_.clear();
  current_ = allocate();
}

KernelResult::Block KernelResult::allocate() const {
  const std::size_t bytes = result_offset + rule_.words * sizeof(std::uint64_t);
  Block block{device_->allocate({.placement = Placement::host, .bytes = bytes}, backend_), {}};
  std::memset(block.memory->host(), 0, block.memory->bytes());
  block.memory->flush(0, block.memory->bytes());
  return block;
}

bool KernelResult::may_name(const KernelSource& source, std::string_view field) {
  if (source.language != Language::cuda && source.language != Language::glsl) return true;
  return source.code.find(field) != source.code.npos || includes_others(source.code);
}

bool KernelResult::take(const std::atomic<bool>& cancelled) {
  if (current_.memory) free_.push_back(std::exchange(current_, {}));
  for (;;) {
    const auto idle =
        std::find_if(free_.begin(), free_.end(), [](const Block& block) { return block.done.signalled(); });
    if (idle != free_.end()) {
      current_ = std::move(*idle);
      free_.erase(idle);
      break;
    }
    if (free_.size() + kept_.size() < most_blocks) {
      current_ = allocate();
      return true;
    }
    const Fence oldest = free_.empty() ? kept_.front().block.done : free_.front().done;
    if (oldest.wait(no_deadline, std::chrono::microseconds(50), &cancelled) != WaitResult::ready) return false;
    collect();
  }
  std::memset(current_.memory->host(), 0, current_.memory->bytes());
  current_.memory->flush(0, current_.memory->bytes());
  return true;
}

void KernelResult::show(gpumap_frame& frame) const noexcept {
  frame.given = current_.memory->address(backend_);
  frame.result = frame.given + result_offset;
  frame.result_words = rule_.words;
}

std::uint64_t KernelResult::given() const {
  std::uint64_t given = 0;
  current_.memory->invalidate(0, sizeof given);
  std::memcpy(&given, current_.memory->host(), sizeof given);
  return given;
}

void KernelResult::keep(const Of& of) {
  kept_.push_back({std::exchange(current_, {}), of});
}

void KernelResult::collect() {
  while (!kept_.empty() && kept_.front().block.done.signalled()) {
    read(kept_.front());
    free_.push_back(std::move(kept_.front().block));
    kept_.pop_front();
  }
}

void KernelResult::forget() {
  for (Kept& kept : kept_) free_.push_back(std::move(kept.block));
  kept_.clear();
  found_.reset();
  messages_.clear();
  for_meta_.clear();
}

void KernelResult::tell(GstStructure* to, const Words& words) const {
  if (!rule_.fields.empty()) {
    set_fields(to, words, rule_.fields);
  } else {
    set_words(to, words);
  }
}

void KernelResult::read(const Kept& kept) {
  Words words(rule_.words);
  const std::size_t bytes = words.size() * sizeof words[0];
  kept.block.memory->invalidate(result_offset, bytes);
  std::memcpy(words.data(), kept.block.memory->host() + result_offset, bytes);
  const bool none = std::all_of(words.begin(), words.end(), [](std::uint64_t word) { return word == 0; });
  if (none && rule_.fields.empty()) return;  // by a name, zero is a figure like any other

  const Of& of = kept.of;
  const char* name = rule_.message.empty() ? usual_message : rule_.message.c_str();
  Structure message(gst_structure_new(
      name, "kernel", G_TYPE_STRING, rule_.kernel.c_str(), "bytes", G_TYPE_UINT64, static_cast<guint64>(of.bytes),
      "sequence", G_TYPE_UINT64, static_cast<guint64>(of.sequence), "pts", G_TYPE_UINT64, static_cast<guint64>(of.pts),
      "offset", G_TYPE_UINT64, static_cast<guint64>(of.offset), nullptr));
  tell(message.get(), words);
  if (late_) {
    for_meta_.emplace_back(gst_structure_copy(message.get()));
  } else {
    found_ = std::move(words);
  }
  messages_.push_back(std::move(message));
}

void KernelResult::put_on(GstBuffer* out) {
  // A meta that is there is of a kernel before. Of the same bytes, what it says holds beside ours.
  const auto structure_of = [out](const char* name) -> GstStructure* {
    GstCustomMeta* meta = gst_buffer_get_custom_meta(out, name);
    if (meta == nullptr) meta = gst_buffer_add_custom_meta(out, name);
    return meta != nullptr ? gst_custom_meta_get_structure(meta) : nullptr;
  };
  if (const auto found = std::exchange(found_, std::nullopt)) {
    if (GstStructure* structure = structure_of(meta_name)) tell(structure, *found);
  }
  if (for_meta_.empty()) return;
  GstStructure* structure = structure_of(late_meta_name);
  if (structure == nullptr) return;
  GValue results = G_VALUE_INIT;
  g_value_init(&results, GST_TYPE_ARRAY);
  if (const GValue* before = gst_structure_get_value(structure, "results")) g_value_copy(before, &results);
  for (const Structure& one : for_meta_) {
    GValue value = G_VALUE_INIT;
    g_value_init(&value, GST_TYPE_STRUCTURE);
    gst_value_set_structure(&value, one.get());
    gst_value_array_append_and_take_value(&results, &value);
  }
  for_meta_.clear();
  gst_structure_take_value(structure, "results", &results);
}

GstStructure* KernelResult::take_message() noexcept {
  if (messages_.empty()) return nullptr;
  GstStructure* message = messages_.front().release();
  messages_.pop_front();
  return message;
}

void remove_result_meta(GstBuffer* buffer) {
  while (GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, meta_name))
    gst_buffer_remove_meta(buffer, &meta->meta);
}

}  // namespace gpumap::gst
