// SPDX-License-Identifier: MIT
#include "gst/analytics/library.hpp"

#include <dlfcn.h>

namespace gpumap::gst {

namespace {

constexpr const char* file_name = "libgstanalytics-1.0.so.0";

template <typename Function>
void find(void* library, const char* symbol, Function*& function, std::string& missing) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  if (function == nullptr) missing = missing + " " + symbol;
}

AnalyticsLibrary open_library() {
  AnalyticsLibrary made;
  const auto problem = [](const std::string& what, const char* version) {
    return what + ": install GStreamer " + version + " or newer (libgstreamer-plugins-bad1.0-0)";
  };
  // Its metas stay registered with GStreamer: it must stay too.
  void* library = dlopen(file_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const std::string what = std::string(file_name) + " was not found";
    made.tensors_problem = problem(what, "1.26");
    made.relations_problem = problem(what, "1.24");
    return made;
  }
  std::string tensors, relations;
#define GPUMAP_GST_TENSORS_LOAD(result, name, ...) find(library, #name, made.name, tensors);
  GPUMAP_GST_TENSORS(GPUMAP_GST_TENSORS_LOAD)
#undef GPUMAP_GST_TENSORS_LOAD
#define GPUMAP_GST_RELATIONS_LOAD(result, name, ...) find(library, #name, made.name, relations);
  GPUMAP_GST_RELATIONS(GPUMAP_GST_RELATIONS_LOAD)
#undef GPUMAP_GST_RELATIONS_LOAD
  const std::string lacks = std::string(file_name) + " lacks";
  if (!tensors.empty()) made.tensors_problem = problem(lacks + tensors, "1.26");
  if (!relations.empty()) made.relations_problem = problem(lacks + relations, "1.24");
  return made;
}

}  // namespace

const AnalyticsLibrary& AnalyticsLibrary::get() {
  static const auto* const library = new AnalyticsLibrary(open_library());
  return *library;
}

}  // namespace gpumap::gst
