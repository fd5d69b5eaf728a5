// SPDX-License-Identifier: MIT
// GObject properties as a table: a new property is one line in the table of its element.
#pragma once

#include <gst/gst.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpumap/thread_schedule.hpp"

namespace gpumap::gst {

/// What GObject knows about a property, and what happens when it is set and read. Both are called from any thread, and
/// take what lock they need.
struct Property {
  GParamSpec* spec;
  std::function<void(GObject*, const GValue*)> set;  ///< empty: it cannot be set
  std::function<void(GObject*, GValue*)> get;
};

/// Install `table` in an element's class, and its set_property and get_property. From class_init, once.
void install_properties(GObjectClass* object_class, std::vector<Property> table);

/// "Slot size" of "slot-size".
[[nodiscard]] std::string nick_of(std::string name);

/// One that is not kept but answered by `get`, without a lock.
[[nodiscard]] Property read_only(GParamSpec* spec, std::function<void(GObject*, GValue*)> get);
/// A GstStructure that `make` counts together (transfer full); `blurb` tells its fields.
[[nodiscard]] Property statistics(const char* blurb, std::function<GstStructure*(GObject*)> make);
/// `property`, with `after` called each time that it was set, without a lock.
[[nodiscard]] Property then(Property property, std::function<void(GObject*)> after);

inline constexpr auto mutable_ready = static_cast<GParamFlags>(G_PARAM_READWRITE | GST_PARAM_MUTABLE_READY);
inline constexpr auto mutable_playing = static_cast<GParamFlags>(G_PARAM_READWRITE | GST_PARAM_MUTABLE_PLAYING);

/// Makes properties of the members of `Settings`, which each element keeps; they are written and read under the
/// object's lock. What a member begins with is the property's default.
template <typename Settings>
class PropertiesOf {
 public:
  using Find = Settings& (*)(GObject* element);
  explicit PropertiesOf(Find find) : find_(find) {}

  /// Null sets the default.
  [[nodiscard]] Property text(const char* name, const std::string& blurb, std::string Settings::*member,
                              GParamFlags flags = mutable_ready) const {
    return make(g_param_spec_string(name, nick_of(name).c_str(), blurb.c_str(), (Settings().*member).c_str(), flags),
                member);
  }
  /// Empty is null.
  [[nodiscard]] Property optional_text(const char* name, const std::string& blurb, std::string Settings::*member,
                                       GParamFlags flags = mutable_ready) const {
    Property made = make(g_param_spec_string(name, nick_of(name).c_str(), blurb.c_str(), nullptr, flags), member);
    made.get = [get = std::move(made.get)](GObject* object, GValue* value) {
      get(object, value);
      if (*g_value_get_string(value) == '\0') g_value_set_string(value, nullptr);
    };
    return made;
  }
  [[nodiscard]] Property flag(const char* name, const char* blurb, bool Settings::*member) const {
    return make(g_param_spec_boolean(name, nick_of(name).c_str(), blurb, static_cast<gboolean>(Settings().*member),
                                     mutable_ready),
                member);
  }
  /// A guint, guint64, gint or gdouble, with both limits in range.
  template <typename Number>
  [[nodiscard]] Property number(const char* name, const char* blurb, Number Settings::*member,
                                std::type_identity_t<Number> min = 0,
                                std::type_identity_t<Number> max = std::numeric_limits<Number>::max(),
                                GParamFlags flags = mutable_ready) const {
    const auto spec = [&](auto make_spec) {
      return make_spec(name, nick_of(name).c_str(), blurb, min, max, Settings().*member, flags);
    };
    if constexpr (std::is_same_v<Number, guint>) return make(spec(&g_param_spec_uint), member);
    if constexpr (std::is_same_v<Number, guint64>) return make(spec(&g_param_spec_uint64), member);
    if constexpr (std::is_same_v<Number, gint>) return make(spec(&g_param_spec_int), member);
    if constexpr (std::is_same_v<Number, gdouble>) return make(spec(&g_param_spec_double), member);
  }
  /// An enumeration whose numbers are those of `type`; of an optional one 0 is empty and the numbers follow.
  template <typename Enum>
  [[nodiscard]] Property choice(const char* name, const char* blurb, Enum Settings::*member, GType type) const {
    gst_type_mark_as_plugin_api(type, static_cast<GstPluginAPIFlags>(0));
    return make(g_param_spec_enum(name, nick_of(name).c_str(), blurb, type, to_enum(Settings().*member), mutable_ready),
                member);
  }

 private:
  template <typename Member>
  [[nodiscard]] Property make(GParamSpec* spec, Member Settings::*member) const {
    const auto set = [find = find_, member](GObject* object, const GValue* value) {
      GST_OBJECT_LOCK(object);
      store(value, find(object), member);
      GST_OBJECT_UNLOCK(object);
    };
    const auto get = [find = find_, member](GObject* object, GValue* value) {
      GST_OBJECT_LOCK(object);
      show(value, find(object).*member);
      GST_OBJECT_UNLOCK(object);
    };
    return {spec, set, get};
  }

  template <typename Member>
  static void store(const GValue* value, Settings& settings, Member Settings::*member) {
    Member& to = settings.*member;
    if constexpr (std::is_same_v<Member, std::string>) {
      const gchar* given = g_value_get_string(value);
      to = given != nullptr ? given : Settings().*member;
    } else if constexpr (std::is_same_v<Member, bool>) {
      to = g_value_get_boolean(value) != 0;
    } else if constexpr (std::is_same_v<Member, guint>) {
      to = g_value_get_uint(value);
    } else if constexpr (std::is_same_v<Member, guint64>) {
      to = g_value_get_uint64(value);
    } else if constexpr (std::is_same_v<Member, gint>) {
      to = g_value_get_int(value);
    } else if constexpr (std::is_same_v<Member, gdouble>) {
      to = g_value_get_double(value);
    } else {
      from_enum(g_value_get_enum(value), to);
    }
  }
  static void show(GValue* value, const std::string& from) { g_value_set_string(value, from.c_str()); }
  static void show(GValue* value, bool from) { g_value_set_boolean(value, static_cast<gboolean>(from)); }
  static void show(GValue* value, guint from) { g_value_set_uint(value, from); }
  static void show(GValue* value, guint64 from) { g_value_set_uint64(value, from); }
  static void show(GValue* value, gint from) { g_value_set_int(value, from); }
  static void show(GValue* value, gdouble from) { g_value_set_double(value, from); }
  template <typename Enum>
  static void show(GValue* value, const Enum& from) {
    g_value_set_enum(value, to_enum(from));
  }

  template <typename Enum>
  [[nodiscard]] static gint to_enum(Enum from) {
    return static_cast<gint>(from);
  }
  template <typename Enum>
  [[nodiscard]] static gint to_enum(std::optional<Enum> from) {
    return from ? static_cast<gint>(*from) + 1 : 0;
  }
  template <typename Enum>
  static void from_enum(gint number, Enum& to) {
    to = static_cast<Enum>(number);
  }
  template <typename Enum>
  static void from_enum(gint number, std::optional<Enum>& to) {
    to.reset();
    if (number != 0) to = static_cast<Enum>(number - 1);
  }

  Find find_;
};

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
