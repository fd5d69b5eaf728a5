// SPDX-License-Identifier: MIT
#include "gst/thread_properties.hpp"

#include "gpumap/figured_error.hpp"
#include "gst/gst_error.hpp"

namespace gpumap::gst {

ThreadSchedule ThreadSettings::schedule() const {
  try {
    return {priority, cpus_of(cpus)};
  } catch (const Error& error) {
    throw within("thread-cpus", error);
  }
}

void add_thread_properties(std::vector<Property>& table, PropertiesOf<ThreadSettings>::Find find,
                           const std::string& threads) {
  const PropertiesOf<ThreadSettings> of(find);
  const std::string priority = "Real-time priority (SCHED_FIFO) of " + threads + " (0: an ordinary thread)";
  table.push_back(of.number("thread-priority", priority.c_str(), &ThreadSettings::priority, 0, max_thread_priority));
  table.push_back(
      of.optional_text("thread-cpus", "CPUs for " + threads + ", as in 2-3,5 (empty: any)", &ThreadSettings::cpus));
}

ThreadSchedule try_schedule(GstElement* element, const ThreadSettings& settings) {
  ThreadSchedule schedule = settings.schedule();
  for (const FiguredError& refused : refused_to_threads(schedule)) {
    const bool wrong = refused.code() == ErrorCode::invalid;
    post_warning(element, refused, wrong ? GST_RESOURCE_ERROR_SETTINGS : GST_RESOURCE_ERROR_NOT_AUTHORIZED);
  }
  return schedule;
}

}  // namespace gpumap::gst
