// SPDX-License-Identifier: MIT
//
// gpumap.from_gst() and gpumap.to_gst(). GStreamer's libraries are opened by their names when the first buffer comes:
// who uses no buffers needs none of them. What is declared here is part of GStreamer's stable ABI.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "py_objects.hpp"

namespace gpumap::python {

namespace {

struct MiniObject {
  size_t type;
};

struct MapInfo {
  void* memory;
  int flags;
  uint8_t* data;
  size_t size;
  size_t maxsize;
  void* user_data[4];
  void* reserved[4];
};

struct VideoMeta {
  int flags;
  const void* info;
  void* buffer;
  int frame_flags;
  int format;
  int id;
  unsigned width;
  unsigned height;
  unsigned planes;
  size_t offset[4];
  int stride[4];
};

struct Error {
  uint32_t domain;
  int code;
  char* message;
};

constexpr int map_read = 1;
constexpr int map_cuda = 1 << 17;
constexpr int memory_read_only = 2;

/// Functions of GStreamer, or null where a library has them not.
struct Gst {
  size_t (*buffer_type)() = nullptr;
  size_t (*caps_type)() = nullptr;
  unsigned (*n_memory)(void* buffer) = nullptr;
  void* (*peek_memory)(void* buffer, unsigned index) = nullptr;
  size_t (*buffer_size)(void* buffer) = nullptr;
  int (*buffer_map)(void* buffer, MapInfo* info, int flags) = nullptr;
  void (*buffer_unmap)(void* buffer, MapInfo* info) = nullptr;
  void (*append_memory)(void* buffer, void* memory) = nullptr;
  void* (*ref)(void* object) = nullptr;
  void (*unref)(void* object) = nullptr;
  int (*memory_is_type)(void* memory, const char* type) = nullptr;
  int (*memory_map)(void* memory, MapInfo* info, int flags) = nullptr;
  void (*memory_unmap)(void* memory, MapInfo* info) = nullptr;
  void* (*memory_new_wrapped)(int flags, void* data, size_t maxsize, size_t offset, size_t size, void* user_data,
                              void (*notify)(void*)) = nullptr;
  char* (*caps_to_string)(const void* caps) = nullptr;
  void (*free)(void* text) = nullptr;
  void (*error_free)(Error* error) = nullptr;
  VideoMeta* (*video_meta)(void* buffer) = nullptr;
  uint64_t (*cuda_address)(void* memory) = nullptr;
  int (*cuda_device)(void* memory) = nullptr;
  void* (*cuda_context)(void* memory) = nullptr;
  int (*wait_on_stream)(void* memory, void* stream, Error** error) = nullptr;
  int (*add_reader)(void* memory, void* stream, Error** error) = nullptr;
  int (*wait)(void* memory, uint64_t timeout, Error** error) = nullptr;
  void* (*cpu_address)(void* memory) = nullptr;
  void (*cuda_sync)(void* memory) = nullptr;  // of libgstcuda 1.24
  bool complete = false;
  bool has_gpumap = false;
  PyObject* python_buffer = nullptr;  // Gst.Buffer
  PyObject* python_caps = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_core(Gst& gst) {
  void* core = dlopen("libgstreamer-1.0.so.0", RTLD_NOW | RTLD_LOCAL);
  void* glib = dlopen("libglib-2.0.so.0", RTLD_NOW | RTLD_LOCAL);
  return find(core, "gst_buffer_get_type", gst.buffer_type) && find(core, "gst_caps_get_type", gst.caps_type) &&
         find(core, "gst_buffer_n_memory", gst.n_memory) && find(core, "gst_buffer_peek_memory", gst.peek_memory) &&
         find(core, "gst_buffer_get_size", gst.buffer_size) && find(core, "gst_buffer_map", gst.buffer_map) &&
         find(core, "gst_buffer_unmap", gst.buffer_unmap) &&
         find(core, "gst_buffer_append_memory", gst.append_memory) && find(core, "gst_mini_object_ref", gst.ref) &&
         find(core, "gst_mini_object_unref", gst.unref) && find(core, "gst_memory_is_type", gst.memory_is_type) &&
         find(core, "gst_memory_map", gst.memory_map) && find(core, "gst_memory_unmap", gst.memory_unmap) &&
         find(core, "gst_memory_new_wrapped", gst.memory_new_wrapped) &&
         find(core, "gst_caps_to_string", gst.caps_to_string) && find(glib, "g_free", gst.free) &&
         find(glib, "g_error_free", gst.error_free);
}

void find_others(Gst& gst) {
  find(dlopen("libgstvideo-1.0.so.0", RTLD_NOW | RTLD_LOCAL), "gst_buffer_get_video_meta", gst.video_meta);
  find(dlopen("libgstcuda-1.0.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD), "gst_cuda_memory_sync", gst.cuda_sync);
  void* gpumap = dlopen("libgstgpumap-1.0.so.0", RTLD_NOW | RTLD_LOCAL);
  gst.has_gpumap = find(gpumap, "gst_gpumap_memory_get_cuda_address", gst.cuda_address) &&
                   find(gpumap, "gst_gpumap_memory_get_cuda_device", gst.cuda_device) &&
                   find(gpumap, "gst_gpumap_memory_get_cuda_context", gst.cuda_context) &&
                   find(gpumap, "gst_gpumap_memory_wait_on_cuda_stream", gst.wait_on_stream) &&
                   find(gpumap, "gst_gpumap_memory_add_cuda_reader", gst.add_reader) &&
                   find(gpumap, "gst_gpumap_memory_wait", gst.wait) &&
                   find(gpumap, "gst_gpumap_memory_get_cpu_address", gst.cpu_address);
}

/// Null with an exception set where GStreamer is missing.
Gst* open_gst() {
  static Gst gst;
  if (gst.complete) {
    return &gst;
  }
  if (!find_core(gst)) {
    raise_status(GPUMAP_ERROR_NOT_SUPPORTED, "libgstreamer-1.0.so.0 is missing: install libgstreamer1.0-0");
    return nullptr;
  }
  find_others(gst);
  gst.complete = true;
  return &gst;
}

/// PyGObject's types. False with an exception set where it is missing.
bool open_python(Gst& gst) {
  if (gst.python_caps != nullptr) {
    return true;
  }
  const Ref module(PyImport_ImportModule("gi.repository.Gst"));
  const Ref buffer(module ? PyObject_GetAttrString(module.get(), "Buffer") : nullptr);
  const Ref caps(buffer ? PyObject_GetAttrString(module.get(), "Caps") : nullptr);
  if (!caps) {
    return false;
  }
  gst.python_buffer = new_ref(buffer.get());
  gst.python_caps = new_ref(caps.get());
  return true;
}

/// What PyGObject's object of a boxed type holds (PyGBoxed in pygobject.h), or a capsule of the C type's name. Null
/// with an exception set.
void* boxed(Gst& gst, PyObject* object, PyObject* Gst::*type, size_t gtype, const char* c_name) {
  if (PyCapsule_IsValid(object, c_name) != 0) {
    return PyCapsule_GetPointer(object, c_name);
  }
  const int is = open_python(gst) ? PyObject_IsInstance(object, gst.*type) : -1;
  if (is < 0) {
    return nullptr;
  }
  void* pointer = is != 0 ? *reinterpret_cast<void**>(reinterpret_cast<char*>(object) + sizeof(PyObject)) : nullptr;
  if (pointer == nullptr || static_cast<MiniObject*>(pointer)->type != gtype) {
    PyErr_Format(PyExc_TypeError, "not a %s, neither of PyGObject nor as a capsule of that name", c_name);
    return nullptr;
  }
  return pointer;
}

/// A buffer that an array lies in. Given back by any thread, without the GIL.
class GstHold : public Hold {
 public:
  enum class Kind { system, gpumap, cuda };

  GstHold(const Gst& gst, void* buffer) : gst_(gst), buffer_(gst.ref(buffer)), memory_(gst.peek_memory(buffer, 0)) {
    const bool one = gst.n_memory(buffer) == 1;
    if (one && gst.memory_is_type(memory_, "GPUMapMemory") != 0) {
      kind_ = Kind::gpumap;
    } else if (one && gst.memory_is_type(memory_, "gst.cuda.memory") != 0) {
      kind_ = Kind::cuda;
    }
  }

  /// Fills `place`. False with an exception set.
  bool open(Place& place) {
    place.read_only = true;
    if (kind_ == Kind::gpumap) {
      if (!gst_.has_gpumap) {
        raise_status(
            GPUMAP_ERROR_NOT_SUPPORTED,
            "libgstgpumap-1.0.so.0 is missing, which says where the frame lies: install libgstgpumap-1.0-0, or "
            "name its folder in LD_LIBRARY_PATH");
        return false;
      }
      place.cuda_address = gst_.cuda_address(memory_);
      if (place.cuda_address != 0) {
        place.cuda_ordinal = gst_.cuda_device(memory_);
        place.cuda_context = gst_.cuda_context(memory_);
        return true;
      }
      place.host = gst_.cpu_address(memory_);
      place.cpu = place.host != nullptr;
      if (place.cpu) {
        return true;
      }
    }
    return kind_ == Kind::cuda ? open_cuda(place) : open_host(place);
  }

  gpumap_status wait_on_stream(void* stream) override {
    Error* error = nullptr;
    return kind_ != Kind::gpumap || gst_.wait_on_stream(memory_, stream, &error) != 0 ? GPUMAP_OK : failed(error);
  }
  gpumap_status wait(int64_t timeout_ns) override {
    constexpr int64_t minute_ns = 60'000'000'000;
    Error* error = nullptr;
    if (kind_ != Kind::gpumap ||
        gst_.wait(memory_, static_cast<uint64_t>(timeout_ns < 0 ? minute_ns : timeout_ns), &error) != 0) {
      return GPUMAP_OK;
    }
    return error == nullptr ? gpumap_status{GPUMAP_TIMEOUT} : failed(error);
  }
  gpumap_status write(uint64_t, const void*, uint64_t) override {
    explain("a buffer of GStreamer's is read only");
    return GPUMAP_ERROR_INVALID;
  }
  gpumap_status read(uint64_t offset, void* to, uint64_t bytes) override {
    MapInfo info{};
    if (gst_.buffer_map(buffer_, &info, map_read) == 0) {
      explain("the buffer cannot be mapped: GStreamer's log has the reason");
      return GPUMAP_ERROR_IO;
    }
    const bool inside = offset <= info.size && bytes <= info.size - offset;
    if (inside) {
      std::memcpy(to, info.data + offset, bytes);
    }
    gst_.buffer_unmap(buffer_, &info);
    return inside ? GPUMAP_OK : GPUMAP_ERROR_INVALID;
  }

 protected:
  ~GstHold() override = default;
  void give_back() override {
    for (void* stream : streams()) {
      Error* error = nullptr;
      const char* why = nullptr;
      if (kind_ == Kind::gpumap && gst_.add_reader(memory_, stream, &error) == 0) {
        failed(error);
      } else if (kind_ == Kind::cuda) {
        // Its pool knows nothing of other streams.
        cuda_stream_done(context_, stream, why);
      }
    }
    if (buffer_mapped_) {
      gst_.buffer_unmap(buffer_, &map_);
    }
    if (memory_mapped_) {
      gst_.memory_unmap(memory_, &map_);
    }
    gst_.unref(buffer_);
  }

 private:
  gpumap_status failed(Error* error) const {
    explain(error != nullptr ? error->message : "GStreamer gives no reason");
    if (error != nullptr) {
      gst_.error_free(error);
    }
    return GPUMAP_ERROR_NOT_SUPPORTED;
  }

  /// Ahead of a map, which would wait as well, but not end with Ctrl-C. False with an exception set.
  bool await_filled() {
    constexpr int64_t patience_ns = 30'000'000'000;  // a map's
    gpumap_status status = GPUMAP_OK;
    if (!wait_in_parts(patience_ns, status, [&](int64_t part_ns) { return wait(part_ns); })) {
      return false;
    }
    if (status == GPUMAP_TIMEOUT) {
      raise_status(GPUMAP_ERROR_IO, "the buffer cannot be mapped: what fills it has not ended for 30 s");
      return false;
    }
    explain("");  // the map says what is wrong
    return true;
  }

  bool open_host(Place& place) {
    // Ctrl-C comes to the main thread. Elsewhere, as in an appsink's callback, the map waits: it ends with the
    // pipeline.
    const bool gets_signals = syscall(SYS_gettid) == getpid();
    if (kind_ == Kind::gpumap && gets_signals && !await_filled()) {
      return false;
    }
    {
      const WithoutGil others;
      buffer_mapped_ = gst_.buffer_map(buffer_, &map_, map_read) != 0;
    }
    if (!buffer_mapped_) {
      raise_status(GPUMAP_ERROR_IO, "the buffer cannot be mapped: GStreamer's log has the reason");
      return false;
    }
    place.host = map_.data;
    place.cpu = true;
    return true;
  }

  bool open_cuda(Place& place) {
    {
      const WithoutGil others;
      memory_mapped_ = gst_.memory_map(memory_, &map_, map_read | map_cuda) != 0;
      if (memory_mapped_ && gst_.cuda_sync != nullptr) {
        gst_.cuda_sync(memory_);
      }
    }
    if (!memory_mapped_) {
      raise_status(GPUMAP_ERROR_NOT_SUPPORTED,
                   "the memory:CUDAMemory cannot be mapped for CUDA: GStreamer's log has "
                   "the reason");
      return false;
    }
    place.cuda_address = reinterpret_cast<uint64_t>(map_.data);
    const char* why = nullptr;
    if (!cuda_pointer_device(place.cuda_address, place.cuda_ordinal, place.cuda_context, why)) {
      raise_status(GPUMAP_ERROR_NOT_SUPPORTED, why);
      return false;
    }
    context_ = place.cuda_context;
    return in_primary_context(place);
  }

  /// PyTorch, CuPy and JAX work in the primary context alone.
  static bool in_primary_context(const Place& place) {
    const Ref selector(PyUnicode_FromFormat("cuda:%d", static_cast<int>(place.cuda_ordinal)));
    const Ref device(selector ? device_of(selector.get()) : Ref());
    if (device && as_device(device)->info.cuda_context != place.cuda_context) {
      raise_status(GPUMAP_ERROR_NOT_SUPPORTED,
                   "the memory:CUDAMemory belongs to a CUDA context of GStreamer's own, which other programs' kernels "
                   "cannot reach: link the element to a gpumapkernel, which gives it the primary context");
      return false;
    }
    return static_cast<bool>(device);
  }

  const Gst& gst_;
  void* buffer_;
  void* memory_;
  void* context_ = nullptr;
  Kind kind_ = Kind::system;
  MapInfo map_{};
  bool buffer_mapped_ = false;
  bool memory_mapped_ = false;
};

/// The caps of the last buffer and their layout: those of a stream's buffers are the same object. Kept, so that no
/// other caps get the address.
struct LastCaps {
  void* caps = nullptr;
  gpumap_layout layout{};
  bool known = false;
};

/// Caps as text without "(memory:…)", which says where frames lie and not how.
std::string without_features(const char* caps) {
  std::string text = caps;
  const size_t media_end = text.find_first_of(",;( ");
  if (media_end != std::string::npos && text[media_end] == '(') {
    const size_t close = text.find(')', media_end);
    text.erase(media_end, close == std::string::npos ? close : close + 1 - media_end);
  }
  return text;
}

/// `known` is false for caps of frames that gpumap knows no layout of. False with an exception set.
bool layout_of(Gst& gst, PyObject* caps, gpumap_layout& layout, bool& known) {
  static LastCaps last;
  known = false;
  if (caps == Py_None) {
    return true;
  }
  if (PyUnicode_Check(caps) != 0) {
    const char* text = read_text(caps);
    known = text != nullptr && gpumap_layout_of_caps(without_features(text).c_str(), &layout) == GPUMAP_OK;
    return text != nullptr;
  }
  void* pointer = boxed(gst, caps, &Gst::python_caps, gst.caps_type(), "GstCaps");
  if (pointer == nullptr) {
    return false;
  }
  if (pointer != last.caps) {
    char* text = gst.caps_to_string(pointer);
    LastCaps next;
    next.caps = gst.ref(pointer);
    next.layout = GPUMAP_INIT(gpumap_layout);
    next.known = gpumap_layout_of_caps(without_features(text).c_str(), &next.layout) == GPUMAP_OK;
    gst.free(text);
    if (last.caps != nullptr) {
      gst.unref(last.caps);
    }
    last = next;
  }
  layout = last.layout;
  known = last.known;
  return true;
}

PyObject* from_gst(PyObject* /*module*/, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"buffer", "caps", nullptr};
  PyObject* object = nullptr;
  PyObject* caps = Py_None;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O", const_cast<char**>(names), &object, &caps) == 0) {
    return nullptr;
  }
  Gst* gst = open_gst();
  void* buffer = gst == nullptr ? nullptr : boxed(*gst, object, &Gst::python_buffer, gst->buffer_type(), "GstBuffer");
  gpumap_layout layout = GPUMAP_INIT(gpumap_layout);
  bool known = false;
  if (buffer == nullptr || !layout_of(*gst, caps, layout, known)) {
    return nullptr;
  }
  const size_t bytes = gst->buffer_size(buffer);
  if (bytes == 0) {
    return raise_invalid("the buffer has no bytes");
  }
  auto* made = new GstHold(*gst, buffer);
  const CallHold hold{HoldRef(made)};
  Place place;
  if (!made->open(place)) {
    return nullptr;
  }
  const VideoMeta* meta = known && layout.planes > 0 && gst->video_meta != nullptr ? gst->video_meta(buffer) : nullptr;
  for (uint32_t plane = 0; meta != nullptr && plane < meta->planes && plane < GPUMAP_MAX_PLANES; ++plane) {
    layout.planes = plane + 1;
    layout.offset[plane] = meta->offset[plane];
    layout.stride[plane] = meta->stride[plane];
  }
  Geometry geometry;
  known = known && lies_in(layout, bytes);  // a meta may say anything
  const uint64_t offset = known && layout.planes > 0 ? layout.offset[0] : 0;
  if (known) {
    geometry = geometry_of(layout, bytes - offset);
  }
  if (!known || static_cast<uint64_t>(geometry.span()) > bytes - offset) {
    const auto size = static_cast<int64_t>(bytes);
    known = false;
    set_shape(geometry, dtype_named("uint8"), &size, 1);
  }
  const uint64_t begin = known ? offset : 0;
  place.host = place.host == nullptr ? nullptr : static_cast<uint8_t*>(place.host) + begin;
  place.cuda_address += place.cuda_address == 0 ? 0 : begin;
  return make_array(hold, place, begin, geometry, known ? &layout : nullptr);
}

/// What a wrapped buffer keeps: the hold of an array, or a buffer of Python's.
struct Wrapped {
  HoldRef hold;
  Py_buffer view{};
};

void drop_wrapped(void* data) {
  auto* wrapped = static_cast<Wrapped*>(data);
  if (wrapped->view.obj != nullptr) {
    if (interpreter_ends()) {
      return;  // a thread of GStreamer's, and no interpreter left: the process takes it
    }
    const PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(&wrapped->view);
    PyGILState_Release(state);
  }
  let_go_anywhere(wrapped->hold);
  delete wrapped;
}

/// Where the bytes of `object` are. False with an exception set.
bool wrap(PyObject* object, Wrapped& wrapped, void*& data, size_t& bytes, bool& read_only) {
  if (PyObject_TypeCheck(object, array_type) != 0) {
    auto* array = reinterpret_cast<Array*>(object);
    if (!usable(array)) {
      return false;
    }
    if (!array->place.cpu || !array->geometry.contiguous()) {
      raise_status(GPUMAP_ERROR_NOT_SUPPORTED,
                   "GStreamer gets memory that the CPU reads, without gaps between rows: to_gst(array.numpy()). Into a "
                   "pipeline on the GPU goes a Ring that is served, and gpumapsrc socket-path=…");
      return false;
    }
    wrapped.hold = array->hold;
    data = array->place.host;
    bytes = static_cast<size_t>(array->geometry.bytes());
    read_only = array->place.read_only;
    return true;
  }
  const Ref exporter = with_buffer(object);
  if (!exporter || PyObject_GetBuffer(exporter.get(), &wrapped.view, PyBUF_C_CONTIGUOUS) != 0) {
    return false;
  }
  data = wrapped.view.buf;
  bytes = static_cast<size_t>(wrapped.view.len);
  read_only = wrapped.view.readonly != 0;
  return true;
}

PyObject* to_gst(PyObject* /*module*/, PyObject* object) {
  Gst* gst = open_gst();
  Ref made(gst == nullptr || !open_python(*gst) ? nullptr : PyObject_CallMethod(gst->python_buffer, "new", ""));
  void* buffer = made ? boxed(*gst, made.get(), &Gst::python_buffer, gst->buffer_type(), "GstBuffer") : nullptr;
  if (buffer == nullptr) {
    return nullptr;
  }
  auto* wrapped = new Wrapped;
  void* data = nullptr;
  size_t bytes = 0;
  bool read_only = false;
  if (!wrap(object, *wrapped, data, bytes, read_only)) {
    delete wrapped;
    return nullptr;
  }
  gst->append_memory(
      buffer, gst->memory_new_wrapped(read_only ? memory_read_only : 0, data, bytes, 0, bytes, wrapped, drop_wrapped));
  return made.release();
}

PyMethodDef functions[] = {
    {"from_gst", method(from_gst), METH_VARARGS | METH_KEYWORDS,
     "from_gst(buffer, caps=None)\n--\n\n"
     "An Array on the bytes of a Gst.Buffer, which it keeps: slots of gpumap's elements and memory:CUDAMemory "
     "where they are on the GPU, other memory mapped for the CPU. caps: Gst.Caps or text, for the shape; rows are "
     "as the buffer's GstVideoMeta says. None: bytes. Read only. Without PyGObject: capsules named GstBuffer and "
     "GstCaps. Raises TypeError for other objects, InvalidArgument for an empty buffer, NotSupported where a "
     "library is missing or the memory is of another CUDA context, IOFailed where it cannot be mapped."},
    {"to_gst", to_gst, METH_O,
     "to_gst(x, /)\n--\n\n"
     "A Gst.Buffer on the bytes of an array or tensor that the CPU reads, which the buffer keeps until GStreamer "
     "lets go of it. Raises NotSupported for memory of a GPU."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_gst_functions(PyObject* module) {
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace gpumap::python
