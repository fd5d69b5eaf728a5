// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_caps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/kernel/converted_caps.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

struct Size {
  gint width = 0, height = 0;
};

/// What `structure` allows that is nearest to `size`, a width, and the height that goes with it by `ratio`, width to
/// height; or the other way around.
Size nearest_size(const GstStructure* structure, Size size, double ratio, bool by_width) {
  const auto rounded = [](double length) {
    return static_cast<gint>(std::clamp(std::lround(length), 1L, long{G_MAXINT}));
  };
  const auto nearest = [&](const char* name, gint wanted) {
    const Ptr<GstStructure> copy(gst_structure_copy(structure));
    gst_structure_fixate_field_nearest_int(copy.get(), name, wanted);
    gint found = wanted;
    gst_structure_get_int(copy.get(), name, &found);
    return found;
  };
  if (by_width) {
    size.width = nearest("width", size.width);
    size.height = nearest("height", rounded(size.width / ratio));
  } else {
    size.height = nearest("height", size.height);
    size.width = nearest("width", rounded(size.height * ratio));
  }
  return size;
}

/// The shape of pixels that `structure` says it has.
double pixel_ratio(const GstStructure* structure) {
  gint width = 1, height = 1;
  gst_structure_get_fraction(structure, "pixel-aspect-ratio", &width, &height);
  return width > 0 && height > 0 ? double(width) / height : 1.0;
}

bool has_fixed_size(const GstStructure* structure) {
  gint ignored = 0;
  return gst_structure_get_int(structure, "width", &ignored) != 0 &&
         gst_structure_get_int(structure, "height", &ignored) != 0;
}

}  // namespace

GstCaps* fixate_size(const DeclaredCaps& declared, const std::string& params, const GstCaps* in, GstCaps* others) {
  const GstStructure* from = gst_caps_get_structure(in, 0);
  const GstStructure* first = gst_caps_get_structure(others, 0);
  Size size;
  if (!gst_structure_get_int(from, "width", &size.width) || !gst_structure_get_int(from, "height", &size.height) ||
      !gst_structure_has_field(first, "width") || !gst_structure_has_field(first, "height") || has_fixed_size(first)) {
    return others;
  }
  if (const auto crop = crop_of(declared, params)) {
    size = {crop->width.shown_of(size.width), crop->height.shown_of(size.height)};
  }
  // The last of its kind leaves most open: those before it hold on to a width or to a height.
  guint chosen = 0;
  for (guint i = 1; i < gst_caps_get_size(others); ++i) {
    if (gst_structure_has_name(gst_caps_get_structure(others, i), gst_structure_get_name(first))) chosen = i;
  }
  GstCaps* one = gst_caps_copy_nth(others, chosen);
  gst_caps_unref(others);
  GstStructure* structure = gst_caps_get_structure(one, 0);
  if (gst_structure_has_field(structure, "pixel-aspect-ratio")) {
    gst_structure_fixate_field_nearest_fraction(structure, "pixel-aspect-ratio", 1, 1);
  }
  const double ratio = size.width * pixel_ratio(from) / (size.height * pixel_ratio(structure));
  const auto distortion = [&](const Size& of) { return std::abs(std::log(of.width / (of.height * ratio))); };
  const Size by_height = nearest_size(structure, size, ratio, false);
  const Size by_width = nearest_size(structure, size, ratio, true);
  size = distortion(by_width) < distortion(by_height) ? by_width : by_height;
  gst_structure_set(structure, "width", G_TYPE_INT, size.width, "height", G_TYPE_INT, size.height, nullptr);
  return one;
}

void fixate_rate(GstCaps* others, const GstCaps* in) {
  gint rate = 0;
  if (!gst_structure_get_int(gst_caps_get_structure(in, 0), "rate", &rate)) return;
  for (guint i = 0; i < gst_caps_get_size(others); ++i) {
    GstStructure* structure = gst_caps_get_structure(others, i);
    if (gst_structure_has_name(structure, "audio/x-raw")) {
      gst_structure_fixate_field_nearest_int(structure, "rate", rate);
    }
  }
}

namespace {

/// Tensors that go with the frames apart.
GstCaps* transform_frame_caps(const DeclaredCaps& declared, const std::string& params, GstPadDirection direction,
                              GstCaps* caps) {
  if (declared.converted) return transform_converted_caps(declared, params, direction, caps);
  if (!declared.empty()) return transform_declared_caps(declared, params, direction, caps);
  if (gst_caps_is_any(caps)) return gst_caps_ref(caps);
  // System memory at the input, too: a tee may leave only that of frames that lie in GPU memory. Of others the first
  // frame can say what is missing, a link that fails cannot.
  return in_either_memory(caps);
}

}  // namespace

GstCaps* transform_kernel_caps(const DeclaredCaps& declared, const std::string& params, GstPadDirection direction,
                               GstCaps* caps) {
  if (direction == GST_PAD_SINK) {
    return with_tensors(declared, caps, transform_frame_caps(declared, params, direction, caps));
  }
  const Ptr<GstCaps> asked(without_tensors(declared, gst_caps_ref(caps)));
  return transform_frame_caps(declared, params, direction, asked.get());
}
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
