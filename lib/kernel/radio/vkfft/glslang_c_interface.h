// SPDX-License-Identifier: MIT
// What VkFFT calls of glslang's C interface, done by gpumap's own compiler: shaderc, and the cache behind it. VkFFT
// includes this file by its name. It stands in for glslang's because Debian 12's VkFFT was written for an older glslang
// than Debian has (another glslang_resource_t), and because a second compiler without a cache would be one too many.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "gpumap/kernel.hpp"

namespace gpumap::vkfft {

/// What went wrong in this thread beneath VkFFT, which is C and can pass on no more than a number.
inline thread_local std::exception_ptr failure;

// What VkFFT sets, and the compiler has settings of its own for.
enum glslang_source_t { GLSLANG_SOURCE_GLSL };
enum glslang_stage_t { GLSLANG_STAGE_COMPUTE };
enum glslang_client_t { GLSLANG_CLIENT_VULKAN };
enum glslang_target_client_version_t { GLSLANG_TARGET_VULKAN_1_0, GLSLANG_TARGET_VULKAN_1_1 };
enum glslang_target_language_t { GLSLANG_TARGET_SPV };
enum glslang_target_language_version_t { GLSLANG_TARGET_SPV_1_0, GLSLANG_TARGET_SPV_1_3 };
enum glslang_profile_t { GLSLANG_NO_PROFILE };
enum glslang_messages_t { GLSLANG_MSG_DEFAULT_BIT, GLSLANG_MSG_SPV_RULES_BIT, GLSLANG_MSG_VULKAN_RULES_BIT };
struct glslang_resource_t {
  int limits[93];
  struct {
    bool rules[9];
  } rules;
};
struct glslang_input_t {
  glslang_source_t language;
  glslang_stage_t stage;
  glslang_client_t client;
  glslang_target_client_version_t client_version;
  glslang_target_language_t target_language;
  glslang_target_language_version_t target_language_version;
  const char* code;
  int default_version;
  glslang_profile_t default_profile;
  int force_default_version_and_profile;
  int forward_compatible;
  glslang_messages_t messages;
  const glslang_resource_t* resource;
};

/// Text that becomes SPIR-V when it is parsed.
struct glslang_shader_t {
  std::string spirv;
};
struct glslang_program_t {
  std::string spirv;
};

inline glslang_shader_t* glslang_shader_create(const glslang_input_t* /*input*/) {
  return new glslang_shader_t;
}
inline void glslang_shader_delete(glslang_shader_t* shader) {
  delete shader;
}
inline int glslang_shader_preprocess(glslang_shader_t* /*shader*/, const glslang_input_t* /*input*/) {
  return 1;
}
inline int glslang_shader_parse(glslang_shader_t* shader, const glslang_input_t* input) {
  try {
    shader->spirv = compile_glsl({.language = Language::glsl,
                                  .name = "VkFFT",
                                  .code = input->code,
                                  .function = "main",
                                  .defines = {},
                                  .include_folders = {}});
    return 1;
  } catch (...) {
    failure = std::current_exception();
    return 0;
  }
}
inline const char* glslang_shader_get_info_log(glslang_shader_t* /*shader*/) {
  return "";
}

inline glslang_program_t* glslang_program_create() {
  return new glslang_program_t;
}
inline void glslang_program_delete(glslang_program_t* program) {
  delete program;
}
inline void glslang_program_add_shader(glslang_program_t* program, glslang_shader_t* shader) {
  program->spirv = shader->spirv;
}
inline int glslang_program_link(glslang_program_t* /*program*/, int /*messages*/) {
  return 1;
}
inline const char* glslang_program_get_info_log(glslang_program_t* /*program*/) {
  return "";
}
inline void glslang_program_SPIRV_generate(glslang_program_t* /*program*/, glslang_stage_t /*stage*/) {}
inline const char* glslang_program_SPIRV_get_messages(glslang_program_t* /*program*/) {
  return nullptr;
}
inline std::size_t glslang_program_SPIRV_get_size(glslang_program_t* program) {
  return program->spirv.size() / sizeof(std::uint32_t);
}
inline std::uint32_t* glslang_program_SPIRV_get_ptr(glslang_program_t* program) {
  return reinterpret_cast<std::uint32_t*>(program->spirv.data());
}

inline int glslang_initialize_process() {
  return 1;
}
inline void glslang_finalize_process() {}

}  // namespace gpumap::vkfft
