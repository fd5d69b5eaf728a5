// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "gpumap/kernel.hpp"

namespace gpumap {

/// A built-in is compiled once in a process and for each target: compiling it anew at every start of a pipeline costs
/// 70 ms or more. A user's source is not kept: it may include files that change.
template <typename Result, typename Compile>
Result compiled_once(const KernelSource& source, const std::string& target, Compile&& compile) {
  const Builtin* builtin = find_builtin(source.name);
  if (builtin == nullptr || source.code != (source.language == Language::cuda ? builtin->cuda : builtin->glsl)) {
    return compile();
  }
  static std::mutex mutex;
  static auto* const results = new std::map<std::string, Result>;  // lives as long as the process
  const std::lock_guard lock(mutex);
  const std::string key = source.name + ' ' + target;
  const auto known = results->find(key);
  if (known != results->end()) return known->second;
  return results->emplace(key, compile()).first->second;
}

}  // namespace gpumap
