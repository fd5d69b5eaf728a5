// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gpumap::gst::test {

/// The lines of a category, of `level` and graver, while it lives.
class DebugLog {
 public:
  DebugLog(std::string category, GstDebugLevel level) : category_(std::move(category)), level_(level) {
    gst_debug_set_threshold_for_name(category_.c_str(), level);
    (gst_debug_add_log_function)(&DebugLog::take, this, nullptr);  // the macro compares what C++ does not
  }
  ~DebugLog() {
    gst_debug_remove_log_function_by_data(this);
    gst_debug_unset_threshold_for_name(category_.c_str());
  }
  DebugLog(const DebugLog&) = delete;
  DebugLog& operator=(const DebugLog&) = delete;
  [[nodiscard]] std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  static void take(GstDebugCategory* category, GstDebugLevel level, const gchar* /*file*/, const gchar* /*function*/,
                   gint /*line*/, GObject* /*object*/, GstDebugMessage* message, gpointer self) {
    auto* log = static_cast<DebugLog*>(self);
    if (log->category_ != gst_debug_category_get_name(category) || level > log->level_) return;
    const std::lock_guard lock(log->mutex_);
    log->lines_.emplace_back(gst_debug_message_get(message));
  }

  const std::string category_;
  const GstDebugLevel level_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace gpumap::gst::test
