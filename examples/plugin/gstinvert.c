/* SPDX-License-Identifier: MIT
 *
 * An element of one's own that takes gpumap's frames where they are: `cinvert` inverts gray video. On an NVIDIA GPU a
 * CUDA kernel reads the slot, on its own stream; elsewhere the CPU maps it. Built by nothing but pkg-config: see run.
 */
#include <dlfcn.h>
#include <gst/base/gstbasetransform.h>
#include <gst/gpumap/gpumap.h>
#include <gst/video/video.h>

#define CAPS "format=(string)GRAY8, width=(int)[1,max], height=(int)[1,max], framerate=(fraction)[0/1,max]"

/* void invert(const unsigned char* from, unsigned char* to, unsigned bytes), as nvcc makes it. */
static const char ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry invert(.param .u64 from, .param .u64 to, .param .u32 bytes) {\n"
    "  .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %a<4>; .reg .b16 %h;\n"
    "  ld.param.u32 %r0, [bytes];\n"
    "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "  setp.ge.u32 %p, %r4, %r0;\n"
    "  @%p ret;\n"
    "  ld.param.u64 %a0, [from]; ld.param.u64 %a1, [to]; cvt.u64.u32 %a2, %r4;\n"
    "  add.u64 %a0, %a0, %a2; add.u64 %a1, %a1, %a2;\n"
    "  ld.global.u8 %h, [%a0]; not.b16 %h, %h; st.global.u8 [%a1], %h;\n"
    "  ret;\n}\n";

/* The CUDA driver, as far as it is needed: a program that includes cuda.h links -lcuda instead. */
typedef unsigned long long Address;
static struct {
  int (*cuCtxPushCurrent_v2)(void* context);
  int (*cuCtxPopCurrent_v2)(void** context);
  int (*cuStreamCreate)(void** stream, unsigned flags);
  int (*cuStreamSynchronize)(void* stream);
  int (*cuModuleLoadData)(void** module, const void* image);
  int (*cuModuleGetFunction)(void** function, void* module, const char* name);
  int (*cuMemAlloc_v2)(Address* address, size_t bytes);
  int (*cuMemFree_v2)(Address address);
  int (*cuMemcpyDtoHAsync_v2)(void* to, Address from, size_t bytes, void* stream);
  int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**);
} cuda;
#define FIND(name) ((*(void**)& cuda.name = dlsym(library, #name)) != NULL)
static gboolean find_cuda(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  return library != NULL && FIND(cuCtxPushCurrent_v2) && FIND(cuCtxPopCurrent_v2) && FIND(cuStreamCreate) &&
         FIND(cuStreamSynchronize) && FIND(cuModuleLoadData) && FIND(cuModuleGetFunction) && FIND(cuMemAlloc_v2) &&
         FIND(cuMemFree_v2) && FIND(cuMemcpyDtoHAsync_v2) && FIND(cuLaunchKernel);
}

typedef struct {
  GstBaseTransform base;
  void *stream, *kernel;
  Address out;
  gsize out_bytes;
} CInvert;
typedef struct {
  GstBaseTransformClass base;
} CInvertClass;
G_DEFINE_TYPE(CInvert, c_invert, GST_TYPE_BASE_TRANSFORM)

static GstStaticPadTemplate sink_pad = GST_STATIC_PAD_TEMPLATE(
    "sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS("video/x-raw(" GST_CAPS_FEATURE_MEMORY_GPUMAP "), " CAPS));
static GstStaticPadTemplate src_pad =
    GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS("video/x-raw, " CAPS));

/* The same picture in the other kind of memory. */
static GstCaps* transform_caps(GstBaseTransform* base, GstPadDirection from, GstCaps* caps, GstCaps* filter) {
  GstCaps* other = gst_caps_copy(caps);
  (void)base;
  for (guint i = 0; i < gst_caps_get_size(other); ++i) {
    gst_caps_set_features(
        other, i,
        gst_caps_features_new(
            from == GST_PAD_SINK ? GST_CAPS_FEATURE_MEMORY_SYSTEM_MEMORY : GST_CAPS_FEATURE_MEMORY_GPUMAP, NULL));
  }
  if (filter != NULL) {
    GstCaps* both = gst_caps_intersect_full(filter, other, GST_CAPS_INTERSECT_FIRST);
    gst_caps_unref(other);
    other = both;
  }
  return other;
}

static gboolean get_unit_size(GstBaseTransform* base, GstCaps* caps, gsize* bytes) {
  GstVideoInfo info;
  (void)base;
  if (!gst_video_info_from_caps(&info, caps)) return FALSE;
  *bytes = GST_VIDEO_INFO_SIZE(&info);
  return TRUE;
}

/* What the frames to come need, in the memory's context. */
static gboolean prepare_cuda(CInvert* self, gsize bytes) {
  void* module = NULL;
  if (self->kernel == NULL && (cuda.cuStreamCreate(&self->stream, 1) != 0 || cuda.cuModuleLoadData(&module, ptx) != 0 ||
                               cuda.cuModuleGetFunction(&self->kernel, module, "invert") != 0))
    return FALSE;
  if (self->out_bytes >= bytes) return TRUE;
  if (self->out != 0) cuda.cuMemFree_v2(self->out);
  self->out_bytes = cuda.cuMemAlloc_v2(&self->out, bytes) == 0 ? bytes : 0;
  return self->out_bytes == bytes;
}

static gboolean invert_by_cuda(CInvert* self, GstMemory* memory, GstMapInfo* to) {
  Address from = gst_gpumap_memory_get_cuda_address(memory);
  unsigned bytes = (unsigned)to->size;
  void* arguments[] = {&from, &self->out, &bytes};
  GError* error = NULL;
  gboolean done =
      prepare_cuda(self, to->size) && gst_gpumap_memory_wait_on_cuda_stream(memory, self->stream, &error) &&
      cuda.cuLaunchKernel(self->kernel, (bytes + 255) / 256, 1, 1, 256, 1, 1, 0, self->stream, arguments, NULL) == 0 &&
      gst_gpumap_memory_add_cuda_reader(memory, self->stream, &error) && /* the slot may go from here on */
      cuda.cuMemcpyDtoHAsync_v2(to->data, self->out, to->size, self->stream) == 0 &&
      cuda.cuStreamSynchronize(self->stream) == 0;
  if (!done) {
    GST_ELEMENT_ERROR(self, LIBRARY, FAILED,
                      ("CUDA cannot invert a frame: %s", error != NULL ? error->message : "driver"), (NULL));
  }
  g_clear_error(&error);
  return done;
}

static gboolean invert_by_cpu(GstMemory* memory, GstMapInfo* to) {
  GstMapInfo from;
  if (!gst_memory_map(memory, &from, GST_MAP_READ)) return FALSE;
  for (gsize i = 0; i < to->size; ++i) to->data[i] = (guint8)~from.data[i];
  gst_memory_unmap(memory, &from);
  return TRUE;
}

static GstFlowReturn transform(GstBaseTransform* base, GstBuffer* in, GstBuffer* out) {
  GstMemory* memory = gst_buffer_peek_memory(in, 0);
  GstMapInfo to;
  gboolean done = FALSE;
  if (!gst_is_gpumap_memory(memory) || !gst_buffer_map(out, &to, GST_MAP_WRITE)) return GST_FLOW_ERROR;
  if (to.size <= memory->size) {
    void* context = gst_gpumap_memory_get_cuda_context(memory);
    if (context != NULL && find_cuda()) {
      cuda.cuCtxPushCurrent_v2(context);
      done = invert_by_cuda((CInvert*)base, memory, &to);
      cuda.cuCtxPopCurrent_v2(&context);
    } else {
      done = invert_by_cpu(memory, &to);
    }
  }
  gst_buffer_unmap(out, &to);
  return done ? GST_FLOW_OK : GST_FLOW_ERROR;
}

static void c_invert_class_init(CInvertClass* klass) {
  GstElementClass* element = GST_ELEMENT_CLASS(klass);
  gst_element_class_add_static_pad_template(element, &sink_pad);
  gst_element_class_add_static_pad_template(element, &src_pad);
  gst_element_class_set_static_metadata(element, "Invert", "Filter/Video", "Inverts gray frames in gpumap's memory",
                                        "The gpumap authors");
  klass->base.transform_caps = transform_caps;
  klass->base.get_unit_size = get_unit_size;
  klass->base.transform = transform;
}

static void c_invert_init(CInvert* self) {
  (void)self;
}

static gboolean plugin_init(GstPlugin* plugin) {
  return gst_element_register(plugin, "cinvert", GST_RANK_NONE, c_invert_get_type());
}

#define PACKAGE "cinvert"
GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, cinvert, "Inverts gray frames in gpumap's memory", plugin_init,
                  "1", "MIT/X11", "gpumap's examples", "example")
