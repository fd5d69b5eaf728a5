// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_caps.hpp"

#include <algorithm>
#include <cmath>

#include "gst/kernel/converted_caps.hpp"
#include "gst/kernel/tensor_caps.hpp"
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

}  // namespace gpumap::gst
