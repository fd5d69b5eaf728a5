// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstdio>

#include "copy/store_kernel.hpp"
#include "gpumap/copy.hpp"

namespace gpumap::copy {
namespace {

// What a CPU and its operating system say they have is run as it is: an instruction that a hypervisor names and does
// not let through ends the process.
bool copies_well(const StoreKernel& kernel) {
  constexpr std::size_t guard_bytes = 64;
  constexpr std::size_t max_bytes = 193;  // past two lines at once, the lines that remain, and a tail
  constexpr std::byte guard{0x5a};
  std::array<std::byte, 64 + max_bytes> from{};
  alignas(64) std::array<std::byte, guard_bytes + 64 + max_bytes + guard_bytes> to{};
  unsigned value = 1;
  for (std::byte& byte : from) byte = static_cast<std::byte>((value = value * 1103515245U + 12345U) >> 16U);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65},
                                  std::size_t{130}, max_bytes}) {
    for (const std::size_t shift : {0U, 1U, 16U, 63U}) {
      std::byte* out = to.data() + guard_bytes + shift;
      const std::byte* in = from.data() + (shift * 5 + 3) % 64;
      to.fill(guard);
      kernel.copy(out, in, bytes);
      store_fence();
      const auto is_guard = [](std::byte byte) { return byte == guard; };
      if (!std::equal(out, out + bytes, in) || !std::all_of(to.data(), out, is_guard) ||
          !std::all_of(out + bytes, to.data() + to.size(), is_guard)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::vector<StoreKernel> try_kernels(std::span<const StoreKernel> kernels) {
  std::vector<StoreKernel> usable;
  for (const StoreKernel& kernel : kernels) {
    if (!kernel.available()) continue;
    if (copies_well(kernel)) {
      usable.push_back(kernel);
    } else {
      std::fprintf(stderr, "gpumap: the store kernel %s copied wrongly, doing without\n", kernel.name.data());
    }
  }
  return usable;
}

}  // namespace gpumap::copy
