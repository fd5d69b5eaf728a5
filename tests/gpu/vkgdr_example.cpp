// SPDX-License-Identifier: MIT
// Apart from the test: cuda.h makes macros of the names by which that calls the driver.
#include "vkgdr_example.hpp"

#if __has_include(<cuda.h>)
#include "gpumap/vkgdr-compat.h"
#endif

namespace gpumap::test {

#ifdef GPUMAP_VKGDR_COMPAT_H
std::string run_vkgdr_example(
    const std::function<void(std::uint64_t a, std::uint64_t b, std::uint64_t c, unsigned count)>& launch) {
  constexpr unsigned count = 64;
  constexpr std::size_t bytes = count * sizeof(float);
  vkgdr_t g = vkgdr_open(0, VKGDR_OPEN_CURRENT_CONTEXT_BIT);
  if (g == nullptr || vkgdr_last_error() != nullptr) return gpumap_last_error();
  vkgdr_memory_t a = vkgdr_memory_alloc(g, bytes, 0);
  vkgdr_memory_t b = vkgdr_memory_alloc(g, bytes, 0);
  vkgdr_memory_t c = vkgdr_memory_alloc(g, bytes, 0);
  if (a == nullptr || b == nullptr || c == nullptr) return gpumap_last_error();
  auto* const host_a = static_cast<float*>(vkgdr_memory_get_host_ptr(a));
  auto* const host_b = static_cast<float*>(vkgdr_memory_get_host_ptr(b));
  auto* const host_c = static_cast<float*>(vkgdr_memory_get_host_ptr(c));
  for (unsigned i = 0; i < count; ++i) {
    host_a[i] = 7.0F * static_cast<float>(i);
    host_b[i] = -3.0F * static_cast<float>(i);
    host_c[i] = 0;
  }
  for (vkgdr_memory_t one : {a, b, c}) vkgdr_memory_flush(one, 0, bytes);
  launch(vkgdr_memory_get_device_ptr(a), vkgdr_memory_get_device_ptr(b), vkgdr_memory_get_device_ptr(c), count);
  vkgdr_memory_invalidate(c, 0, bytes);
  for (unsigned i = 0; i < count; ++i) {
    if (host_c[i] != 4.0F * static_cast<float>(i)) return "element " + std::to_string(i) + " is not the sum";
  }
  for (vkgdr_memory_t one : {a, b, c}) vkgdr_memory_free(one);
  vkgdr_close(g);
  if (vkgdr_open(999, 0) != nullptr) return "device 999 was opened";
  char* const error = vkgdr_last_error();
  const std::string text = error != nullptr ? error : "";
  std::free(error);
  return text.find("999") != std::string::npos ? "" : "the error of device 999 is \"" + text + '"';
}
#else
std::string run_vkgdr_example(
    const std::function<void(std::uint64_t a, std::uint64_t b, std::uint64_t c, unsigned count)>& /*launch*/) {
  return "built without cuda.h, which vkgdr-compat.h includes as vkgdr.h does: examples/install-deps --cuda";
}
#endif

}  // namespace gpumap::test
