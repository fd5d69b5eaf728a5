// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>

#include "copy/calibration.hpp"
#include "copy/helpers.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"
#include "gpumap/thread_schedule.hpp"
#include "own_process.hpp"

namespace gpumap {
namespace {

using copy::SizePlan;
static_assert(std::atomic<SizePlan>::is_always_lock_free);

// More have never paid. Over PCIe Gen5 four do, into a BAR: see threads_that_pay().
constexpr unsigned max_threads_measured = 8;
constexpr unsigned max_threads = 64;

/// What was measured in this process.
struct Measured {
  std::mutex mutex;
  std::map<std::string, copy::Plans, std::less<>> plans;
};
Measured& measured() {
  static auto* const all = new Measured;
  return *all;
}

/// -1: the best for each size.
int kernel_index(const std::string& option) {
  const auto kernels = copy::usable_kernels();
  const char* environment = std::getenv("GPUMAP_COPY");
  if (option.empty()) {
    if (environment == nullptr || *environment == '\0') return -1;
    return static_cast<int>(&copy::choose(environment) - kernels.data());
  }
  const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k.name == option; });
  if (found != kernels.end()) return static_cast<int>(found - kernels.begin());
  throw Error(ErrorCode::invalid, fmt::format("no store kernel \"{}\" on this CPU: use one of {}, or leave it empty",
                                              option, fmt::join(store_kernel_names(), ", ")));
}

}  // namespace

struct Copier::State {
  explicit State(const CopierOptions& options)
      : asked(options.threads), kernel(kernel_index(options.kernel)), schedule(schedule_of_started()) {
    // The caller runs where it likes, beside the CPUs that were named for the helpers.
    const bool named = !schedule.cpus.empty();
    if (!named) schedule.cpus = copy::helper_cpus(options.pci_address).numbers();
    const auto available = std::max(static_cast<unsigned>(schedule.cpus.size()) + (named ? 1 : 0), 1U);
    limit = std::min({asked != 0 ? asked : max_threads_measured, available, max_threads});
    copy::Plans initial = copy::default_plans(asked != 0 ? limit : 1);
    for (SizePlan& plan : initial) {
      if (kernel >= 0) plan.kernel = static_cast<std::uint8_t>(kernel);
    }
    take(initial);
  }

  /// Copy by these plans, with as many helpers as they name.
  void take(const copy::Plans& all) {
    unsigned threads = 1;
    for (const SizePlan& plan : all) threads = std::max<unsigned>(threads, plan.threads);
    if ((helpers ? helpers->count() : 0) != threads - 1) {
      helpers.reset();
      if (threads > 1) helpers = std::make_unique<copy::Helpers>(threads - 1, schedule);
    }
    for (std::size_t i = 0; i < all.size(); ++i) plans[i].store(all[i], std::memory_order_relaxed);
  }

  [[nodiscard]] auto kernel_of(SizePlan plan) const noexcept { return kernels[plan.kernel].copy; }
  [[nodiscard]] SizePlan plan(std::size_t bytes) const noexcept {
    return plans[copy::class_of(bytes)].load(std::memory_order_relaxed);
  }

  void share(copy::Job job, SizePlan plan) {
    const std::unique_lock lock(mutex, std::try_to_lock);
    copy::Helpers* const crew = lock.owns_lock() && process.here() ? helpers.get() : nullptr;
    unsigned threads = 1;
    if (crew != nullptr) {
      const unsigned most = std::min<unsigned>(plan.threads, crew->count() + 1);
      threads = crew->awake(most - 1) || crew->in_flow() ? most : std::min<unsigned>(most, plan.threads_asleep);
    }
    if (threads > 1) {
      job.cut(threads);
      crew->run(job, threads - 1);
      return;
    }
    const auto began = std::chrono::steady_clock::now();
    job.copy(job.to, job.from, job.bytes);
    if (crew != nullptr) crew->note_end(began);
  }

  const OwnProcess process;
  const std::span<const copy::StoreKernel> kernels = copy::usable_kernels();
  const unsigned asked;
  const int kernel;
  ThreadSchedule schedule;  ///< of the helpers
  unsigned limit = 1;
  std::array<std::atomic<SizePlan>, copy::size_classes> plans;
  std::mutex mutex;  ///< helpers
  std::unique_ptr<copy::Helpers> helpers;
};

Copier::Copier(const CopierOptions& options) : state_(std::make_unique<State>(options)) {}
Copier::~Copier() {
  if (!state_->process.here()) static_cast<void>(state_.release());
}

void Copier::calibrate(std::span<std::byte> scratch, std::string_view key, bool write_combined) {
  State& state = *state_;
  if (!state.process.here()) return;
  const std::lock_guard lock(state.mutex);
  Measured& all = measured();
  // Held while measuring: two at once would measure each other, and with one key the second need not measure.
  const std::lock_guard one_at_a_time(all.mutex);
  const std::string id =
      fmt::format("{} {} {} {} {} {} {} {}", copy::class_of(scratch.size()), state.asked, state.limit, state.kernel,
                  write_combined, state.schedule.priority, fmt::join(state.schedule.cpus, ","), key);
  if (const auto found = all.plans.find(id); !key.empty() && found != all.plans.end()) {
    state.take(found->second);
    return;
  }
  if (!state.helpers || state.helpers->count() != state.limit - 1) {
    state.helpers = std::make_unique<copy::Helpers>(state.limit - 1, state.schedule);
  }
  const copy::Plans plans = copy::measure_plans({scratch, state.kernel, state.asked, write_combined}, *state.helpers);
  state.take(plans);
  if (!key.empty()) all.plans.insert_or_assign(id, plans);
}

void Copier::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  const SizePlan plan = state_->plan(bytes);
  // A few KiB take as long as some hundred instructions: nothing else before their copy.
  if (plan.threads == 1) {
    state_->kernel_of(plan)(to, from, bytes);
    return;
  }
  copy::Job job;
  job.copy = state_->kernel_of(plan);
  job.to = to;
  job.from = from;
  job.bytes = bytes;
  state_->share(job, plan);
}

void Copier::copy(std::span<std::byte> slot, std::size_t at, std::span<const std::byte> from) {
  if (at > slot.size() || from.size() > slot.size() - at) {
    throw FiguredError(
        Error(ErrorCode::invalid,
              fmt::format("{} bytes at offset {} do not fit into a slot of {} bytes", from.size(), at, slot.size()),
              "make slots larger"),
        {{"frame-bytes", at + from.size()}, {"slot-bytes", slot.size()}});
  }
  copy(slot.data() + at, from.data(), from.size());
}

Copier::Plan Copier::plan_for(std::size_t bytes) const {
  const SizePlan plan = state_->plan(bytes);
  return {state_->kernels[plan.kernel].name, plan.threads};
}

}  // namespace gpumap
