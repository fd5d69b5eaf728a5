// SPDX-License-Identifier: MIT
#include "gst/property_table.hpp"

#include <algorithm>

#include "gpumap/error.hpp"
#include "gst/gst_error.hpp"

namespace gpumap::gst {

namespace {

GQuark table_quark() {
  static const GQuark quark = g_quark_from_static_string("gpumap-property");
  return quark;
}

const Property& property_of(GParamSpec* spec) {
  return *static_cast<const Property*>(g_param_spec_get_qdata(spec, table_quark()));
}

}  // namespace

std::string nick_of(std::string name) {
  std::replace(name.begin(), name.end(), '-', ' ');
  name.front() = g_ascii_toupper(name.front());
  return name;
}

Property read_only(GParamSpec* spec, std::function<void(GObject*, GValue*)> get) {
  return {spec, nullptr, std::move(get)};
}

Property statistics(const char* blurb, std::function<GstStructure*(GObject*)> make) {
  return read_only(
      g_param_spec_boxed("stats", "Statistics", blurb, GST_TYPE_STRUCTURE, G_PARAM_READABLE),
      [make = std::move(make)](GObject* object, GValue* value) { g_value_take_boxed(value, make(object)); });
}

Property then(Property property, std::function<void(GObject*)> after) {
  property.set = [set = std::move(property.set), after = std::move(after)](GObject* object, const GValue* value) {
    set(object, value);
    after(object);
  };
  return property;
}

void install_properties(GObjectClass* object_class, std::vector<Property> table) {
  // GObject lets nobody set what is not writable, and none but its own properties come to a class.
  object_class->set_property = [](GObject* object, guint /*id*/, const GValue* value, GParamSpec* spec) {
    property_of(spec).set(object, value);
  };
  object_class->get_property = [](GObject* object, guint /*id*/, GValue* value, GParamSpec* spec) {
    property_of(spec).get(object, value);
  };
  guint id = 0;
  for (Property& property : table) {
    GParamSpec* spec = property.spec;
    g_param_spec_set_qdata(spec, table_quark(), new Property(std::move(property)));  // for ever, as the class
    g_object_class_install_property(object_class, ++id, spec);
  }
}

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
