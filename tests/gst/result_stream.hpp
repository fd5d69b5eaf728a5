// SPDX-License-Identifier: MIT
// What the tests of kernels' outputs and results share: compute shaders in files, and what comes out of a stream.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "pipeline.hpp"

namespace gpumap::gst::test {

/// A compute shader in a file that goes with it.
class ShaderFile {
 public:
  explicit ShaderFile(const std::string& text)
      : path_(testing::TempDir() + "gpumap-stream-" + std::to_string(getpid()) + "-" + std::to_string(made_++) +
              ".comp") {
    write(text);
  }
  ~ShaderFile() { (void)std::remove(path_.c_str()); }
  ShaderFile(const ShaderFile&) = delete;
  ShaderFile& operator=(const ShaderFile&) = delete;
  void write(const std::string& text) const {
    std::ofstream(path_) << "#version 460\n#include <gpumap.glsl>\n" << text;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static inline int made_ = 0;
  std::string path_;
};

using Numbers = std::vector<std::uint64_t>;
using StructurePtr = std::unique_ptr<GstStructure, void (*)(GstStructure*)>;

inline std::uint64_t number_in(const GstStructure* structure, const char* field) {
  guint64 value = ~guint64{0} - 1;
  EXPECT_TRUE(gst_structure_get_uint64(structure, field, &value)) << field;
  return value;
}

/// `field` of the late results that a buffer has.
inline Numbers late_in(GstBuffer* buffer, const char* field) {
  Numbers made;
  GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, "GpumapLateResults");
  if (meta == nullptr) return made;
  const GValue* all = gst_structure_get_value(gst_custom_meta_get_structure(meta), "results");
  for (guint i = 0; i < gst_value_array_get_size(all); ++i) {
    made.push_back(number_in(gst_value_get_structure(gst_value_array_get_value(all, i)), field));
  }
  return made;
}

/// The results that a pipeline posts, as they are posted.
class Messages {
 public:
  explicit Messages(const Pipeline& pipeline) : bus_(gst_element_get_bus(pipeline.get())) {
    gst_bus_set_sync_handler(bus_, &note, new std::shared_ptr<State>(state_),
                             [](gpointer state) { delete static_cast<std::shared_ptr<State>*>(state); });
  }
  ~Messages() {
    gst_bus_set_sync_handler(bus_, nullptr, nullptr, nullptr);
    gst_object_unref(bus_);
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(state_->mutex);
    return state_->all.size();
  }
  /// `field` of each.
  [[nodiscard]] Numbers numbers(const char* field) const {
    const std::lock_guard lock(state_->mutex);
    Numbers made;
    for (const auto& one : state_->all) made.push_back(number_in(one.get(), field));
    return made;
  }
  void clear() {
    const std::lock_guard lock(state_->mutex);
    state_->all.clear();
  }

 private:
  /// A streaming thread may be in note() when the handler is taken away.
  struct State {
    std::mutex mutex;
    std::vector<StructurePtr> all;
  };

  static GstBusSyncReply note(GstBus* /*bus*/, GstMessage* message, gpointer user) {
    const GstStructure* structure = gst_message_get_structure(message);
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ELEMENT &&
        (gst_structure_has_name(structure, "gpumap-result") || gst_structure_has_name(structure, "gpumap-checksum"))) {
      const auto& state = *static_cast<std::shared_ptr<State>*>(user);
      const std::lock_guard lock(state->mutex);
      state->all.emplace_back(gst_structure_copy(structure), &gst_structure_free);
    }
    return GST_BUS_PASS;
  }

  GstBus* bus_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// All that comes until EOS.
inline std::vector<Sample> pull_all(GstAppSink* sink) {
  std::vector<Sample> all;
  while (Sample sample = pull(sink)) all.push_back(std::move(sample));
  return all;
}

}  // namespace gpumap::gst::test
