// SPDX-License-Identifier: MIT
#include "gst/gst_error.hpp"

#include <algorithm>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"

namespace gpumap::gst {
std::string message_of(std::string_view text) {
  return printable(text, "\n\t");
}

namespace {

struct Code {
  GQuark domain;
  gint code;
};
Code code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::no_driver:
    case ErrorCode::no_device:
    case ErrorCode::not_found:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NOT_FOUND};
    case ErrorCode::no_memory:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NO_SPACE_LEFT};
    case ErrorCode::open_read:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_OPEN_READ};
    case ErrorCode::open_write:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_OPEN_WRITE};
    case ErrorCode::invalid:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS};
    case ErrorCode::not_supported:
      return {GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_FAILED};
    case ErrorCode::compile:
      return {GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_INIT};
    case ErrorCode::device_lost:
    case ErrorCode::io:
      break;
  }
  return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_FAILED};
}

GQuark posted_quark() {
  static const GQuark quark = g_quark_from_static_string("gpumap-posted-error");
  return quark;
}

}  // namespace

void post_error(GstElement* element, const std::exception& error) {
  Code code = code_of(ErrorCode::io);
  SourcePlace where = SourcePlace::here();
  GstStructure* details = nullptr;
  if (const auto* ours = dynamic_cast<const Error*>(&error)) {
    code = code_of(ours->code());
    where = ours->where();
    const std::string cause = ours->cause();
    const std::string remedy =
        std::string(ours->what()).substr(std::min(cause.size() + 2, std::string(ours->what()).size()));
    details =
        gst_structure_new("gpumap-error", "code", G_TYPE_STRING, to_string(ours->code()), "cause", G_TYPE_STRING,
                          message_of(cause).c_str(), "remedy", G_TYPE_STRING, message_of(remedy).c_str(), nullptr);
  }
  gst_element_message_full_with_details(element, GST_MESSAGE_ERROR, code.domain, code.code,
                                        g_strdup(message_of(error.what()).c_str()), nullptr, where.file, where.function,
                                        static_cast<gint>(where.line), details);
}

void post_error_once(GstElement* element, const std::exception& error) {
  const auto* last = static_cast<const gchar*>(g_object_get_qdata(G_OBJECT(element), posted_quark()));
  if (last != nullptr && std::string_view(last) == error.what()) return;
  g_object_set_qdata_full(G_OBJECT(element), posted_quark(), g_strdup(error.what()), g_free);
  post_error(element, error);
}

void forget_errors(GstElement* element) {
  g_object_set_qdata(G_OBJECT(element), posted_quark(), nullptr);
}

bool has_posted_error(GstElement* element) {
  return g_object_get_qdata(G_OBJECT(element), posted_quark()) != nullptr;
}

void post_warning(GstElement* element, const std::string& text, GstResourceError code, const SourcePlace& where) {
  gst_element_message_full(element, GST_MESSAGE_WARNING, GST_RESOURCE_ERROR, code, g_strdup(message_of(text).c_str()),
                           nullptr, where.file, where.function, static_cast<gint>(where.line));
}

void warn_of_idle_properties(GstElement* element, std::initializer_list<const char*> names) {
  std::string set;
  for (const char* name : names) {
    GParamSpec* spec = g_object_class_find_property(G_OBJECT_GET_CLASS(element), name);
    GValue value = G_VALUE_INIT;
    g_object_get_property(G_OBJECT(element), name, &value);
    if (g_param_value_defaults(spec, &value) == 0) set += (set.empty() ? "" : ", ") + std::string(name);
    g_value_unset(&value);
  }
  if (set.empty()) return;
  post_warning(element, set + " has no effect without socket-path: set socket-path as well, or leave it out",
               GST_RESOURCE_ERROR_SETTINGS);
}

}  // namespace gpumap::gst
