// SPDX-License-Identifier: MIT
// The name by which VkFFT 1.2 asks for it.
#include "../../glslang_c_interface.h"
