// SPDX-License-Identifier: MIT
#include "kernel_parameter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "gpumap/kernel.hpp"

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
    g_value_set_double(value, self->value);
    GST_OBJECT_UNLOCK(self);
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

GObject* KernelParameters::child(GstElement* element, const std::string& name) {
  const std::lock_guard lock(mutex_);
  auto found = std::find_if(children_.begin(), children_.end(), [&](const auto& one) { return one->name == name; });
  if (found == children_.end()) {
    auto* made = static_cast<GstGpumapParameter*>(g_object_new(gst_gpumap_parameter_get_type(), nullptr));
    gst_object_set_name(GST_OBJECT_CAST(made), name.c_str());
    gst_object_set_parent(GST_OBJECT_CAST(made), GST_OBJECT_CAST(element));
    found = children_.insert(children_.end(), std::make_unique<Child>(name, made));
  }
  return G_OBJECT(gst_object_ref((*found)->object));
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
    if (found == all.end()) found = all.emplace(all.end(), one->name, std::vector<float>());
    found->second = {static_cast<float>(*value)};
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
