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
/// A thread's own ends with it, and nobody else uses it.
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wexit-time-destructors"
#endif
inline thread_local std::exception_ptr failure;
#ifdef __clang__
#pragma clang diagnostic pop
#endif

// What VkFFT sets, and the compiler has settings of its own for.
enum glslang_source_t { GLSLANG_SOURCE_GLSL };
enum glslang_stage_t { GLSLANG_STAGE_COMPUTE };
enum glslang_client_t { GLSLANG_CLIENT_VULKAN };
enum glslang_target_client_version_t { GLSLANG_TARGET_VULKAN_1_0, GLSLANG_TARGET_VULKAN_1_1 };
enum glslang_target_language_t { GLSLANG_TARGET_SPV };
enum glslang_target_language_version_t { GLSLANG_TARGET_SPV_1_0, GLSLANG_TARGET_SPV_1_3 };
enum glslang_profile_t { GLSLANG_NO_PROFILE };
enum glslang_messages_t { GLSLANG_MSG_DEFAULT_BIT, GLSLANG_MSG_SPV_RULES_BIT, GLSLANG_MSG_VULKAN_RULES_BIT };
// In this order, which VkFFT 1.2 goes by; 1.3 goes by the names.
struct glslang_resource_t {
  int max_lights, max_clip_planes, max_texture_units, max_texture_coords, max_vertex_attribs,
      max_vertex_uniform_components, max_varying_floats, max_vertex_texture_image_units,
      max_combined_texture_image_units, max_texture_image_units, max_fragment_uniform_components, max_draw_buffers,
      max_vertex_uniform_vectors, max_varying_vectors, max_fragment_uniform_vectors, max_vertex_output_vectors,
      max_fragment_input_vectors, min_program_texel_offset, max_program_texel_offset, max_clip_distances,
      max_compute_work_group_count_x, max_compute_work_group_count_y, max_compute_work_group_count_z,
      max_compute_work_group_size_x, max_compute_work_group_size_y, max_compute_work_group_size_z,
      max_compute_uniform_components, max_compute_texture_image_units, max_compute_image_uniforms,
      max_compute_atomic_counters, max_compute_atomic_counter_buffers, max_varying_components,
      max_vertex_output_components, max_geometry_input_components, max_geometry_output_components,
      max_fragment_input_components, max_image_units, max_combined_image_units_and_fragment_outputs,
      max_combined_shader_output_resources, max_image_samples, max_vertex_image_uniforms,
      max_tess_control_image_uniforms, max_tess_evaluation_image_uniforms, max_geometry_image_uniforms,
      max_fragment_image_uniforms, max_combined_image_uniforms, max_geometry_texture_image_units,
      max_geometry_output_vertices, max_geometry_total_output_components, max_geometry_uniform_components,
      max_geometry_varying_components, max_tess_control_input_components, max_tess_control_output_components,
      max_tess_control_texture_image_units, max_tess_control_uniform_components,
      max_tess_control_total_output_components, max_tess_evaluation_input_components,
      max_tess_evaluation_output_components, max_tess_evaluation_texture_image_units,
      max_tess_evaluation_uniform_components, max_tess_patch_components, max_patch_vertices, max_tess_gen_level,
      max_viewports, max_vertex_atomic_counters, max_tess_control_atomic_counters, max_tess_evaluation_atomic_counters,
      max_geometry_atomic_counters, max_fragment_atomic_counters, max_combined_atomic_counters,
      max_atomic_counter_bindings, max_vertex_atomic_counter_buffers, max_tess_control_atomic_counter_buffers,
      max_tess_evaluation_atomic_counter_buffers, max_geometry_atomic_counter_buffers,
      max_fragment_atomic_counter_buffers, max_combined_atomic_counter_buffers, max_atomic_counter_buffer_size,
      max_transform_feedback_buffers, max_transform_feedback_interleaved_components, max_cull_distances,
      max_combined_clip_and_cull_distances, max_samples, max_mesh_output_vertices_nv, max_mesh_output_primitives_nv,
      max_mesh_work_group_size_x_nv, max_mesh_work_group_size_y_nv, max_mesh_work_group_size_z_nv,
      max_task_work_group_size_x_nv, max_task_work_group_size_y_nv, max_task_work_group_size_z_nv,
      max_mesh_view_count_nv, max_dual_source_draw_buffers_ext;
  struct {
    bool non_inductive_for_loops, while_loops, do_while_loops, general_uniform_indexing,
        general_attribute_matrix_vector_indexing, general_varying_indexing, general_sampler_indexing,
        general_variable_indexing, general_constant_matrix_vector_indexing;
  } limits;
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
