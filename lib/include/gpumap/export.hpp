// SPDX-License-Identifier: MIT
// What the shared library exports. It is compiled with hidden visibility: of what is declared here or in lib/, only
// what carries GPUMAP_API can be linked with.
#pragma once

/// A function, or a class with all its members, its virtual table and its type information: an exception or a
/// dynamic_cast crosses the library's border only with these.
#define GPUMAP_API [[gnu::visibility("default")]]

/// A type within an exported class that is not exported with it.
#define GPUMAP_NO_EXPORT [[gnu::visibility("hidden")]]
