// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpumap/kernel.hpp"

namespace gpumap {

/// A kernel as PTX declares it.
struct PtxEntry {
  std::string name;
  bool takes_frame = false;  ///< one parameter of the size of gpumap_frame
};

/// The kernels of a PTX text, in order.
[[nodiscard]] std::vector<PtxEntry> ptx_entries(std::string_view ptx);

/// Whether a function is named as C++ does, as in "blur<5>" or "filters::blur", and not as PTX does.
[[nodiscard]] bool is_name_expression(std::string_view function);
/// `ptx` with a line before it that says how the function that was asked for is called in it.
[[nodiscard]] std::string with_lowered_name(std::string_view ptx, std::string_view name);

/// The entry that `source` means: the one named by source.function, or the only one. Throws Error(compile) naming the
/// candidates, or when the kernel does not take one gpumap_frame.
[[nodiscard]] std::string choose_entry(const KernelSource& source, std::string_view ptx);

/// A driver is handed a cubin's address without its length and reads as far as the headers in it say. Throws
/// Error(compile) where that is beyond the end of `source.code`, or where it is neither a cubin nor a fatbin.
void check_cubin(const KernelSource& source);

}  // namespace gpumap
