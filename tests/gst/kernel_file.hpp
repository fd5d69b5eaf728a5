// SPDX-License-Identifier: MIT
// For tests of what a kernel in a file is handed: the file, and frames of bytes through it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "pipeline.hpp"
#include "temporary_folder.hpp"

namespace gpumap::gst::test {

/// A compute shader in a folder that goes with it, and room for other files.
class KernelFile {
 public:
  explicit KernelFile(const std::string& text) { write(text); }
  void write(const std::string& text) const {
    std::ofstream(path()) << "#version 460\n#include <gpumap.glsl>\n" << text;
  }
  [[nodiscard]] std::string path() const { return beside("kernel.comp"); }
  [[nodiscard]] std::string beside(const std::string& name) const { return folder_.path() / name; }

 private:
  TemporaryFolder folder_;
};

/// As an editor or a trainer ought to write it: nobody sees half a file.
inline void replace_file(const std::string& path, const void* data, std::size_t bytes) {
  const std::string other = path + ".new";
  std::ofstream(other, std::ios::binary).write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  std::filesystem::rename(other, path);
}

/// Frames from `name=in` into a gpumapkernel with `options`, and out to `name=out`.
class Frames {
 public:
  explicit Frames(const std::string& options, const std::string& caps = "application/octet-stream",
                  const std::string& sink_options = "")
      : pipeline_(on_new_channel("appsrc name=in format=time caps=" + caps + " ! gpumapsink name=sink sync=false " +
                                 sink_options + " $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel name=kernel " + options +
                                 " ! appsink name=out sync=false")) {}

  Pipeline& pipeline() { return pipeline_; }
  [[nodiscard]] GstElement* kernel() const { return pipeline_.element("kernel"); }

  /// What comes of one frame; empty where none comes.
  Data run(const Data& frame, GstClockTime pts = 0, bool discont = false) {
    if (pipeline_.set_state(GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) {
      ADD_FAILURE() << pipeline_.wait(1s);
      return {};
    }
    Buffer buffer = new_buffer(frame, pts);
    if (discont) GST_BUFFER_FLAG_SET(buffer.get(), GST_BUFFER_FLAG_DISCONT);
    push(pipeline_.appsrc(), std::move(buffer));
    const Sample sample = pull(pipeline_.appsink());
    return sample ? data_of(gst_sample_get_buffer(sample.get())) : Data();
  }

 private:
  Pipeline pipeline_;
};

template <typename Value>
[[nodiscard]] Value value_at(const Data& data, std::size_t at) {
  Value value{};
  if (at + sizeof value > data.size()) {
    ADD_FAILURE() << "a frame of " << data.size() << " bytes has none at " << at;
    return value;
  }
  std::memcpy(&value, data.data() + at, sizeof value);
  return value;
}

/// Errors of a pipeline that does not start; "" where it does.
inline std::string start_error(const std::string& options) {
  Frames frames(options);
  return frames.pipeline().reach(GST_STATE_PLAYING, 5s) ? "" : frames.pipeline().error();
}

}  // namespace gpumap::gst::test
