// SPDX-License-Identifier: MIT

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/printable.hpp"
#include "gst/kernel/kernel_element.hpp"
#include "gst/property_table.hpp"
#include "gst/ptr.hpp"

namespace {

/// Of both types: where the kernel declares integers, `value` is one, and a double else.
struct GstGpumapParameter {
  GstObject base;
  gdouble value;  // under the object lock; as the next
  gint64 whole;   // of the type for integers
  gboolean set;   // false: what the element's `params` says holds
};
struct GstGpumapParameterClass {
  GstObjectClass base;
};

using gpumap::DeclaredParameter;
using gpumap::KernelSettings;
using gpumap::NamedNumbers;
using gpumap::Number;
using gpumap::NumberType;

/// The place among `values`, those called `list`, of the number that `name` says, as "gain" or "taps[1]": null where
/// there is none.
template <typename Values>
auto at(Values& values, const std::string& name) -> decltype(values.data()) {
  const std::size_t open = name.find('[');
  if (open == name.npos) return values.size() == 1 ? values.data() : nullptr;
  guint64 index = 0;
  const std::string digits = name.substr(open + 1, name.size() - open - 2);
  if (name.back() != ']' || g_ascii_string_to_unsigned(digits.c_str(), 10, 0, GPUMAP_MAX_PARAMS, &index, nullptr) == 0)
    return nullptr;
  return index < values.size() ? &values[index] : nullptr;
}

std::string list_of(const std::string& name) {
  return name.substr(0, name.find('['));
}

/// What was given for `name` itself, or in its list.
Number* number_of(NamedNumbers& given, const std::string& name) {
  const std::string list = list_of(name);
  const auto found = std::find_if(given.begin(), given.end(), [&](const auto& one) { return one.first == list; });
  return found != given.end() ? at(found->second, name) : nullptr;
}

/// The parameter that `name` is a number of; null where there is none.
const DeclaredParameter* parameter_of(const std::vector<DeclaredParameter>& known, const std::string& name) {
  const std::string list = list_of(name);
  const auto found = std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.name == list; });
  return found != known.end() && at(found->values, name) != nullptr ? &*found : nullptr;
}

/// What holds where the child itself was not set: what `params` say, else what the kernel begins with.
Number value_in_force(const KernelSettings& settings, const std::string& name) {
  try {
    NamedNumbers given = gpumap::parse_parameters(settings.params);
    const auto itself = std::find_if(given.begin(), given.end(), [&](const auto& one) { return one.first == name; });
    if (itself != given.end() && itself->second.size() == 1) return itself->second[0];
    if (const Number* number = number_of(given, name)) return *number;
    const auto known = gpumap::parameters_of(settings);
    const DeclaredParameter* parameter = known ? parameter_of(*known, name) : nullptr;
    return parameter != nullptr ? *at(parameter->values, name) : Number();
  } catch (const gpumap::Error&) {
    return {};  // said where the kernel starts
  }
}

/// What of `settings` says which kernel it is, and what it declares.
std::array<std::string, 3> chosen_by(const KernelSettings& settings) {
  return {settings.kernel, settings.location, settings.declare};
}

bool is_whole(const DeclaredParameter& parameter) {
  return parameter.type != NumberType::f32 && parameter.type != NumberType::f64;
}

/// Of both types.
void init_class(GObjectClass* object_class, GParamSpec* value_spec) {
  const auto set = [](GObject* object, const GValue* value) {
    auto* self = reinterpret_cast<GstGpumapParameter*>(object);
    GST_OBJECT_LOCK(self);
    if (G_VALUE_HOLDS_INT64(value)) {
      self->whole = g_value_get_int64(value);
    } else {
      self->value = g_value_get_double(value);
    }
    self->set = TRUE;
    GST_OBJECT_UNLOCK(self);
  };
  const auto get = [](GObject* object, GValue* value) {
    auto* self = reinterpret_cast<GstGpumapParameter*>(object);
    GST_OBJECT_LOCK(self);
    const bool was_set = self->set != 0;
    Number shown = self->value;
    if (G_VALUE_HOLDS_INT64(value)) shown = std::int64_t{self->whole};
    GST_OBJECT_UNLOCK(self);
    GstObject* kernel = was_set ? nullptr : gst_object_get_parent(GST_OBJECT_CAST(self));
    if (kernel != nullptr) {
      shown = value_in_force(gpumap::gst::settings_of(kernel), GST_OBJECT_NAME(self));
      gst_object_unref(kernel);
    }
    if (G_VALUE_HOLDS_INT64(value)) {
      g_value_set_int64(value, shown.whole().value_or(0));
    } else {
      g_value_set_double(value, shown.value());
    }
  };
  gpumap::gst::install_properties(object_class, {{value_spec, set, get}});
}

constexpr auto value_flags = static_cast<GParamFlags>(gpumap::gst::mutable_playing | GST_PARAM_CONTROLLABLE);
constexpr const char* value_blurb = "The parameter's value, from the next frame on";

}  // namespace

G_DEFINE_TYPE(GstGpumapParameter, gst_gpumap_parameter, GST_TYPE_OBJECT)

static void gst_gpumap_parameter_class_init(GstGpumapParameterClass* klass) {
  init_class(G_OBJECT_CLASS(klass),
             g_param_spec_double("value", "Value", value_blurb, -G_MAXDOUBLE, G_MAXDOUBLE, 0, value_flags));
}

static void gst_gpumap_parameter_init(GstGpumapParameter* /*self*/) {}

using GstGpumapWholeParameter = GstGpumapParameter;
using GstGpumapWholeParameterClass = GstGpumapParameterClass;
G_DEFINE_TYPE(GstGpumapWholeParameter, gst_gpumap_whole_parameter, GST_TYPE_OBJECT)

static void gst_gpumap_whole_parameter_class_init(GstGpumapWholeParameterClass* klass) {
  init_class(G_OBJECT_CLASS(klass),
             g_param_spec_int64("value", "Value", value_blurb, G_MININT64, G_MAXINT64, 0, value_flags));
}

static void gst_gpumap_whole_parameter_init(GstGpumapWholeParameter* /*self*/) {}

namespace gpumap::gst {

struct KernelParameters::Child {
  Child(std::string child_name, GstGpumapParameter* made) : name(std::move(child_name)), object(made) {}
  ~Child() { gst_object_unparent(GST_OBJECT_CAST(object)); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] bool is_whole() const { return G_OBJECT_TYPE(object) == gst_gpumap_whole_parameter_get_type(); }
  [[nodiscard]] std::optional<Number> value() const {
    std::optional<Number> found;
    GST_OBJECT_LOCK(object);
    if (object->set != 0) found = is_whole() ? Number(std::int64_t{object->whole}) : Number(object->value);
    GST_OBJECT_UNLOCK(object);
    return found;
  }

  std::string name;
  GstGpumapParameter* object;
  std::optional<Number> told;  ///< by the last changed()
  bool of_next = false;        ///< of a kernel that runs from the next start on only
};

KernelParameters::KernelParameters() = default;
KernelParameters::~KernelParameters() = default;

GObject* KernelParameters::find_or_add(GstElement* element, const std::string& name, bool whole) {
  GObject* object = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(children_.begin(), children_.end(), [&](const auto& one) { return one->name == name; });
    if (found != children_.end()) return G_OBJECT(gst_object_ref((*found)->object));
    // The element may have the kernel that runs once more.
    const auto former = std::find_if(former_.begin(), former_.end(), [&](const auto& one) {
      return !changed_since_ && one->name == name && one->is_whole() == whole;
    });
    if (former != former_.end()) {
      object = G_OBJECT(gst_object_ref((*former)->object));
      children_.push_back(std::move(*former));
      former_.erase(former);
    } else {
      const GType type = whole ? gst_gpumap_whole_parameter_get_type() : gst_gpumap_parameter_get_type();
      auto* made = static_cast<GstGpumapParameter*>(g_object_new(type, nullptr));
      gst_object_set_name(GST_OBJECT_CAST(made), name.c_str());
      gst_object_set_parent(GST_OBJECT_CAST(made), GST_OBJECT_CAST(element));
      children_.push_back(std::make_unique<Child>(name, made));
      children_.back()->of_next = changed_since_;
      object = G_OBJECT(gst_object_ref(made));
    }
  }
  gst_child_proxy_child_added(GST_CHILD_PROXY(element), object, name.c_str());
  return object;
}

GObject* KernelParameters::child(GstElement* element, const std::string& name) {
  bool whole = false;
  try {
    const auto known = parameters_of(settings_of(element));
    const DeclaredParameter* parameter = known ? parameter_of(*known, name) : nullptr;
    if (known && parameter == nullptr) {
      // A later `location` may have it: gst-launch-1.0 then sets what was asked for.
      const std::lock_guard lock(mutex_);
      if (missed_.size() < GPUMAP_MAX_PARAMS) missed_.insert(name);
      return nullptr;
    }
    whole = parameter != nullptr && is_whole(*parameter);
  } catch (const Error&) {
    return nullptr;  // what is wrong with the file is said where the kernel starts
  }
  return find_or_add(element, name, whole);
}

void KernelParameters::begin(const KernelSettings& settings) {
  end();
  const std::lock_guard lock(mutex_);
  running_ = chosen_by(settings);
}

void KernelParameters::end() {
  std::vector<std::unique_ptr<Child>> gone;  // let go without the lock
  const std::lock_guard lock(mutex_);
  running_.reset();
  changed_since_ = false;
  gone.swap(former_);
  for (const auto& one : children_) one->of_next = false;
}

std::vector<KernelParameters::Child*> KernelParameters::in_force() const {
  std::vector<Child*> found;
  for (const auto* list : {&children_, &former_}) {
    for (const auto& one : *list) {
      if (!one->of_next) found.push_back(one.get());
    }
  }
  return found;
}

void KernelParameters::adopt(GstElement* element) {
  const KernelSettings settings = settings_of(element);
  std::vector<DeclaredParameter> known;
  try {
    known = parameters_of(settings).value_or(std::vector<DeclaredParameter>());
  } catch (const Error&) {
    known.clear();
  }
  std::vector<std::unique_ptr<Child>> gone;
  std::vector<std::pair<Ptr<GObject>, std::string>> told;
  {
    const std::lock_guard lock(mutex_);
    changed_since_ = running_ && *running_ != chosen_by(settings);
    const auto first_gone = std::stable_partition(children_.begin(), children_.end(), [&](const auto& one) {
      const DeclaredParameter* parameter = parameter_of(known, one->name);
      return parameter != nullptr && is_whole(*parameter) == one->is_whole();
    });
    std::move(first_gone, children_.end(), std::back_inserter(gone));
    children_.erase(first_gone, children_.end());
    for (auto& one : gone) {
      if (one->value()) missed_.insert(one->name);
      told.emplace_back(G_OBJECT(gst_object_ref(one->object)), one->name);
      if (running_ && !one->of_next) former_.push_back(std::move(one));
    }
    for (const auto& one : children_) one->of_next = one->of_next && changed_since_;
  }
  for (const auto& [object, name] : told) {
    gst_child_proxy_child_removed(GST_CHILD_PROXY(element), object.get(), name.c_str());
  }
  gone.clear();
  for (const DeclaredParameter& parameter : known) {
    const std::size_t count = parameter.values.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = count == 1 ? parameter.name : fmt::format("{}[{}]", parameter.name, i);
      g_object_unref(find_or_add(element, name, is_whole(parameter)));
    }
  }
}

std::string KernelParameters::unknown_children(GstElement* element) {
  const auto known = parameters_of(settings_of(element));
  if (!known) return {};
  std::set<std::string> missed;
  {
    const std::lock_guard lock(mutex_);
    missed.swap(missed_);
  }
  std::erase_if(missed, [&](const std::string& name) { return parameter_of(*known, name) != nullptr; });
  if (missed.empty()) return {};
  std::vector<std::string> names;
  names.reserve(known->size());
  for (const DeclaredParameter& parameter : *known) names.push_back(parameter.name);
  return fmt::format("{}::value has no effect: the kernel has {}",
                     printable(fmt::format("{}", fmt::join(missed, ", "))),
                     names.empty() ? "no parameters" : fmt::format("the parameters {}", fmt::join(names, ", ")));
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
  std::vector<Ptr<GstObject>> controlled;
  {
    const std::lock_guard lock(mutex_);
    for (const Child* one : in_force()) {
      auto* object = GST_OBJECT_CAST(one->object);
      if (gst_object_has_active_control_bindings(object) != 0) {
        controlled.emplace_back(static_cast<GstObject*>(gst_object_ref(object)));
      }
    }
  }
  // Without the lock: who is notified of a value may ask for children.
  for (const auto& one : controlled) {
    if (GST_CLOCK_TIME_IS_VALID(time)) gst_object_sync_values(one.get(), time);
  }
  const std::lock_guard lock(mutex_);
  bool any = false;
  for (Child* one : in_force()) {
    const std::optional<Number> now = one->value();
    any = any || now != one->told;
    one->told = now;
  }
  return any;
}

std::string KernelParameters::over(const std::string& params) const {
  auto all = parse_parameters(params);
  const std::lock_guard lock(mutex_);
  for (const Child* one : in_force()) {
    const std::optional<Number> value = one->value();
    if (!value) continue;
    auto found = std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.first == one->name; });
    // Into its list, where that is there, and nowhere else: a number that is told twice counts as two.
    if (Number* listed = number_of(all, one->name)) {
      *listed = *value;
      if (found != all.end() && one->name.back() == ']') all.erase(found);
      continue;
    }
    if (found == all.end()) found = all.emplace(all.end(), one->name, std::vector<Number>());
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
