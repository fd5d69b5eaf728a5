// SPDX-License-Identifier: MIT
#include "gst/kernel/tensor_caps.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "gpumap/error.hpp"

namespace gpumap::gst {

namespace {

constexpr const char* field_name = "tensors";

bool has_tensor_caps() {
  guint major = 0, minor = 0, micro = 0, nano = 0;
  ::gst_version(&major, &minor, &micro, &nano);
  return major > 1 || minor >= 28;
}

const std::string& group_of(const DeclaredCaps& declared) {
  return declared.tensor_group.empty() ? declared.tensors.front().id : declared.tensor_group;
}

using Values = std::vector<std::pair<std::string_view, std::uint64_t>>;

/// What all structures of `in` agree on.
Values values_of(const GstCaps* in) {
  Values known;
  for (const char* name : {"width", "height", "rate", "channels"}) {
    gint value = -1;
    for (guint i = 0; !gst_caps_is_any(in) && i < gst_caps_get_size(in); ++i) {
      gint one = 0;
      if (!gst_structure_get_int(gst_caps_get_structure(in, i), name, &one) || (i != 0 && one != value)) one = -1;
      value = one;
      if (one < 0) break;
    }
    if (value >= 0) known.emplace_back(name, value);
  }
  return known;
}

std::string dims_of(const DeclaredTensor& tensor, const Values& known) {
  std::string text;
  for (const DeclaredDimension& dimension : tensor.dims) {
    std::string size = "0";  // of any size
    try {
      if (!dimension.open) size = std::to_string(evaluate(dimension.size, known));
    } catch (const Error&) {
      size = "[1, max]";
    }
    text += (text.empty() ? "" : ",") + size;
  }
  return text;
}

/// A structure of groups, of which there is this one (transfer full). Null: GStreamer does not read it.
GstStructure* groups_of(const DeclaredCaps& declared, const Values& known) {
  std::string tensors;
  for (const DeclaredTensor& tensor : declared.tensors) {
    // "u8" is "uint8" there, "f32" "float32".
    std::string type(to_string(tensor.type));
    type.replace(0, 1, type[0] == 'f' ? "float" : type[0] == 'u' ? "uint" : "int");
    tensors += fmt::format(
        "{}(GstCaps)[tensor/strided,tensor-id=(string){},dims=(int)<{}>,dims-order=(string)row-major,type=(string){};]",
        tensors.empty() ? "" : ",", tensor.id, dims_of(tensor, known), type);
  }
  const std::string text = fmt::format("tensorgroups,{}=(/uniquelist){{{}}}", group_of(declared), tensors);
  return gst_structure_from_string(text.c_str(), nullptr);
}

GstStructure* tensors_in(const GstStructure* structure) {
  const GValue* value = gst_structure_get_value(structure, field_name);
  return value != nullptr && GST_VALUE_HOLDS_STRUCTURE(value) ? gst_structure_copy(gst_value_get_structure(value))
                                                              : nullptr;
}

}  // namespace

GstCaps* with_tensors(const DeclaredCaps& declared, const GstCaps* in, GstCaps* made) {
  if (declared.tensors.empty() || gst_caps_is_any(made) || !has_tensor_caps()) return made;
  GstStructure* ours = groups_of(declared, values_of(in));
  if (ours == nullptr) return made;
  const gchar* group = group_of(declared).c_str();
  made = gst_caps_make_writable(made);
  for (guint i = 0; i < gst_caps_get_size(made); ++i) {
    GstStructure* structure = gst_caps_get_structure(made, i);
    GstStructure* all = tensors_in(structure);
    if (all == nullptr) all = gst_structure_new_empty("tensorgroups");
    gst_structure_set_value(all, group, gst_structure_get_value(ours, group));
    gst_structure_set(structure, field_name, GST_TYPE_STRUCTURE, all, nullptr);
    gst_structure_free(all);
  }
  gst_structure_free(ours);
  return made;
}

GstCaps* without_tensors(const DeclaredCaps& declared, GstCaps* caps) {
  if (declared.tensors.empty() || gst_caps_is_any(caps) || !has_tensor_caps()) return caps;
  GstStructure* ours = groups_of(declared, {});
  if (ours == nullptr) return caps;
  const gchar* group = group_of(declared).c_str();
  caps = gst_caps_make_writable(caps);
  for (guint i = gst_caps_get_size(caps); i > 0; --i) {
    GstStructure* structure = gst_caps_get_structure(caps, i - 1);
    GstStructure* asked = tensors_in(structure);
    if (asked == nullptr) continue;
    const GValue* wanted = gst_structure_get_value(asked, group);
    const bool fits = wanted == nullptr || gst_value_can_intersect(wanted, gst_structure_get_value(ours, group)) != 0;
    gst_structure_remove_field(asked, group);
    if (gst_structure_n_fields(asked) == 0) {
      gst_structure_remove_field(structure, field_name);
    } else {
      gst_structure_set(structure, field_name, GST_TYPE_STRUCTURE, asked, nullptr);
    }
    gst_structure_free(asked);
    if (!fits) gst_caps_remove_structure(caps, i - 1);
  }
  gst_structure_free(ours);
  return caps;
}

}  // namespace gpumap::gst
