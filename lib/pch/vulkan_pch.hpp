// SPDX-License-Identifier: MIT
//
// Precompiled for the files of lib/ that make Vulkan calls, see standard.hpp.
#include <vulkan/vulkan_raii.hpp>

#include "standard.hpp"
