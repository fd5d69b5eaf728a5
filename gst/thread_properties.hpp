// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>
#include <vector>

#include "gpumap/thread_schedule.hpp"
#include "gst/property_table.hpp"

namespace gpumap::gst {

/// The properties thread-priority and thread-cpus.
struct ThreadSettings {
  guint priority = 0;
  std::string cpus;
  /// Throws Error(invalid).
  [[nodiscard]] ThreadSchedule schedule() const;
};

/// Append both to the table of an element. `threads`: which ones they are for, as in "the streaming thread".
void add_thread_properties(std::vector<Property>& table, PropertiesOf<ThreadSettings>::Find find,
                           const std::string& threads);
/// The same, and posts a warning for each thing that the system will refuse to the threads. Once a start.
[[nodiscard]] ThreadSchedule try_schedule(GstElement* element, const ThreadSettings& settings);

}  // namespace gpumap::gst
