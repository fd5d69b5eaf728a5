// SPDX-License-Identifier: MIT
#include "gpumap/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/file.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gpumap/printable.hpp"
#include "gpumap/thread_schedule.hpp"
#include "kernel/load_kernel.hpp"
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
      {"function", settings.function},           {"declare", settings.declare},
      {"include-path", settings.include_path},   {"defines", settings.defines},
      {"reload", settings.reload ? "true" : ""}, {"check-bounds", settings.check_bounds ? "true" : ""},
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

/// What the file's lines say, and the property `declare` in their place.
Declaration lines_of(const KernelSource& source, const std::string& declare) {
  const bool has_lines = source.language == Language::cuda || source.language == Language::glsl;
  try {
    return parse_declaration(has_lines ? source.code : std::string_view(), declare);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("kernel {}: {}", source.name, error.what()));
  }
}

/// The kernel in a file, with what it and the properties declare.
void plan_file(KernelPlan& plan, const KernelSettings& settings) {
  plan.source = file_of(settings);
  plan.declaration = lines_of(plan.source, settings.declare);
  if (!settings.function.empty()) {
    try {
      plan.declaration.functions = parse_functions(settings.function);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("function: {}", error.what()));
    }
  }
  declare_launch(plan.source, plan.declaration);
}

/// Whether the kernel is to stay on the GPU. Throws Error(not_supported) where it must and cannot.
void plan_to_stay(KernelPlan& plan, Backend backend, KernelMode mode) {
  if (mode == KernelMode::launch) return;
  try {
    if (!traits_of(backend).stays) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("kernel {} cannot stay on the GPU: that is CUDA's, and it runs in {}: use mode=launch, "
                              "or give a kernel for CUDA",
                              plan.source.name, to_string(backend)));
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
    plan_file(plan, settings);
  }
  const KernelSource& source = plan.source;
  const Backend backend = backend_of(source.language);
  if (settings.backend.value_or(backend) != backend) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("location={} is for {}, and backend is {}: leave backend out, or give a {} file", settings.location,
                    to_string(backend), to_string(*settings.backend), traits_of(*settings.backend).files));
  }
  if (!device.has(backend)) {
    throw Error(ErrorCode::not_supported,
                fmt::format("{} needs {}, which {} does not have here: {}, or {}", source.name, to_string(backend),
                            name_of(device.info()),
                            settings.location.empty()
                                ? "leave backend out"
                                : fmt::format("give a {} file", traits_of(device.default_backend()).files),
                            traits_of(backend).remedy));
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
    declaration = lines_of(load_kernel_file(settings.location), settings.declare);
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
  plan_file(plan, settings);
  return std::move(plan.declaration);
}

std::unique_ptr<Tables> tables_of(const KernelPlan& plan, const std::shared_ptr<Device>& device,
                                  const std::atomic<bool>* given_up) {
  if (plan.declaration.tables.empty()) return nullptr;
  return std::make_unique<Tables>(device, backend_of(plan.source.language), plan.source.name, plan.declaration.tables,
                                  given_up);
}

namespace {

Language language_of(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".cu") return Language::cuda;
  if (extension == ".ptx") return Language::ptx;
  if (extension == ".cubin") return Language::cubin;
  if (extension == ".comp") return Language::glsl;
  if (extension == ".spv") return Language::spirv;
  throw Error(ErrorCode::invalid,
              fmt::format("kernel file {}: unknown extension '{}': use .cu, .ptx or .cubin for CUDA, .comp or .spv "
                          "for Vulkan",
                          path.string(), extension));
}

/// `code` of `path` as compilers read it: they end at a NUL. A byte order mark would hide what the first line declares.
std::string text_of(std::string code, const std::filesystem::path& path) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (code.starts_with(byte_order_mark)) code.erase(0, byte_order_mark.size());
  while (!code.empty() && code.back() == '\0') code.pop_back();  // as of a C string that was written with its end
  const std::size_t nul = code.find('\0');
  if (nul == code.npos) return code;
  throw Error(ErrorCode::invalid,
              fmt::format("kernel file {}: byte {} of its text is 0: save it as text in UTF-8", path.string(), nul));
}

}  // namespace

KernelSource load_kernel_file(const std::filesystem::path& path, std::string function) {
  const Language language = language_of(path);
  // Looked at first: to open a pipe waits for who writes into it, and a device may have no end.
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    throw Error(ErrorCode::open_read, fmt::format("kernel file {}: is a {}: name a file", path.string(),
                                                  is_folder ? "directory" : "pipe or a device"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int cause = errno;
    throw Error(cause == ENOENT ? ErrorCode::not_found : ErrorCode::open_read,
                fmt::format("kernel file {}: {}: {}", path.string(), std::strerror(cause),
                            remedy_where_closed(cause, "the path")));
  }
  std::optional<std::string> code = read_to_end(file);
  if (!code) {
    throw Error(
        ErrorCode::open_read,
        fmt::format("kernel file {}: cannot be read to its end, or has more than {} MiB: check the file and its disk",
                    path.string(), most_file_bytes >> 20U));
  }
  const bool is_text = language == Language::cuda || language == Language::ptx || language == Language::glsl;
  if (is_text) code = text_of(*std::move(code), path);
  if (code->empty()) {
    throw Error(ErrorCode::invalid, fmt::format("kernel file {}: is empty: write a kernel into it", path.string()));
  }
  return {.language = language,
          .name = path.string(),
          .code = *std::move(code),
          .function = std::move(function),
          .defines = {},
          .include_folders = {}};
}

using namespace std::chrono_literals;

struct KernelReload::Job {
  [[nodiscard]] News compile() const {
    News news;
    try {
      news.plan = plan_of(settings, *device);
      if (check) check(news.plan);
      // What loads code waits likewise, and nobody ends that: so does who stops a kernel that does not end, and whose
      // file was just made better.
      if (const auto* gpu = dynamic_cast<const GpuDevice*>(device.get()); gpu != nullptr && gpu->cuda() != nullptr) {
        gpu->cuda()->wait_while_stuck(patience_to_load, &ends);
      }
      if (ends) return news;
      auto program = Program::load(device, news.plan, settings.mode);
      news.tables = tables_of(news.plan, device, &ends);
      news.program = std::move(program);  // last: without one the rest counts for nothing
    } catch (const std::exception& error) {
      news.problem = fmt::format("{}: keeping the previous kernel", error.what());
    }
    return news;
  }

  std::shared_ptr<Device> device;
  KernelSettings settings;
  PlanCheck check;
  std::atomic<bool> ends{false};  ///< nobody wants what is compiled any more
};

KernelReload::KernelReload(std::shared_ptr<Device> device, KernelSettings settings, PlanCheck check)
    : job_(new Job{std::move(device), std::move(settings), std::move(check)}),
      compiled_(FileStamp::of(job_->settings.location)),
      runs_(compiled_) {}

KernelReload::~KernelReload() {
  job_->ends = true;
  if (!thread_.joinable()) return;
  if (compiling_.wait_for(patience_at_end) == std::future_status::ready) {
    // Ends: it is ready.
    thread_.join();
    return;
  }
  std::fprintf(stderr, "gpumap: kernel %s still compiles, and nobody waits for it any more\n",
               printable(job_->settings.location).c_str());
  thread_.detach();
}

std::optional<KernelReload::News> KernelReload::poll() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return {};
  next_look_ = now + 100ms;
  if (compiling_.valid()) {
    if (compiling_.wait_for(0s) != std::future_status::ready) return {};
    polled_ = compiled_;
    // Ends: it is ready.
    thread_.join();
    // Ends: likewise.
    return compiling_.get();
  }
  const std::optional<FileStamp> before = std::exchange(seen_, FileStamp::of(job_->settings.location));
  // A file that is being written changes from one look to the next; one that an editor replaces is missing for a while.
  if (!seen_ || seen_ == compiled_ || seen_ != before) return {};
  compiled_ = seen_;
  std::promise<News> promise;
  std::future<News> coming = promise.get_future();
  try {
    thread_ = start_thread("gpumap-compiler", "compiling",
                           [job = job_, told = std::move(promise)]() mutable { told.set_value(job->compile()); }, {});
  } catch (const Error& error) {
    News news;
    polled_ = compiled_;
    news.problem = fmt::format("{}: keeping the previous kernel", error.what());
    return news;
  }
  compiling_ = std::move(coming);
  return {};
}

}  // namespace gpumap
