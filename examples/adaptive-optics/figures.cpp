// SPDX-License-Identifier: MIT
#include "figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <stdexcept>

namespace adaptive_optics {

namespace {

constexpr std::int64_t tick_ns = 100;

std::ofstream open(const std::filesystem::path& file) {
  std::ofstream out(file);
  if (!out) throw std::runtime_error("cannot write " + file.string());
  return out;
}

void close(std::ofstream& out, const std::filesystem::path& file) {
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

double in_us(std::int64_t tick) {
  return static_cast<double>(tick * tick_ns) / 1000;
}

}  // namespace

void Latencies::add(std::int64_t ns) {
  ++counts_[(ns + tick_ns / 2) / tick_ns];
  ++count_;
  max_ns_ = std::max(max_ns_, ns);
  const double difference = static_cast<double>(ns) - mean_ns_;
  mean_ns_ += difference / static_cast<double>(count_);
  squares_ += difference * (static_cast<double>(ns) - mean_ns_);
}

double Latencies::percentile(double share) const {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (const auto& [tick, count] : counts_) {
    seen += count;
    if (seen >= wanted) return in_us(tick);
  }
  return 0;
}

double Latencies::jitter() const {
  return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_)) / 1000;
}

std::uint64_t Latencies::above(double us) const {
  std::uint64_t more = 0;
  for (const auto& [tick, count] : counts_) {
    if (in_us(tick) > us) more += count;
  }
  return more;
}

void Latencies::write(const std::filesystem::path& file) const {
  constexpr double width = 1.02;
  std::map<long, std::uint64_t> columns;
  for (const auto& [tick, count] : counts_) {
    columns[std::lround(std::log(in_us(std::max<std::int64_t>(tick, 1))) / std::log(width))] += count;
  }
  std::ofstream out = open(file);
  for (const auto& [column, count] : columns) {
    out << fmt::format("{:.4g} {}\n", std::pow(width, static_cast<double>(column)), count);
  }
  close(out, file);
}

void Wavefronts::add(std::uint64_t frame, const Wavefront& wavefront) {
  if (frame >= next_) {
    points_.push_back({.frame = frame, .wavefront = wavefront});
    next_ = frame + 1 + frame / 200;
  }
  if (frame < closing) return;
  ++count_;
  residuals_ += double{wavefront.residual} * wavefront.residual;
  airs_ += double{wavefront.of_air} * wavefront.of_air;
}

double Wavefronts::residual() const {
  return count_ == 0 ? 0 : std::sqrt(residuals_ / static_cast<double>(count_));
}

double Wavefronts::of_air() const {
  return count_ == 0 ? 0 : std::sqrt(airs_ / static_cast<double>(count_));
}

void Wavefronts::write(const std::filesystem::path& file) const {
  std::ofstream out = open(file);
  for (const auto& [frame, wavefront] : points_) {
    // From 1 on: the axis is logarithmic.
    out << fmt::format("{} {:.5g} {:.5g}\n", frame + 1, wavefront.of_air, wavefront.residual);
  }
  close(out, file);
}

}  // namespace adaptive_optics
