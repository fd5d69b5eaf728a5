// SPDX-License-Identifier: MIT
// How fast a CPU stores into slots, by size, store kernel and threads, and how fast it stores elsewhere. What others do
// to bring a frame into GPU memory is in mode frame.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "paths.hpp"

namespace bench {
namespace {

constexpr std::size_t line = 64;
constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;
constexpr std::size_t hd_bytes = 3'110'400;

/// The shortest loops that store past the caches, with no head, no tail and no choice: what the library is held
/// against. Whole 64-byte lines, all aligned to 64 at both ends.
struct BareStore {
  std::string_view name;
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);
};

#if defined(__x86_64__)

void copy_sse2(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at + line <= bytes; at += line) {
    const auto* in = reinterpret_cast<const __m128i*>(from + at);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(out + i, _mm_load_si128(in + i));
  }
}

__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at + line <= bytes; at += line) {
    const auto* in = reinterpret_cast<const __m256i*>(from + at);
    auto* out = reinterpret_cast<__m256i*>(to + at);
    _mm256_stream_si256(out, _mm256_load_si256(in));
    _mm256_stream_si256(out + 1, _mm256_load_si256(in + 1));
  }
}

__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at + line <= bytes; at += line) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_load_si512(from + at));
  }
}

// As libc's memcpy on many CPUs.
void copy_movsb(std::byte* to, const std::byte* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

/// Those that this CPU runs.
std::vector<BareStore> bare_stores() {
  std::vector<BareStore> stores{{"movsb", copy_movsb}, {"sse2", copy_sse2}};
  if (__builtin_cpu_supports("avx2") != 0) stores.push_back({"avx2", copy_avx2});
  if (__builtin_cpu_supports("avx512f") != 0) stores.push_back({"avx512", copy_avx512});
  return stores;
}
#else
std::vector<BareStore> bare_stores() {
  return {};
}
#endif

/// A way of moving bytes between host memory and GPU memory, one copy at a time.
struct Way {
  std::string path;
  unsigned threads = 1;
  bool rival = false;
  /// Copies Ways::bytes; the offsets are into the source, or what takes its place, and into the destination.
  std::function<void(std::size_t from, std::size_t to)> copy{};
  /// Brings what was copied to ordinary memory, to be compared with the source.
  std::function<void(std::size_t to, std::span<std::byte> back)> fetch{};
  /// For what does not start in the source: puts those bytes where it does start. Only before a comparison.
  std::function<void(std::size_t from)> prepare{};
  std::string detail{};
  bool warm = false;
  std::size_t max_bytes = ~std::size_t{0};
};

class Ways {
 public:
  /// Destinations lie in regions of `region_bytes`: more than the caches hold, as a ring of slots does.
  Ways(const Context& context, Source& origin, Copiers& copiers, std::size_t region_bytes)
      : source_(origin), slots_(context.allocate(gpumap::Placement::bar, region_bytes)), host_(region_bytes) {
    for (const std::string_view name : gpumap::store_kernel_names()) {
      kernels_.push_back(std::make_unique<gpumap::Copier>(
          gpumap::CopierOptions{.threads = 1, .kernel = std::string(name), .pci_address = {}}));
    }
    const auto fetch = [this](std::size_t to, std::span<std::byte> back) {
      std::memcpy(back.data(), host_.data() + to, back.size());
    };
    for (const bool warm : {true, false}) {
      for (const Copiers::Of& of : copiers.all) {
        add_stores("bar", of.threads, false, warm,
                   [copier = of.copier.get()](auto... arguments) { copier->copy(arguments...); });
      }
      for (std::size_t i = 0; i < kernels_.size(); ++i) {
        add_stores(fmt::format("bar, {}", gpumap::store_kernel_names()[i]), 1, false, warm,
                   [copier = kernels_[i].get()](auto... arguments) { copier->copy(arguments...); });
      }
      for (const BareStore& store : bare_stores()) {
        add_stores(fmt::format("bare loop, {}", store.name), 1, true, warm,
                   [copy = store.copy](std::byte* to, const std::byte* from, std::size_t bytes) {
                     const std::size_t whole = bytes / line * line;
                     copy(to, from, whole);
                     if (whole != bytes) std::memcpy(to + whole, from + whole, bytes - whole);
                   });
      }
      add({.path = "host-to-host memcpy",
           .rival = true,
           .copy = [this](std::size_t from,
                          std::size_t to) { std::memcpy(host_.data() + to, source() + from, bytes_); },
           .fetch = fetch},
          warm);
    }
    constexpr std::size_t patience_bytes = 4096;
    add({.path = "CPU reads of the BAR",
         .copy = [this](std::size_t from,
                        std::size_t to) { std::memcpy(host_.data() + to, slots_->host() + from, bytes_); },
         .fetch = fetch,
         .prepare =
             [this](std::size_t at) {
               gpumap::stream_copy(slots_->host() + at, source() + at, bytes_);
               gpumap::store_fence();
               slots_->flush(at, bytes_);
             },
         .detail = "read back",
         .max_bytes = patience_bytes},
        false);
  }
  Ways(const Ways&) = delete;
  Ways& operator=(const Ways&) = delete;

  [[nodiscard]] const std::vector<Way>& all() const { return all_; }
  [[nodiscard]] std::size_t region_bytes() const { return host_.size(); }
  [[nodiscard]] const std::byte* source() const { return source_.mapping().host(); }
  void set_bytes(std::size_t bytes) { bytes_ = bytes; }

 private:
  void add(Way way, bool warm) {
    way.warm = warm;
    if (way.detail.empty()) way.detail = warm ? "warm" : "cold";
    all_.push_back(std::move(way));
  }
  void add_stores(const std::string& path, unsigned threads, bool rival, bool warm,
                  const std::function<void(std::byte*, const std::byte*, std::size_t)>& store) {
    add({.path = path,
         .threads = threads,
         .rival = rival,
         .copy =
             [this, store](std::size_t from, std::size_t to) {
               store(slots_->host() + to, source() + from, bytes_);
               gpumap::store_fence();
               slots_->flush(to, bytes_);
             },
         .fetch = [this](std::size_t to, std::span<std::byte> back) { slots_->download(to, back); }},
        warm);
  }

  Source& source_;
  std::size_t bytes_ = 0;
  std::shared_ptr<gpumap::Mapping> slots_;
  std::vector<std::byte> host_;
  std::vector<std::unique_ptr<gpumap::Copier>> kernels_;  // one for each store kernel
  std::vector<Way> all_;
};

class Measurement {
 public:
  Measurement(const Context& context, Ways& ways, std::size_t bytes) : ways_(ways), bytes_(bytes) {
    ways.set_bytes(bytes);
    for (const Way& way : ways.all()) {
      if (bytes > way.max_bytes) continue;
      runs_.push_back({.row = {.path = way.path,
                               .detail = way.detail,
                               .bytes = bytes,
                               .threads = way.threads,
                               .rival = way.rival,
                               .rate = true},
                       .visit =
                           [this, &way](std::size_t count, std::vector<std::int64_t>& ns) {
                             const std::int64_t before = cpu_ns();
                             for (std::size_t i = 0; i < count; ++i) ns.push_back(sample(way));
                             return cpu_ns() - before;
                           },
                       .verify = [this, &way] { verify(way); },
                       .warm_up = way.warm ? 3U : 1U});
    }
    turns_ = context.small() ? Turns{.rounds = 2, .budget_ns = 1e6, .least = 4, .most = 2000, .shuffle = true}
                             : Turns{.rounds = 6, .budget_ns = 30e6, .least = 18, .most = 2000, .shuffle = true};
  }

  void measure(ModeReport& report) { run_in_turns(runs_, turns_, report, static_cast<double>(batch())); }

 private:
  /// Small copies are timed many at once: reading the clock takes as long as they do.
  [[nodiscard]] std::size_t batch() const {
    constexpr std::size_t worth_timing = 64 * kib;
    return bytes_ >= worth_timing ? 1 : worth_timing / bytes_;
  }

  [[nodiscard]] std::size_t offset(std::uint64_t n) const {
    const std::size_t stride = (bytes_ + line - 1) / line * line;
    return n % (ways_.region_bytes() / stride) * stride;
  }

  std::int64_t sample(const Way& way) {
    const std::int64_t began = now_ns();
    for (std::size_t i = batch(); i > 0; --i) {
      ++copies_;
      way.copy(way.warm ? 0 : offset(copies_), offset(copies_));
    }
    return now_ns() - began;
  }

  void verify(const Way& way) {
    std::vector<std::byte> back(bytes_);
    const std::size_t from = offset(++copies_);
    const std::size_t to = offset(copies_ + 1);
    if (way.prepare) way.prepare(from);
    way.copy(from, to);
    way.fetch(to, back);
    if (std::memcmp(back.data(), ways_.source() + from, bytes_) == 0) return;
    throw std::runtime_error(
        fmt::format("{} with {} threads changed bytes of {} on the way; no figure of this run counts", way.path,
                    way.threads, bytes_));
  }

  Ways& ways_;
  std::size_t bytes_;
  std::vector<Run> runs_;
  Turns turns_;
  std::uint64_t copies_ = 0;
};

double gb_per_s(const Row& row) {
  return row.time.median_us > 0 ? static_cast<double>(row.bytes) / row.time.median_us / 1e3 : 0;
}

void judge(Context& context, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.path != "bar") continue;
    const bool warm_alone = row.detail == "warm" && row.threads == 1;
    if (warm_alone && row.bytes >= 64 * kib) {
      double bare = 0;
      double host = 0;
      for (const Row& other : rows) {
        if (other.bytes != row.bytes || other.detail != row.detail) continue;
        if (other.path.rfind("bare loop", 0) == 0) bare = std::max(bare, gb_per_s(other));
        if (other.path == "host-to-host memcpy") host = gb_per_s(other);
      }
      const auto add = [&](const char* against, double rival) {
        if (rival <= 0) return;
        context.targets.push_back({fmt::format("stores of {} bytes, 1 thread, warm, over {}", row.bytes, against),
                                   gb_per_s(row) / rival, Target::Limit::at_least, 0.97});
      };
      add("the best bare loop", bare);
      add("host-to-host memcpy", host);
    }
    if (warm_alone && row.bytes == 4 * kib) {
      context.targets.push_back({"GB/s of 4 KiB stores, 1 thread, warm", gb_per_s(row), Target::Limit::at_least, 12.5});
    }
    if (row.detail == "cold" && row.threads == 4 && row.bytes >= hd_bytes) {
      context.targets.push_back({fmt::format("GB/s of stores of {} bytes, 4 threads, cold", row.bytes), gb_per_s(row),
                                 Target::Limit::at_least, 30});
    }
  }
}

}  // namespace

void run_bw(Context& context, ModeReport& report) {
  const bool small = context.small();
  const auto sizes = context.sizes(small ? std::vector<std::size_t>{64, 4 * kib, 64 * kib, mib}
                                         : std::vector<std::size_t>{64, 256, kib, 4 * kib, 16 * kib, 64 * kib,
                                                                    256 * kib, mib, hd_bytes, 12'441'600, 64 * mib});
  const auto threads = context.threads(small ? std::vector<unsigned>{1, 2} : std::vector<unsigned>{1, 2, 4, 8});
  const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());

  // More than the caches hold, and no more than half of what the window has left.
  const std::size_t wished = (small ? 8 : 256) * mib;
  const std::size_t region = std::max((largest + line - 1) / line * line,
                                      std::min<std::size_t>(wished, context.device->window_free_bytes() / 2));
  Source source(context, region);
  Copiers copiers(context, threads);
  Ways ways(context, source, copiers, region);
  report.what =
      "one copy: 'cold' from a source that no cache holds, 'warm' from the same bytes each time, until the CPU's fence";
  report.extra["choices"] = nlohmann::json::array();
  for (const std::size_t bytes : sizes) {
    for (const Copiers::Of& of : copiers.all) {
      const gpumap::Copier::Plan plan = of.copier->plan_for(bytes);
      report.extra["choices"].push_back({{"path", "bar"},
                                         {"threads", of.threads},
                                         {"bytes", bytes},
                                         {"choice", fmt::format("{}, {} threads", plan.kernel, plan.threads)}});
    }
    Measurement(context, ways, bytes).measure(report);
  }
  judge(context, report.rows);
  report.extra["region_bytes"] = region;
  report.not_measured = {"when the last store reaches GPU memory: see frame, whose clock ends with a kernel",
                         "several GPUs, or other traffic on the same PCIe link",
                         "copies shorter than a clock read one by one: those below 64 KiB are timed in batches, and "
                         "their figures, P99.9 and the maximum too, are of a batch's time over its copies"};
}

}  // namespace bench
