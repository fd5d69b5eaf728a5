// SPDX-License-Identifier: MIT
#include "kernel_parameter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "kernel_element.hpp"

namespace {

struct GstGpumapParameter {
  GstObject base;
  gdouble value;  // under the object lock
  gboolean set;   // false: what the element's `params` says holds
};
struct GstGpumapParameterClass {
  GstObjectClass base;
};

enum { PROP_VALUE = 1 };

using gpumap::gst::KernelSettings;
using gpumap::gst::NamedValues;

/// The number that `name`, as "gain" or "taps[1]", has among these: null where there is none.
template <typename Values>
auto number_of(Values& values, const std::string& name) -> decltype(values.front().second.data()) {
  const std::size_t open = name.find('[');
  const std::string list = name.substr(0, open);
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& one) { return one.first == list; });
  if (found == values.end()) return nullptr;
  if (open == name.npos) return found->second.size() == 1 ? found->second.data() : nullptr;
  guint64 index = 0;
  const std::string digits = name.substr(open + 1, name.size() - open - 2);
  if (name.back() != ']' || g_ascii_string_to_unsigned(digits.c_str(), 10, 0, GPUMAP_MAX_PARAMS, &index, nullptr) == 0)
    return nullptr;
  return index < found->second.size() ? &found->second[index] : nullptr;
}

/// What holds where the child itself was not set: what `params` say, else what the kernel begins with.
double value_in_force(const KernelSettings& settings, const std::string& name) {
  try {
    NamedValues given = gpumap::parse_parameters(settings.params);
    const auto itself = std::find_if(given.begin(), given.end(), [&](const auto& one) { return one.first == name; });
    if (itself != given.end() && itself->second.size() == 1) return itself->second[0];
    if (const double* number = number_of(given, name)) return *number;
    const auto known = gpumap::gst::parameters_of(settings);
    const double* number = known ? number_of(*known, name) : nullptr;
    return number != nullptr ? *number : 0.0;
  } catch (const gpumap::Error&) {
    return 0.0;  // said where the kernel starts
  }
}

}  // namespace

G_DEFINE_TYPE(GstGpumapParameter, gst_gpumap_parameter, GST_TYPE_OBJECT)

static void gst_gpumap_parameter_class_init(GstGpumapParameterClass* klass) {
  auto* object_class = G_OBJECT_CLASS(klass);
  object_class->set_property = [](GObject* object, guint id, const GValue* value, GParamSpec* spec) {
    if (id != PROP_VALUE) {
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
      return;
    }
    auto* self = reinterpret_cast<GstGpumapParameter*>(object);
    GST_OBJECT_LOCK(self);
    self->value = g_value_get_double(value);
    self->set = TRUE;
    GST_OBJECT_UNLOCK(self);
  };
  object_class->get_property = [](GObject* object, guint id, GValue* value, GParamSpec* spec) {
    if (id != PROP_VALUE) {
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
      return;
    }
    auto* self = reinterpret_cast<GstGpumapParameter*>(object);
    GST_OBJECT_LOCK(self);
    const bool set = self->set != 0;
    g_value_set_double(value, self->value);
    GST_OBJECT_UNLOCK(self);
    if (set) return;
    GstObject* kernel = gst_object_get_parent(GST_OBJECT_CAST(self));
    if (kernel == nullptr) return;
    g_value_set_double(value, value_in_force(gpumap::gst::settings_of(kernel), GST_OBJECT_NAME(self)));
    gst_object_unref(kernel);
  };
  g_object_class_install_property(
      object_class, PROP_VALUE,
      g_param_spec_double("value", "Value", "The parameter's value, from the next frame on", -G_MAXFLOAT, G_MAXFLOAT, 0,
                          static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_CONTROLLABLE |
                                                   GST_PARAM_MUTABLE_PLAYING)));
}

static void gst_gpumap_parameter_init(GstGpumapParameter* /*self*/) {}

namespace gpumap::gst {

struct KernelParameters::Child {
  Child(std::string child_name, GstGpumapParameter* made) : name(std::move(child_name)), object(made) {}
  ~Child() { gst_object_unparent(GST_OBJECT_CAST(object)); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] std::optional<double> value() const {
    GST_OBJECT_LOCK(object);
    const std::optional<double> found = object->set != 0 ? std::optional(object->value) : std::nullopt;
    GST_OBJECT_UNLOCK(object);
    return found;
  }

  std::string name;
  GstGpumapParameter* object;
  std::optional<double> told;  ///< by the last changed()
};

KernelParameters::KernelParameters() = default;
KernelParameters::~KernelParameters() = default;

GObject* KernelParameters::find_or_add(GstElement* element, const std::string& name) {
  GObject* object = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(children_.begin(), children_.end(), [&](const auto& one) { return one->name == name; });
    if (found != children_.end()) return G_OBJECT(gst_object_ref((*found)->object));
    auto* made = static_cast<GstGpumapParameter*>(g_object_new(gst_gpumap_parameter_get_type(), nullptr));
    gst_object_set_name(GST_OBJECT_CAST(made), name.c_str());
    gst_object_set_parent(GST_OBJECT_CAST(made), GST_OBJECT_CAST(element));
    children_.push_back(std::make_unique<Child>(name, made));
    object = G_OBJECT(gst_object_ref(made));
  }
  gst_child_proxy_child_added(GST_CHILD_PROXY(element), object, name.c_str());
  return object;
}

GObject* KernelParameters::child(GstElement* element, const std::string& name) {
  try {
    const auto known = parameters_of(settings_of(element));
    if (known && number_of(*known, name) == nullptr) return nullptr;
  } catch (const Error&) {
    return nullptr;  // what is wrong with the file is said where the kernel starts
  }
  return find_or_add(element, name);
}

void KernelParameters::adopt(GstElement* element) {
  NamedValues known;
  try {
    known = parameters_of(settings_of(element)).value_or(NamedValues());
  } catch (const Error&) {
    known.clear();
  }
  std::vector<std::unique_ptr<Child>> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto first_gone = std::stable_partition(
        children_.begin(), children_.end(), [&](const auto& one) { return number_of(known, one->name) != nullptr; });
    std::move(first_gone, children_.end(), std::back_inserter(gone));
    children_.erase(first_gone, children_.end());
  }
  for (const auto& one : gone) {
    gst_child_proxy_child_removed(GST_CHILD_PROXY(element), G_OBJECT(one->object), one->name.c_str());
  }
  for (const auto& [name, values] : known) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      g_object_unref(find_or_add(element, values.size() == 1 ? name : fmt::format("{}[{}]", name, i)));
    }
  }
}

GObject* KernelParameters::child(guint index) const {
  const std::lock_guard lock(mutex_);
  return index < children_.size() ? G_OBJECT(gst_object_ref(children_[index]->object)) : nullptr;
}

guint KernelParameters::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<guint>(children_.size());
}

bool KernelParameters::changed(GstClockTime time) {
  const std::lock_guard lock(mutex_);
  bool any = false;
  for (const auto& one : children_) {
    if (GST_CLOCK_TIME_IS_VALID(time)) gst_object_sync_values(GST_OBJECT_CAST(one->object), time);
    const std::optional<double> now = one->value();
    any = any || now != one->told;
    one->told = now;
  }
  return any;
}

std::string KernelParameters::over(const std::string& params) const {
  auto all = parse_parameters(params);
  const std::lock_guard lock(mutex_);
  for (const auto& one : children_) {
    const std::optional<double> value = one->value();
    if (!value) continue;
    auto found = std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.first == one->name; });
    // Into its list, where that is there, and nowhere else: a number that is told twice counts as two.
    if (double* listed = number_of(all, one->name)) {
      *listed = *value;
      if (found != all.end() && one->name.back() == ']') all.erase(found);
      continue;
    }
    if (found == all.end()) found = all.emplace(all.end(), one->name, std::vector<double>());
    found->second = {*value};
  }
  return format_parameters(all);
}

void KernelParameters::add_interface(GType type, Of of) {
  static Of parameters_of = of;
  const GInterfaceInfo info{[](gpointer vtable, gpointer /*data*/) {
                              auto* proxy = static_cast<GstChildProxyInterface*>(vtable);
                              proxy->get_child_by_name = [](GstChildProxy* parent, const gchar* name) -> GObject* {
                                return parameters_of(G_OBJECT(parent)).child(GST_ELEMENT_CAST(parent), name);
                              };
                              proxy->get_child_by_index = [](GstChildProxy* parent, guint index) -> GObject* {
                                return parameters_of(G_OBJECT(parent)).child(index);
                              };
                              proxy->get_children_count = [](GstChildProxy* parent) -> guint {
                                return parameters_of(G_OBJECT(parent)).count();
                              };
                            },
                            nullptr, nullptr};
  g_type_add_interface_static(type, GST_TYPE_CHILD_PROXY, &info);
}

}  // namespace gpumap::gst
