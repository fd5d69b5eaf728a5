// SPDX-License-Identifier: MIT
#include "gst/gst_error.hpp"

#include <cstdint>
#include <string>
#include <variant>

#include "gpumap/printable.hpp"
#include "gst/ptr.hpp"

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
    case ErrorCode::no_resources:
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
    case ErrorCode::busy:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_BUSY};
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

/// What a program reads instead of the text; transfer full.
GstStructure* details_of(const Error& error) {
  GstStructure* details = gst_structure_new("gpumap-error", "code", G_TYPE_STRING, to_string(error.code()), "cause",
                                            G_TYPE_STRING, message_of(error.cause()).c_str(), "remedy", G_TYPE_STRING,
                                            message_of(remedy_of(error)).c_str(), nullptr);
  for (const auto& [name, figure] : figures_of(error)) {
    if (const auto* text = std::get_if<std::string>(&figure)) {
      gst_structure_set(details, name, G_TYPE_STRING, message_of(*text).c_str(), nullptr);
    } else {
      gst_structure_set(details, name, G_TYPE_UINT64, static_cast<guint64>(std::get<std::uint64_t>(figure)), nullptr);
    }
  }
  return details;
}

void post(GstElement* element, GstMessageType type, const Error& error, const Code& code) {
  const SourcePlace& where = error.where();
  gst_element_message_full_with_details(element, type, code.domain, code.code,
                                        g_strdup(message_of(error.what()).c_str()), nullptr, where.file, where.function,
                                        static_cast<gint>(where.line), details_of(error));
}

}  // namespace

void post_error(GstElement* element, const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (ours == nullptr) return post_error(element, Error(ErrorCode::io, error.what()));
  post(element, GST_MESSAGE_ERROR, *ours, code_of(ours->code()));
}

void post_warning(GstElement* element, const Error& warning, std::optional<GstResourceError> code) {
  post(element, GST_MESSAGE_WARNING, warning, code ? Code{GST_RESOURCE_ERROR, *code} : code_of(warning.code()));
}

void post_info(GstElement* element, GQuark domain, gint code, std::string_view text) {
  const std::string told = message_of(text);
  GError* info = g_error_new_literal(domain, code, told.c_str());
  const Ptr<gchar> name(gst_object_get_name(GST_OBJECT_CAST(element)));
  const std::string named = std::string(name.get()) + ": " + told;
  gst_element_post_message(element, gst_message_new_info(GST_OBJECT_CAST(element), info, named.c_str()));
  g_error_free(info);
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
  post_warning(element, FiguredError(Error(ErrorCode::invalid, set + " has no effect without socket-path",
                                           "set socket-path as well, or leave it out"),
                                     {{"properties", set}}));
}

}  // namespace gpumap::gst
