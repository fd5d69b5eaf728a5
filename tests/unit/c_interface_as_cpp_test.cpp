// SPDX-License-Identifier: MIT
// The same program in C++20.
#include "c_interface_test.c"  // NOLINT(bugprone-suspicious-include)
