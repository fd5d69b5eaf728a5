// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "gpumap/link.hpp"
#include "gst/channel/new_names.hpp"

namespace gpumap::gst {

/// What this process asks upstream of a gpumapsink in another one, whose UpstreamRequests answers. Any thread.
class UpstreamAsks {
 public:
  void connect(std::shared_ptr<LinkConsumer> consumer);  ///< null: no gpumapsink is connected
  [[nodiscard]] bool send(GstEvent* event);              ///< takes it. False: it was not handled.
  [[nodiscard]] bool query(GstQuery* query);
  /// Has `flush` done by a thread that seeks, as in one process: a demuxer seeks in its streaming thread, which has the
  /// lock that the flush takes. False: no thread seeks, and it is not done.
  [[nodiscard]] bool let_seeker(const std::function<void()>& flush);

 private:
  [[nodiscard]] std::shared_ptr<LinkConsumer> consumer();
  void count_seekers(int more);
  void flush_here();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<LinkConsumer> consumer_;
  NewNames names_;                                ///< of answers
  int seekers_ = 0;                               ///< threads that wait for the answer to a seek with a flush
  const std::function<void()>* flush_ = nullptr;  ///< for one of them to do
  bool flushes_ = false;                          ///< one of them does it
};

}  // namespace gpumap::gst
