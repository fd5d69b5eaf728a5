// SPDX-License-Identifier: MIT
#include "gpumap/kernel_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpumap/error.hpp"
#include "kernel/resident/resident_source.hpp"

namespace gpumap {

const Builtin* builtin_of(const KernelSettings& settings) {
  if (!settings.location.empty()) {
    if (settings.kernel == KernelSettings().kernel) return nullptr;
    throw Error(ErrorCode::invalid, fmt::format("kernel={} and location={} are both set: leave one of them out",
                                                settings.kernel, settings.location));
  }
  const Builtin* builtin = find_builtin(settings.kernel);
  if (builtin == nullptr) {
    std::string names;
    for (const Builtin& known : builtins()) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
    throw Error(
        ErrorCode::invalid,
        fmt::format("no built-in kernel \"{}\": choose one of {}, or set location to a file", settings.kernel, names));
  }
  // What is for files alone.
  const std::pair<const char*, std::string> of_files[] = {
      {"function", settings.function},
      {"block", settings.block},
      {"grid", settings.grid},
      {"shared-bytes", settings.shared_bytes != 0 ? std::to_string(settings.shared_bytes) : ""},
      {"state-bytes", settings.state_bytes != 0 ? std::to_string(settings.state_bytes) : ""},
      {"tables", settings.tables},
      {"history", settings.history != 0 ? std::to_string(settings.history) : ""},
      {"input-caps", settings.input_caps},
      {"output-caps", settings.output_caps},
      {"output-bytes", settings.output_bytes},
      {"output-may", settings.output_may},
      {"result-words", settings.result_words != 0 ? std::to_string(settings.result_words) : ""},
      {"include-path", settings.include_path},
      {"defines", settings.defines},
      {"reload", settings.reload ? "true" : ""},
      {"check-bounds", settings.check_bounds ? "true" : ""},
  };
  for (const auto& [property, value] : of_files) {
    if (value.empty()) continue;
    throw Error(ErrorCode::invalid, fmt::format("{}={} is for a kernel of yours in a file, and kernel={} is built in: "
                                                "set location, or leave {} out",
                                                property, value, settings.kernel, property));
  }
  return builtin;
}

namespace {

/// The file as the properties want it compiled.
KernelSource file_of(const KernelSettings& settings) {
  KernelSource source = load_kernel_file(settings.location);
  if (!settings.defines.empty()) source.defines = parse_names(settings.defines);
  for (std::size_t at = 0; at < settings.include_path.size();) {
    const std::size_t end = std::min(settings.include_path.find(':', at), settings.include_path.size());
    if (end != at) source.include_folders.emplace_back(settings.include_path.substr(at, end - at));
    at = end + 1;
  }
  return source;
}

/// What the file's lines say.
Declaration lines_of(const KernelSource& source) {
  if (source.language != Language::cuda && source.language != Language::glsl) return {};
  try {
    return parse_declaration(source.code);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("kernel {}: {}", source.name, error.what()));
  }
}

/// Parse the text of a property; what is wrong with it is said of that.
template <typename Parse>
auto property(const char* name, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", name, error.what()));
  }
}

/// What properties say comes before what the file does.
void apply_properties(KernelPlan& plan, const KernelSettings& settings) {
  Declaration& declaration = plan.declaration;
  if (!settings.function.empty()) declaration.functions = property("function", settings.function, parse_functions);
  if (!settings.block.empty()) declaration.block = property("block", settings.block, parse_dimensions);
  if (!settings.grid.empty()) declaration.grid = property("grid", settings.grid, parse_dimensions);
  if (settings.shared_bytes != 0) declaration.shared_bytes = settings.shared_bytes;
  if (settings.state_bytes != 0) declaration.state_bytes = settings.state_bytes;
  if (settings.history != 0) declaration.history = settings.history;
  if (!settings.input_caps.empty()) declaration.input = settings.input_caps;
  if (!settings.output_caps.empty()) {
    property("output-caps", settings.output_caps, [&](const std::string& text) {
      declare_output(declaration, text);
      check_view(declaration);
    });
  }
  if (!settings.output_bytes.empty()) declaration.output_bytes = settings.output_bytes;
  if (!settings.output_may.empty()) {
    declaration.output_may = property("output-may", settings.output_may, parse_output_may);
  }
  if (settings.result_words != 0) {
    property("result-words", std::to_string(settings.result_words), [&](const std::string& /*text*/) {
      declare_result_words(declaration, settings.result_words);
      check_results(declaration);
    });
  }
  declare_launch(plan.source, declaration);
}

/// Whether the kernel is to stay on the GPU. Throws Error(not_supported) where it must and cannot.
void plan_to_stay(KernelPlan& plan, Backend backend, KernelMode mode) {
  if (mode == KernelMode::launch) return;
  try {
    if (backend != Backend::cuda) {
      throw Error(
          ErrorCode::not_supported,
          fmt::format("kernel {} cannot stay on the GPU: that is CUDA's, and it runs in Vulkan: use mode=launch, "
                      "or give a kernel for CUDA",
                      plan.source.name));
    }
    if (plan.builtin != nullptr && plan.builtin->make_program != nullptr) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("kernel {} cannot stay on the GPU: it is several kernels, and calculates between them: "
                              "use mode=launch",
                              plan.source.name));
    }
    static_cast<void>(resident_source(plan.source, {}));
    plan.resident = true;
  } catch (const Error& error) {
    if (mode == KernelMode::resident) throw;
    plan.why_launched = error.what();
  }
}

}  // namespace

KernelPlan plan_of(const KernelSettings& settings, const Device& device) {
  KernelPlan plan;
  plan.guarded = settings.check_bounds;
  plan.builtin = builtin_of(settings);
  if (plan.builtin != nullptr) {
    plan.source = source_of(*plan.builtin, settings.backend.value_or(device.default_backend()));
    plan.declaration = declaration_of(*plan.builtin);
  } else {
    plan.source = file_of(settings);
    plan.declaration = lines_of(plan.source);
    apply_properties(plan, settings);
  }
  const KernelSource& source = plan.source;
  const Backend backend = backend_of(source.language);
  const bool cuda = backend == Backend::cuda;
  if (settings.backend.value_or(backend) != backend) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("location={} is for {}, and backend is {}: leave backend out, or give a {} file", settings.location,
                    to_string(backend), to_string(*settings.backend), cuda ? ".comp or .spv" : ".cu, .ptx or .cubin"));
  }
  if (!device.has(backend)) {
    throw Error(ErrorCode::not_supported,
                fmt::format("{} needs {}, which {} does not have here: {}", source.name, to_string(backend),
                            name_of(device.info()),
                            !cuda                       ? "install a Vulkan driver for it"
                            : settings.location.empty() ? "leave backend out, or install the NVIDIA driver"
                                                        : "give a compute shader (.comp or .spv), or install the "
                                                          "NVIDIA driver"));
  }
  plan_to_stay(plan, backend, settings.mode);
  return plan;
}

std::optional<std::vector<DeclaredParameter>> parameters_of(const KernelSettings& settings) {
  Declaration declaration;
  if (settings.location.empty()) {
    const Builtin* builtin = find_builtin(settings.kernel);
    if (builtin == nullptr) return std::vector<DeclaredParameter>();
    declaration = declaration_of(*builtin);
  } else {
    declaration = lines_of(load_kernel_file(settings.location));
  }
  if (declaration.params.empty() && !declaration.takes_none) return std::nullopt;
  return std::move(declaration.params);
}

Declaration declaration_of(const KernelSettings& settings) {
  if (settings.location.empty()) {
    const Builtin* builtin = find_builtin(settings.kernel);
    return builtin != nullptr ? declaration_of(*builtin) : Declaration();
  }
  KernelPlan plan;
  plan.declaration = lines_of(load_kernel_file(settings.location));
  apply_properties(plan, settings);
  return std::move(plan.declaration);
}

std::unique_ptr<Tables> tables_of(const KernelPlan& plan, const KernelSettings& settings,
                                  const std::shared_ptr<Device>& device) {
  if (plan.declaration.tables.empty() && settings.tables.empty()) return nullptr;
  return std::make_unique<Tables>(device, backend_of(plan.source.language), plan.source.name, plan.declaration.tables,
                                  settings.tables);
}

}  // namespace gpumap
