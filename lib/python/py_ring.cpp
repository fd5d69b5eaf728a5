// SPDX-License-Identifier: MIT
//
// gpumap.Ring and gpumap.Server.
#include "py_objects.hpp"

#include <structmember.h>

#include <cstring>
#include <new>

namespace gpumap::python {

namespace {

PyTypeObject* ring_type = nullptr;
PyTypeObject* server_type = nullptr;

constexpr const char* transports[] = {"auto", "bar", "pinned", "zero-copy", "pageable"};
constexpr const char* policies[] = {"oldest", "newest", "no"};

/// The place of `name` among the names of an enum.
template <size_t Count>
bool read_choice(const char* what, const char* const (&names)[Count], const char* name, uint32_t& value) {
  std::string all;
  for (size_t at = 0; at < Count; ++at) {
    if (std::strcmp(names[at], name) == 0) {
      value = static_cast<uint32_t>(at);
      return true;
    }
    all += (at == 0 ? "" : ", ") + std::string(names[at]);
  }
  raise_invalid("unknown %s %.50s: one of %s", what, name, all.c_str());
  return false;
}

RingObject* as_ring(PyObject* self) {
  return reinterpret_cast<RingObject*>(self);
}

/// Takes over `ring`.
PyObject* make_ring(gpumap_ring ring, bool consumer) {
  const HoldRef hold(new RingHold(ring));
  gpumap_ring_info info = GPUMAP_INIT(gpumap_ring_info);
  gpumap_device device = nullptr;
  if (!succeeded(gpumap_ring_get_info(ring, &info)) || !succeeded(gpumap_ring_get_device(ring, &device))) {
    return nullptr;
  }
  const Ref device_object = make_device(device);
  auto* made = device_object ? new_object<RingObject>(ring_type) : nullptr;
  if (made == nullptr) {
    return nullptr;
  }
  made->state = new RingState;
  made->state->hold = hold;
  made->state->device = as_device(device_object)->info;
  made->state->consumer = consumer;
  made->state->copies = info.transport == GPUMAP_TRANSPORT_PAGEABLE;
  made->state->slot_bytes = info.slot_bytes;
  return reinterpret_cast<PyObject*>(made);
}

/// What a new ring's frames are: from its shape, else from its caps, else bytes.
struct Frames {
  Geometry geometry;
  gpumap_layout layout = GPUMAP_INIT(gpumap_layout);
  bool has_layout = false;
  uint64_t bytes = 0;
};

/// Null.
PyObject* raise_larger_frames(uint64_t slot_bytes) {
  return raise_invalid("frames of these caps do not fit into slots of %llu bytes: make a ring of larger ones",
                       static_cast<unsigned long long>(slot_bytes));
}

bool read_frames(PyObject* shape, PyObject* dtype, const char* caps, uint64_t slot_bytes, Frames& frames) {
  const DataType* type = dtype == Py_None ? dtype_named("uint8") : read_dtype(dtype);
  if (type == nullptr || (shape != Py_None && !read_shape(shape, type, frames.geometry))) {
    return false;
  }
  if (caps != nullptr) {
    frames.has_layout = gpumap_layout_of_caps(caps, &frames.layout) == GPUMAP_OK;
  }
  frames.bytes = slot_bytes;
  if (frames.bytes == 0) {
    frames.bytes = shape != Py_None ? static_cast<uint64_t>(frames.geometry.bytes()) : frames.layout.bytes;
  }
  if (frames.bytes == 0 || (shape != Py_None && frames.bytes < static_cast<uint64_t>(frames.geometry.bytes()))) {
    raise_invalid("a ring's slots need a size, of %llu bytes here: shape=, caps= of pictures, or slot_bytes=",
                  static_cast<unsigned long long>(frames.bytes));
    return false;
  }
  if (frames.has_layout && frames.layout.bytes > frames.bytes) {
    return raise_larger_frames(frames.bytes) != nullptr;
  }
  if (shape == Py_None) {
    const auto bytes = static_cast<int64_t>(frames.bytes);
    if (frames.has_layout) {
      frames.geometry = geometry_of(frames.layout, frames.bytes);
    } else {
      return set_shape(frames.geometry, type, &bytes, 1);
    }
  }
  return true;
}

PyObject* ring_new(PyTypeObject* /*type*/, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {
      "slots", "shape", "dtype", "caps", "slot_bytes", "device", "transport", "require_coherent", "spin", nullptr};
  uint32_t slots = 8;
  PyObject* shape = Py_None;
  PyObject* dtype = Py_None;
  const char* caps = nullptr;
  uint64_t slot_bytes = 0;
  PyObject* selector = Py_None;
  const char* transport = "auto";
  int coherent = 0;
  double spin = 0;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|O&OO$zO&Ospd", const_cast<char**>(names), read_uint32, &slots,
                                  &shape, &dtype, &caps, read_uint64, &slot_bytes, &selector, &transport, &coherent,
                                  &spin) == 0) {
    return nullptr;
  }
  gpumap_ring_options options = GPUMAP_INIT(gpumap_ring_options);
  Frames frames;
  if (!read_choice("transport", transports, transport, options.transport) ||
      !read_frames(shape, dtype, caps, slot_bytes, frames)) {
    return nullptr;
  }
  if (!(spin >= 0 && spin <= 1)) {
    return raise_invalid("spin is the time to poll before a wait sleeps, 0 to 1 s, and this is %g", spin);
  }
  if (slots == 0) {
    return raise_invalid("a ring has 2 to 256 slots, not 0");
  }
  options.slot_bytes = frames.bytes;
  options.slots = slots;
  options.flags = coherent != 0 ? uint32_t{GPUMAP_MEMORY_REQUIRE_COHERENT} : 0U;
  options.spin_ns = static_cast<int64_t>(spin * 1e9);
  const Ref device = device_of(selector);
  if (!device) {
    return nullptr;
  }
  gpumap_ring ring = nullptr;
  gpumap_status status = GPUMAP_OK;
  {
    const WithoutGil others;
    status = gpumap_ring_create(as_device(device)->device, &options, &ring);
  }
  if (!succeeded(status)) {
    return nullptr;
  }
  Ref made(make_ring(ring, false));
  if (!made) {
    return nullptr;
  }
  RingState& state = *as_ring(made.get())->state;
  state.geometry = frames.geometry;
  state.layout = frames.layout;
  state.has_layout = frames.has_layout;
  // Readers in other processes learn the shape from the caps.
  const std::string text = caps != nullptr ? caps : array_caps(frames.geometry);
  return succeeded(gpumap_ring_set_caps(ring, text.c_str())) ? made.release() : nullptr;
}

void forget_views(RingState& state) {
  // A weak reference to a view may call code that uses the ring.
  for (const auto& [host, view] : std::exchange(state.host_views, {})) {
    Py_DECREF(view);
  }
}

void drop_taken(RingState& state) {
  std::map<uint64_t, HoldRef> taken;
  taken.swap(state.taken);
  const WithoutGil others;  // what fills them may still run
  taken.clear();
}

void close_ring(RingObject* ring) {
  RingState& state = *ring->state;
  if (!state.hold) {
    return;
  }
  HoldRef hold = std::move(state.hold);
  state.hold = HoldRef();
  state.stopped = true;
  forget_views(state);
  drop_taken(state);
  const WithoutGil others;
  // Others may wait in it, and views of written slots may still need its memory.
  gpumap_ring_stop(static_cast<RingHold*>(hold.get())->ring());
  hold = HoldRef();
}

void ring_dealloc(PyObject* self) {
  RingObject* ring = as_ring(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (ring->weak_references != nullptr) {
    PyObject_ClearWeakRefs(self);
  }
  if (ring->state != nullptr) {
    close_ring(ring);
    delete ring->state;
  }
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

int ring_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (as_ring(self)->state != nullptr) {
    for (const auto& [host, view] : as_ring(self)->state->host_views) {
      Py_VISIT(view);
    }
  }
  return 0;
}

PyObject* ring_close(PyObject* self, PyObject* /*none*/) {
  close_ring(as_ring(self));
  return new_ref(Py_None);
}

PyObject* ring_enter(PyObject* self, PyObject* /*none*/) {
  return ring_open(as_ring(self)) ? new_ref(self) : nullptr;
}

PyObject* ring_exit(PyObject* self, PyObject* /*arguments*/) {
  return ring_close(self, nullptr);
}

template <gpumap_status (*Call)(gpumap_ring)>
PyObject* ring_call(PyObject* self, PyObject* /*none*/) {
  if (!ring_open(as_ring(self)) || !succeeded(Call(ring_of(as_ring(self))))) {
    return nullptr;
  }
  return new_ref(Py_None);
}

template <gpumap_status (*Call)(gpumap_ring), bool stopped>
PyObject* ring_set_stopped(PyObject* self, PyObject* none) {
  as_ring(self)->state->stopped = stopped || !as_ring(self)->state->hold;
  return ring_call<Call>(self, none);
}

PyObject* ring_drop_queued(PyObject* self, PyObject* none) {
  drop_taken(*as_ring(self)->state);
  return ring_call<gpumap_ring_drop_queued>(self, none);
}

PyObject* ring_set_caps(PyObject* self, PyObject* value) {
  const char* caps = value == Py_None ? "" : read_text(value);
  RingObject* ring = as_ring(self);
  if (caps == nullptr || !ring_open(ring)) {
    return nullptr;
  }
  RingState& state = *ring->state;
  gpumap_layout layout = GPUMAP_INIT(gpumap_layout);
  const bool has_layout = gpumap_layout_of_caps(caps, &layout) == GPUMAP_OK;
  Geometry geometry;
  if (has_layout) {
    geometry = geometry_of(layout, layout.bytes > 0 ? layout.bytes : state.slot_bytes);
  } else if (!geometry_of_array_caps(caps, geometry)) {
    const auto bytes = static_cast<int64_t>(state.slot_bytes);
    set_shape(geometry, dtype_named("uint8"), &bytes, 1);
  }
  const uint64_t needed = has_layout ? layout.bytes : static_cast<uint64_t>(geometry.bytes());
  if (needed > state.slot_bytes) {
    return raise_larger_frames(state.slot_bytes);
  }
  if (!succeeded(gpumap_ring_set_caps(ring_of(ring), caps))) {
    return nullptr;
  }
  state.has_layout = has_layout;
  state.layout = layout;
  state.geometry = geometry;
  forget_views(state);
  return new_ref(Py_None);
}

PyObject* ring_info(PyObject* self, void* /*none*/) {
  gpumap_ring_info info = GPUMAP_INIT(gpumap_ring_info);
  if (!ring_open(as_ring(self)) || !succeeded(gpumap_ring_get_info(ring_of(as_ring(self)), &info))) {
    return nullptr;
  }
  return Py_BuildValue(
      "{sIsKsssKsKsKsIsOsOsIss}", "slots", info.slots, "slot_bytes", static_cast<unsigned long long>(info.slot_bytes),
      "transport", transports[info.transport < 5 ? info.transport : 0], "published",
      static_cast<unsigned long long>(info.published), "taken", static_cast<unsigned long long>(info.taken), "dropped",
      static_cast<unsigned long long>(info.dropped), "queued", info.queued, "connected",
      info.connected != 0 ? Py_True : Py_False, "served", info.served != 0 ? Py_True : Py_False, "rings", info.rings,
      "why", info.why);
}

PyObject* ring_device(PyObject* self, void* /*none*/) {
  gpumap_device device = nullptr;
  if (!ring_open(as_ring(self)) || !succeeded(gpumap_ring_get_device(ring_of(as_ring(self)), &device))) {
    return nullptr;
  }
  return make_device(device).release();
}

PyObject* ring_closed(PyObject* self, void* /*none*/) {
  return PyBool_FromLong(as_ring(self)->state->hold ? 0 : 1);
}

PyMethodDef ring_methods[] = {
    {"write", method(ring_write), METH_VARARGS | METH_KEYWORDS,
     "write($self, timeout=None, *, stream=None, drop_oldest=False)\n--\n\n"
     "For `with`: a slot to write, published at the end, given up when an exception leaves the `with`. timeout: "
     "seconds to wait for a free slot (0: Full, None: no limit). stream: the CUDA stream that writes it; the "
     "publish waits for it. drop_oldest: takes the oldest frame that nobody has read. Raises Timeout, Full, "
     "Stopped, Closed."},
    {"read", method(ring_read), METH_VARARGS | METH_KEYWORDS,
     "read($self, timeout=None, *, stream=None)\n--\n\n"
     "For `with`: the oldest frame. timeout: seconds to wait until one is there, and what fills it has ended; where "
     "that has not, the next call gives the frame. stream: the CUDA stream that reads it, an address or an object of "
     "PyTorch's, CuPy's or with __cuda_stream__: it is made to wait for the frame, and the slot is kept until it is "
     "done. Raises Timeout, Stopped, End, Closed, Revoked (at the end of the `with`)."},
    {"end", ring_call<gpumap_ring_end>, METH_NOARGS,
     "end($self, /)\n--\n\nThe stream ends: readers get what is left, then End."},
    {"stop", (ring_set_stopped<gpumap_ring_stop, true>), METH_NOARGS,
     "stop($self, /)\n--\n\nCalls that wait, and those to come, raise Stopped until resume(). From any thread."},
    {"resume", (ring_set_stopped<gpumap_ring_resume, false>), METH_NOARGS, "resume($self, /)\n--\n\nAfter stop()."},
    {"drop_queued", ring_drop_queued, METH_NOARGS,
     "drop_queued($self, /)\n--\n\nDrops the frames that nobody has read."},
    {"set_caps", ring_set_caps, METH_O,
     "set_caps($self, caps, /)\n--\n\nCaps of the frames from now on, as "
     "\"video/x-raw,format=NV12,width=640,height=480,"
     "framerate=30/1\"; None: none, but where clients have some. A gpumapsrc needs caps."},
    {"close", ring_close, METH_NOARGS,
     "close($self, /)\n--\n\nEnds calls that wait. Slots, tensors and views that are out stay valid. May be called "
     "twice."},
    {"__enter__", ring_enter, METH_NOARGS, nullptr},
    {"__exit__", ring_exit, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef ring_properties[] = {
    {"info", ring_info, nullptr,
     "A dict: slots, slot_bytes, transport, published, taken, dropped, queued, connected, served, rings, why.",
     nullptr},
    {"device", ring_device, nullptr, "The Device that the ring is on.", nullptr},
    {"closed", ring_closed, nullptr, "Whether close() was called.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef ring_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RingObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot ring_slots[] = {
    {Py_tp_doc,
     const_cast<char*>(
         "Ring(slots=8, shape=None, dtype=\"uint8\", *, caps=None, slot_bytes=0, device=None, transport=\"auto\", "
         "require_coherent=False, spin=0.0)\n--\n\n"
         "A fixed set of slots of GPU memory, and the queue of those that are published. Frames are arrays of "
         "`shape`, or pictures as `caps` say, or slot_bytes bytes. transport: \"auto\", \"bar\", \"pinned\", "
         "\"zero-copy\", \"pageable\". spin: seconds to poll before a wait sleeps. May be used from several threads. "
         "Raises OutOfMemory, "
         "NotSupported, InvalidArgument.")},
    {Py_tp_new, reinterpret_cast<void*>(ring_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(ring_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(ring_traverse)},
    {Py_tp_methods, ring_methods},
    {Py_tp_getset, ring_properties},
    {Py_tp_members, ring_members},
    {0, nullptr},
};
PyType_Spec ring_spec = {"gpumap.Ring", sizeof(RingObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, ring_slots};

PyObject* connect(PyObject* /*module*/, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"path", "timeout", "leaky", "name", "device", "spin", nullptr};
  PyObject* path_object = nullptr;
  PyObject* seconds = nullptr;
  const char* leaky = "oldest";
  PyObject* selector = Py_None;
  double spin = 0;
  gpumap_connect_options options = GPUMAP_INIT(gpumap_connect_options);
  Ref keep;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O$szOd", const_cast<char**>(names), &path_object, &seconds,
                                  &leaky, &options.name, &selector, &spin) == 0) {
    return nullptr;
  }
  const char* path = read_path(path_object, keep);
  if (path == nullptr || !read_choice("leaky", policies, leaky, options.leaky)) {
    return nullptr;
  }
  options.timeout_ns = 0;
  if (seconds != nullptr && !read_timeout(seconds, options.timeout_ns)) {
    return nullptr;
  }
  if (!(spin >= 0 && spin <= 0.05)) {
    return raise_invalid("spin is the time to poll before a wait sleeps, 0 to 0.05 s, and this is %g", spin);
  }
  options.spin_ns = static_cast<int64_t>(spin * 1e9);
  Ref device;
  if (selector != Py_None) {
    device = device_of(selector);
    if (!device) {
      return nullptr;
    }
    options.device = as_device(device)->device;
  }
  gpumap_ring ring = nullptr;
  gpumap_status status = GPUMAP_OK;
  gpumap_status last = GPUMAP_ERROR_IO;
  const int64_t timeout_ns = options.timeout_ns;
  // One try after the other, between which signals of Python are handled.
  if (!wait_in_parts(timeout_ns, status, [&](int64_t part_ns) {
        options.timeout_ns = part_ns;
        const gpumap_status now = gpumap_ring_connect(path, &options, &ring);
        const bool may_come = now == GPUMAP_ERROR_IO || now == GPUMAP_ERROR_BUSY;
        if (may_come) last = now;
        return may_come ? gpumap_status{GPUMAP_TIMEOUT} : now;
      })) {
    return nullptr;
  }
  if (status == GPUMAP_TIMEOUT) {
    status = last;
  }
  return succeeded(status) ? make_ring(ring, true) : nullptr;
}

// ---- Servers ----

struct ServerObject {
  PyObject_HEAD gpumap_server server;
  PyObject* ring;
  PyObject* weak_references;
};

ServerObject* as_server(PyObject* self) {
  return reinterpret_cast<ServerObject*>(self);
}

PyObject* serve(PyObject* /*module*/, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"ring",    "path",        "mode",   "max_clients", "refuse_waiting",
                                "reserve", "stall_limit", "linger", nullptr};
  PyObject* ring = nullptr;
  PyObject* path_object = nullptr;
  int refuse = 0;
  double stall = 0;
  double linger = 1;
  gpumap_serve_options options = GPUMAP_INIT(gpumap_serve_options);
  Ref keep;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O|$O&O&pO&dd", const_cast<char**>(names), ring_type, &ring,
                                  &path_object, read_uint32, &options.mode, read_uint32, &options.max_clients, &refuse,
                                  read_uint32, &options.reserve, &stall, &linger) == 0) {
    return nullptr;
  }
  const char* path = read_path(path_object, keep);
  if (path == nullptr || !ring_open(as_ring(ring))) {
    return nullptr;
  }
  if (!(stall >= 0 && stall < 1e6 && linger >= 0 && linger < 1e6)) {
    return raise_invalid("stall_limit and linger are seconds from 0 to 1,000,000");
  }
  options.refuse_waiting = refuse != 0 ? 1 : 0;
  options.stall_limit_ns = static_cast<int64_t>(stall * 1e9);
  options.linger_ns = linger == 0 ? 1 : static_cast<int64_t>(linger * 1e9);
  gpumap_server server = nullptr;
  gpumap_status status = GPUMAP_OK;
  {
    const CallHold hold(as_ring(ring)->state->hold);
    const WithoutGil others;
    status = gpumap_ring_serve(static_cast<RingHold*>(hold.get())->ring(), path, &options, &server);
  }
  if (!succeeded(status)) {
    return nullptr;
  }
  auto* made = new_object<ServerObject>(server_type);
  if (made == nullptr) {
    gpumap_server_close(server);
    return nullptr;
  }
  made->server = server;
  made->ring = new_ref(ring);
  return reinterpret_cast<PyObject*>(made);
}

bool close_server(ServerObject* object) {
  gpumap_server server = std::exchange(object->server, nullptr);
  if (server == nullptr) {
    return true;
  }
  gpumap_status status = GPUMAP_OK;
  {
    const WithoutGil others;
    status = gpumap_server_close(server);
  }
  return succeeded(status);
}

PyObject* server_close(PyObject* self, PyObject* /*none*/) {
  if (!close_server(as_server(self))) {
    return nullptr;
  }
  return new_ref(Py_None);
}

PyObject* server_exit(PyObject* self, PyObject* /*arguments*/) {
  return server_close(self, nullptr);
}

bool server_open(PyObject* self) {
  if (as_server(self)->server != nullptr) {
    return true;
  }
  raise_invalid("the server is closed");
  return false;
}

PyObject* server_enter(PyObject* self, PyObject* /*none*/) {
  return server_open(self) ? new_ref(self) : nullptr;
}

void server_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (as_server(self)->weak_references != nullptr) {
    PyObject_ClearWeakRefs(self);
  }
  if (!close_server(as_server(self))) {
    PyErr_WriteUnraisable(nullptr);
  }
  Py_CLEAR(as_server(self)->ring);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

int server_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_server(self)->ring);
  return 0;
}

PyObject* server_wait(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"timeout", nullptr};
  PyObject* seconds = Py_None;
  int64_t timeout_ns = 0;
  gpumap_status status = GPUMAP_OK;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|O", const_cast<char**>(names), &seconds) == 0 ||
      !read_timeout(seconds, timeout_ns) || !server_open(self)) {
    return nullptr;
  }
  gpumap_server server = as_server(self)->server;
  if (!wait_in_parts(timeout_ns, status,
                     [&](int64_t part_ns) { return gpumap_server_wait_for_client(server, part_ns); })) {
    return nullptr;
  }
  if (status == GPUMAP_TIMEOUT) {
    return raise_status(status, "no client came within the timeout");
  }
  if (!succeeded(status)) {
    return nullptr;
  }
  return new_ref(Py_None);
}

PyObject* server_info(PyObject* self, void* /*none*/) {
  gpumap_server_info info = GPUMAP_INIT(gpumap_server_info);
  if (!server_open(self) || !succeeded(gpumap_server_get_info(as_server(self)->server, &info))) {
    return nullptr;
  }
  return Py_BuildValue("{sKsKsKsI}", "connected", static_cast<unsigned long long>(info.connected), "disconnected",
                       static_cast<unsigned long long>(info.disconnected), "refused",
                       static_cast<unsigned long long>(info.refused), "clients", info.clients);
}

PyMethodDef server_methods[] = {
    {"wait_for_client", method(server_wait), METH_VARARGS | METH_KEYWORDS,
     "wait_for_client($self, timeout=None)\n--\n\nReturns when there is a client. Raises Timeout after seconds."},
    {"close", server_close, METH_NOARGS,
     "close($self, /)\n--\n\nClients get what was published, for `linger` seconds at most. May be called twice."},
    {"__enter__", server_enter, METH_NOARGS, nullptr},
    {"__exit__", server_exit, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef server_properties[] = {
    {"info", server_info, nullptr,
     "A dict: connected, disconnected and refused, clients since the start; clients, those of now.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef server_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ServerObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot server_slots[] = {
    {Py_tp_doc, const_cast<char*>("A ring at a socket, from gpumap.serve(). Closed at the end of its `with`.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(server_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(server_traverse)},
    {Py_tp_methods, server_methods},
    {Py_tp_getset, server_properties},
    {Py_tp_members, server_members},
    {0, nullptr},
};
PyType_Spec server_spec = {"gpumap.Server", sizeof(ServerObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, server_slots};

PyMethodDef functions[] = {
    {"connect", method(connect), METH_VARARGS | METH_KEYWORDS,
     "connect(path, timeout=0, *, leaky=\"oldest\", name=None, device=None, spin=0.0)\n--\n\n"
     "The ring that another process serves at the socket `path`, by serve() or `gpumapsink socket-path=…`: its "
     "slots, without a copy. timeout: seconds to try for (None: no limit). leaky: what a slow reader misses, "
     "\"oldest\", \"newest\" or \"no\" (nothing: it holds the producer up). Raises IOFailed when nobody serves "
     "there, Busy where there is no place, NoResources at once."},
    {"serve", method(serve), METH_VARARGS | METH_KEYWORDS,
     "serve(ring, path, *, mode=0o600, max_clients=16, refuse_waiting=False, reserve=2, stall_limit=0.0, "
     "linger=1.0)\n"
     "--\n\n"
     "Serves the ring at the Unix socket `path` to connect() and `gpumapsrc socket-path=…`. From then on its "
     "clients take the frames, and ring.read() raises. stall_limit: seconds without a free slot after which the "
     "client with the oldest frame is disconnected (0: never). Raises InvalidArgument (the path is taken), "
     "NotSupported, IOFailed."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool ring_open(RingObject* ring) {
  if (ring->state->hold) {
    return true;
  }
  raise_invalid("the ring is closed");
  return false;
}

std::string array_caps(const Geometry& geometry) {
  std::string caps =
      std::string("application/x-gpumap-array,dtype=(string)") + geometry.type->name + ",shape=(string)\"";
  for (int dim = 0; dim < geometry.dims; ++dim) {
    caps += (dim == 0 ? "" : "x") + std::to_string(geometry.shape[dim]);
  }
  return caps + "\"";
}

namespace {

/// The text of a field, without its type and quotation marks.
std::string field_text(const char* caps, const char* name) {
  const std::string key = std::string(name) + "=(string)";
  const char* found = std::strstr(caps, key.c_str());
  if (found == nullptr) {
    return {};
  }
  found += key.size();
  found += *found == '"' ? 1 : 0;
  return {found, std::strcspn(found, ",;\" ")};
}

}  // namespace

bool geometry_of_array_caps(const char* caps, Geometry& geometry) {
  constexpr const char* media_type = "application/x-gpumap-array";
  if (std::strncmp(caps, media_type, std::strlen(media_type)) != 0) {
    return false;
  }
  const DataType* type = dtype_named(field_text(caps, "dtype").c_str());
  const std::string text = field_text(caps, "shape");
  int64_t shape[max_dims] = {};
  int dims = 0;
  for (const char* at = text.c_str(); *at != '\0' && dims < max_dims; ++dims) {
    char* behind = nullptr;
    shape[dims] = std::strtoll(at, &behind, 10);
    if (behind == at || shape[dims] < 0) {
      return false;
    }
    at = *behind == 'x' ? behind + 1 : behind;
  }
  Geometry read;
  if (type == nullptr || !set_shape(read, type, shape, dims)) {
    PyErr_Clear();
    return false;
  }
  geometry = read;
  return true;
}

bool add_ring_types(PyObject* module) {
  ring_type = add_type(module, "Ring", ring_spec);
  server_type = add_type(module, "Server", server_spec);
  return ring_type != nullptr && server_type != nullptr && add_slot_type(module) &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace gpumap::python
