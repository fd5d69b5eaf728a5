// SPDX-License-Identifier: MIT
//
// gpumap.Slot: what `with ring.write() as slot` and `with ring.read() as frame` give.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "py_objects.hpp"

namespace gpumap::python {

namespace {

PyTypeObject* slot_type = nullptr;

enum class Phase : uint8_t { made, inside, over };

struct SlotObject {
  Array array;  // first: a Slot is an Array
  RingObject* ring;
  PyObject* stream_object;  // as it was given: it lives as long as the `with`
  void* stream;
  bool has_stream;
  bool writes;
  Phase phase;
  uint32_t when_full;
  int64_t timeout_ns;
  gpumap_frame_info info;
  bool used_set;
};

SlotObject* as_slot(PyObject* self) {
  return reinterpret_cast<SlotObject*>(self);
}
SlotHold* hold_of(SlotObject* slot) {
  return static_cast<SlotHold*>(slot->array.hold.get());
}

PyObject* raise_after_wait(gpumap_status status, SlotObject* slot) {
  switch (status) {
    case GPUMAP_TIMEOUT:
      return raise_status(status, slot->writes ? "no slot was free within the timeout: readers hold them all"
                                               : "no frame came within the timeout");
    case GPUMAP_FULL:
      return raise_status(status, "no slot is free, and the caller does not wait: give a timeout, or more slots");
    case GPUMAP_STOPPED:
      if (!slot->ring->state->hold) {  // close() stops the ring ahead of its end
        return raise_status(GPUMAP_ERROR_CLOSED, "the ring was closed");
      }
      return raise_status(status, "the ring was stopped: resume() it");
    case GPUMAP_END:
      return raise_status(status, "the stream has ended");
    default:
      return raise_status(status);
  }
}

bool place_slot(SlotObject* slot, gpumap_slot handle) {
  RingState& ring = *slot->ring->state;
  Array& array = slot->array;
  gpumap_memory_info memory = GPUMAP_INIT(gpumap_memory_info);
  if (!succeeded(gpumap_slot_get_memory(handle, &memory))) {
    return false;
  }
  array.place = place_of(memory, ring.device);
  array.place.read_only = !slot->writes;
  // Where a frame is moved at publish, the GPU's copy is what readers get: the CPU writes beside it.
  array.offset = 0;
  return true;
}

/// How a frame that was taken lies.
bool describe_frame(SlotObject* slot, gpumap_slot handle) {
  RingState& ring = *slot->ring->state;
  Array& array = slot->array;
  slot->info.struct_size = sizeof slot->info;
  const char* caps = gpumap_slot_caps(handle);
  if (caps == nullptr || !succeeded(gpumap_slot_get_frame(handle, &slot->info))) {
    return caps != nullptr || succeeded(GPUMAP_ERROR_INVALID);
  }
  const uint64_t bytes = slot->info.bytes;
  uint64_t offset = 0;
  if (ring.last_known && ring.last_caps == caps) {
    array.geometry = ring.last_geometry;
  } else if (geometry_of_array_caps(caps, array.geometry)) {
    ring.last_caps = caps;
    ring.last_geometry = array.geometry;
    ring.last_known = true;
  } else {
    array.layout.struct_size = sizeof array.layout;
    array.has_layout = gpumap_slot_get_layout(handle, &array.layout) == GPUMAP_OK && lies_in(array.layout, bytes);
    if (array.has_layout) {
      offset = array.layout.planes > 0 ? array.layout.offset[0] : 0;
      array.geometry = geometry_of(array.layout, bytes - offset);
    } else if (!ring.consumer) {
      array.geometry = ring.geometry;
    }
  }
  // A frame that is shorter than its description, or has none, is bytes.
  if (array.geometry.type == nullptr || static_cast<uint64_t>(array.geometry.span()) > bytes - offset) {
    const auto size = static_cast<int64_t>(bytes);
    array.has_layout = false;
    return set_shape(array.geometry, dtype_named("uint8"), &size, 1);
  }
  array.offset = offset;
  array.place.host = array.place.host == nullptr ? nullptr : static_cast<uint8_t*>(array.place.host) + offset;
  array.place.cuda_address += array.place.cuda_address == 0 ? 0 : offset;
  return true;
}

bool acquire(SlotObject* slot, gpumap_ring ring, gpumap_slot& handle) {
  gpumap_status status = gpumap_ring_acquire(ring, slot->when_full, 0, &handle);
  const bool waits = (status == GPUMAP_FULL || status == GPUMAP_TIMEOUT) && slot->timeout_ns != 0 &&
                     slot->when_full == GPUMAP_WHEN_FULL_WAIT;
  if (waits && !wait_in_parts(slot->timeout_ns, status, [&](int64_t part_ns) {
        const gpumap_status now = gpumap_ring_acquire(ring, slot->when_full, part_ns, &handle);
        return now == GPUMAP_FULL ? gpumap_status{GPUMAP_TIMEOUT} : now;
      })) {
    return false;
  }
  return status == GPUMAP_OK || raise_after_wait(status, slot) != nullptr;
}

bool take(SlotObject* slot, gpumap_ring ring, gpumap_slot& handle) {
  gpumap_status status = gpumap_ring_take(ring, 0, &handle);
  if (status == GPUMAP_TIMEOUT && slot->timeout_ns != 0 &&
      !wait_in_parts(slot->timeout_ns, status,
                     [&](int64_t part_ns) { return gpumap_ring_take(ring, part_ns, &handle); })) {
    return false;
  }
  return status == GPUMAP_OK || raise_after_wait(status, slot) != nullptr;
}

/// The reader's stream, or this thread, waits until the frame is there. `comes_later`: it is not yet.
bool wait_for_frame(SlotObject* slot, int64_t timeout_ns, bool& comes_later) {
  SlotHold& hold = *hold_of(slot);
  if (slot->has_stream) {
    gpumap_status status = GPUMAP_OK;
    {
      const WithoutGil others;  // what is filled by no stream, this thread waits for
      status = hold.wait_on_stream(slot->stream);
    }
    if (succeeded(status)) {
      hold.used_by(slot->stream);
      slot->array.has_stream = true;
      slot->array.stream = slot->stream;
    }
    return status == GPUMAP_OK;
  }
  // Ends: it only looks.
  gpumap_status status = hold.wait(0);
  const std::atomic<bool>& stopped = slot->ring->state->stopped;
  if (status == GPUMAP_TIMEOUT && timeout_ns != 0 && !wait_in_parts(timeout_ns, status, [&](int64_t part_ns) {
        return stopped ? gpumap_status{GPUMAP_STOPPED} : hold.wait(part_ns);
      })) {
    comes_later = true;
    return false;
  }
  comes_later = status == GPUMAP_TIMEOUT || status == GPUMAP_STOPPED;
  if (status == GPUMAP_TIMEOUT) {
    raise_status(status, "what fills the frame has not ended within the timeout: read() again");
    return false;
  }
  return status == GPUMAP_OK || raise_after_wait(status, slot) != nullptr;
}

bool enter_write(SlotObject* slot) {
  RingState& ring = *slot->ring->state;
  const CallHold ring_hold(ring.hold);  // another thread may close the ring while this one waits
  gpumap_slot handle = nullptr;
  if (!acquire(slot, ring_of(slot->ring), handle)) {
    return false;
  }
  Array& array = slot->array;
  array.hold = HoldRef(new SlotHold(handle, ring_hold, ring.device.cuda_context));
  array.host_hold = ring_hold;
  if (slot->has_stream) {
    array.hold->used_by(slot->stream);  // at once: however the slot is given up, it is behind the stream
  }
  if (!place_slot(slot, handle)) {
    close_array(&slot->array);
    return false;
  }
  if (ring.has_layout) {
    array.layout = ring.layout;
    array.has_layout = true;
  }
  array.geometry = ring.geometry;
  const auto cached = ring.host_views.find(array.place.host);
  if (cached != ring.host_views.end()) {
    array.host_view = new_ref(cached->second);
  }
  return true;
}

bool enter_read(SlotObject* slot) {
  RingState& ring = *slot->ring->state;
  const CallHold ring_hold(ring.hold);
  const int64_t begin_ns = monotonic_ns();
  // Ahead of the ring's: frames that earlier calls took and did not wait for.
  if (!ring.taken.empty() && !ring.stopped) {
    slot->array.hold = std::move(ring.taken.begin()->second);
    ring.taken.erase(ring.taken.begin());
  } else {
    gpumap_slot handle = nullptr;
    if (!take(slot, ring_of(slot->ring), handle)) {
      return false;
    }
    slot->array.hold = HoldRef(new SlotHold(handle, HoldRef(), ring.device.cuda_context));
  }
  const CallHold hold(slot->array.hold);  // another thread may close the slot while this one waits
  gpumap_slot handle = hold_of(slot)->slot();
  const int64_t left_ns = slot->timeout_ns == GPUMAP_FOREVER
                              ? slot->timeout_ns
                              : std::max<int64_t>(slot->timeout_ns - (monotonic_ns() - begin_ns), 0);
  bool comes_later = false;
  if (place_slot(slot, handle) && describe_frame(slot, handle) && wait_for_frame(slot, left_ns, comes_later)) {
    return true;
  }
  if (comes_later && ring.hold && slot->array.hold) {
    ring.taken.emplace(slot->info.sequence, hold);
  }
  close_array(&slot->array);
  return false;
}

PyObject* slot_enter(PyObject* self, PyObject* /*none*/) {
  SlotObject* slot = as_slot(self);
  if (slot->phase != Phase::made) {
    return raise_invalid("a slot is entered once: call %s() again", slot->writes ? "write" : "read");
  }
  if (!ring_open(slot->ring)) {
    return nullptr;
  }
  slot->phase = Phase::inside;
  if (!(slot->writes ? enter_write(slot) : enter_read(slot))) {
    slot->phase = Phase::over;
    return nullptr;
  }
  return new_ref(self);
}

/// Behind what the GPU still writes into the slot: the stream that was given, and those of DLPack's tensors.
gpumap_status publish(SlotObject* slot, const HoldRef& hold) {
  auto* written = static_cast<SlotHold*>(hold.get());
  if (!slot->used_set) {
    slot->info.bytes = static_cast<uint64_t>(slot->array.geometry.span());
  }
  gpumap_fence fence = GPUMAP_INIT(gpumap_fence);
  bool fenced = false;
  gpumap_status status = written->join_streams(fence, fenced);
  if (status != GPUMAP_OK) {
    return status;
  }
  if (!fenced && slot->ring->state->copies) {
    const WithoutGil others;
    return gpumap_slot_publish(written->slot(), &slot->info, nullptr, 0);
  }
  if (!fenced) {
    return gpumap_slot_publish(written->slot(), &slot->info, nullptr, 0);
  }
  if (!wait_in_parts(GPUMAP_FOREVER, status, [&](int64_t part_ns) {
        return gpumap_slot_publish(written->slot(), &slot->info, &fence, part_ns);
      })) {
    return GPUMAP_STOPPED;
  }
  return status;
}

/// Behind the same.
void give_up(SlotHold* written) {
  gpumap_fence fence = GPUMAP_INIT(gpumap_fence);
  bool fenced = false;
  gpumap_status status = written->join_streams(fence, fenced);
  const WithoutGil others;
  if (status == GPUMAP_OK) {
    status = gpumap_slot_release(written->slot(), fenced ? &fence : nullptr);
  }
  if (status == GPUMAP_TIMEOUT) {
    return;  // the stream may still write: the last user tries again
  }
  if (status != GPUMAP_OK) {
    // A stream of another context: it cannot write the slot.
    gpumap_slot_release(written->slot(), nullptr);
  }
  written->forget_slot();
}

bool exit_write(SlotObject* slot, bool failed) {
  RingState& ring = *slot->ring->state;
  Array& array = slot->array;
  const CallHold hold(array.hold);
  auto* written = static_cast<SlotHold*>(hold.get());
  // Not where the ring's caps have changed within the `with`.
  if (array.host_view != nullptr && ring.hold && array.geometry == ring.geometry &&
      ring.host_views.find(array.place.host) == ring.host_views.end()) {
    ring.host_views.emplace(array.place.host, new_ref(array.host_view));
  }
  const gpumap_status status = failed ? gpumap_status{GPUMAP_OK} : publish(slot, hold);
  if (status != GPUMAP_OK && PyErr_Occurred() == nullptr) {
    raise_after_wait(status, slot);
  }
  if (failed || status != GPUMAP_OK) {
    give_up(written);
  } else {
    written->forget_slot();
  }
  close_array(&slot->array);
  return status == GPUMAP_OK;
}

bool exit_read(SlotObject* slot, bool failed) {
  const CallHold hold(slot->array.hold);
  auto* taken = static_cast<SlotHold*>(hold.get());
  const gpumap_status revoked = failed ? gpumap_status{GPUMAP_OK} : gpumap_slot_check(taken->slot());
  const bool valid = succeeded(revoked);
  close_array(&slot->array);
  if (hold->shared()) {
    return valid;  // tensors and views of the frame keep its slot
  }
  if (!slot->ring->state->hold) {
    return valid;  // the last slot of a closed ring waits for its readers, and so does the end of `hold`
  }
  const gpumap_status released = taken->release();
  if (released != GPUMAP_OK) {
    if (!failed && valid) {
      raise_status(released);
    }
    // A stream of another context: it cannot read the slot.
    gpumap_slot_release(taken->slot(), nullptr);
  }
  taken->forget_slot();
  return valid && (failed || released == GPUMAP_OK);
}

PyObject* slot_exit(PyObject* self, PyObject* arguments) {
  SlotObject* slot = as_slot(self);
  PyObject* type = PyTuple_Size(arguments) > 0 ? PyTuple_GetItem(arguments, 0) : Py_None;
  const bool failed = type != Py_None;
  if (slot->phase != Phase::inside) {
    return raise_invalid("the slot's `with` has ended");
  }
  slot->phase = Phase::over;
  if (!slot->array.hold) {  // close(), within the `with`: given up
    return new_ref(Py_False);
  }
  const bool done = slot->writes ? exit_write(slot, failed) : exit_read(slot, failed);
  if (!done) {
    return nullptr;
  }
  return new_ref(Py_False);
}

void slot_dealloc(PyObject* self) {
  SlotObject* slot = as_slot(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  end_array(&slot->array);
  Py_CLEAR(slot->stream_object);
  Py_CLEAR(slot->ring);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

int slot_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_slot(self)->ring);
  Py_VISIT(as_slot(self)->stream_object);
  return traverse_array(&as_slot(self)->array, visit, arg);
}

int slot_clear(PyObject* self) {
  Py_CLEAR(as_slot(self)->stream_object);
  return 0;
}

// ---- What comes with a frame ----

/// A member of gpumap_frame_info, for a getter and its setter.
struct Field {
  size_t offset;
  enum Kind : uint8_t { time, stream_offset, count, word } kind;
};

#define GPUMAP_FIELD(member, kind) const Field field_##member = {offsetof(gpumap_frame_info, member), Field::kind}
GPUMAP_FIELD(pts, time);
GPUMAP_FIELD(dts, time);
GPUMAP_FIELD(duration, time);
GPUMAP_FIELD(offset, stream_offset);
GPUMAP_FIELD(offset_end, stream_offset);
GPUMAP_FIELD(flags, word);
GPUMAP_FIELD(user, word);
GPUMAP_FIELD(sequence, count);
GPUMAP_FIELD(publish_ns, time);
#undef GPUMAP_FIELD

void* field_of(SlotObject* slot, const Field& field) {
  return reinterpret_cast<char*>(&slot->info) + field.offset;
}

PyObject* get_field(PyObject* self, void* closure) {
  const Field& field = *static_cast<const Field*>(closure);
  const void* at = field_of(as_slot(self), field);
  switch (field.kind) {
    case Field::time: {
      const int64_t value = *static_cast<const int64_t*>(at);
      return value == GPUMAP_NO_TIME ? new_ref(Py_None) : PyLong_FromLongLong(value);
    }
    case Field::stream_offset: {
      const uint64_t value = *static_cast<const uint64_t*>(at);
      return value == GPUMAP_NO_OFFSET ? new_ref(Py_None) : PyLong_FromUnsignedLongLong(value);
    }
    case Field::count:
      return PyLong_FromUnsignedLongLong(*static_cast<const uint64_t*>(at));
    default:
      return PyLong_FromUnsignedLong(*static_cast<const uint32_t*>(at));
  }
}

int set_field(PyObject* self, PyObject* value, void* closure) {
  const Field& field = *static_cast<const Field*>(closure);
  SlotObject* slot = as_slot(self);
  if (value == nullptr || !slot->writes || slot->phase == Phase::over) {
    raise_invalid("what comes with a frame is set before it is published: in the `with` of ring.write()");
    return -1;
  }
  void* at = field_of(slot, field);
  if (field.kind == Field::word) {
    const unsigned long word = PyLong_AsUnsignedLong(value);
    if (word > UINT32_MAX && PyErr_Occurred() == nullptr) {
      raise_invalid("%lu does not fit into 32 bits", word);
    }
    *static_cast<uint32_t*>(at) = static_cast<uint32_t>(word);
  } else if (field.kind == Field::time) {
    *static_cast<int64_t*>(at) = value == Py_None ? GPUMAP_NO_TIME : PyLong_AsLongLong(value);
  } else {
    *static_cast<uint64_t*>(at) = value == Py_None ? GPUMAP_NO_OFFSET : PyLong_AsUnsignedLongLong(value);
  }
  return PyErr_Occurred() == nullptr ? 0 : -1;
}

PyObject* get_used(PyObject* self, void* /*none*/) {
  SlotObject* slot = as_slot(self);
  if (!usable(&slot->array)) {
    return nullptr;
  }
  const bool all = slot->writes && !slot->used_set;
  return all ? PyLong_FromLongLong(slot->array.geometry.span()) : PyLong_FromUnsignedLongLong(slot->info.bytes);
}

int set_used(PyObject* self, PyObject* value, void* /*none*/) {
  SlotObject* slot = as_slot(self);
  if (value == nullptr || !slot->writes || !usable(&slot->array)) {
    if (PyErr_Occurred() == nullptr) {
      raise_invalid("the bytes in use are set in the `with` of ring.write()");
    }
    return -1;
  }
  const unsigned long long bytes = PyLong_AsUnsignedLongLong(value);
  if (PyErr_Occurred() == nullptr && bytes > slot->ring->state->slot_bytes) {
    raise_invalid("%llu bytes in use of a slot of %llu", bytes,
                  static_cast<unsigned long long>(slot->ring->state->slot_bytes));
  }
  if (PyErr_Occurred() != nullptr) {
    return -1;
  }
  slot->info.bytes = bytes;
  slot->used_set = true;
  return 0;
}

PyObject* get_caps(PyObject* self, void* /*none*/) {
  SlotObject* slot = as_slot(self);
  if (!usable(&slot->array)) {
    return nullptr;
  }
  const char* caps = slot->writes ? "" : gpumap_slot_caps(hold_of(slot)->slot());
  return caps == nullptr ? raise_status(GPUMAP_ERROR_INVALID) : PyUnicode_FromString(caps);
}

PyMethodDef slot_methods[] = {
    {"__enter__", slot_enter, METH_NOARGS, nullptr},
    {"__exit__", slot_exit, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef slot_properties[] = {
    {"pts", get_field, set_field, "Nanoseconds from the stream's begin; None: not known.",
     const_cast<Field*>(&field_pts)},
    {"dts", get_field, set_field, "The decoding time, as pts.", const_cast<Field*>(&field_dts)},
    {"duration", get_field, set_field, "Nanoseconds; None: not known.", const_cast<Field*>(&field_duration)},
    {"offset", get_field, set_field, "In the stream's own units; None: not known.", const_cast<Field*>(&field_offset)},
    {"offset_end", get_field, set_field, "As offset.", const_cast<Field*>(&field_offset_end)},
    {"flags", get_field, set_field, "GstBufferFlags: 64 is a gap before the frame.", const_cast<Field*>(&field_flags)},
    {"user", get_field, set_field, "32 bits of the application's own.", const_cast<Field*>(&field_user)},
    {"sequence", get_field, nullptr, "Of a frame that was read: how many were published before it.",
     const_cast<Field*>(&field_sequence)},
    {"publish_ns", get_field, nullptr, "Of a frame that was read: when it was published, by CLOCK_MONOTONIC.",
     const_cast<Field*>(&field_publish_ns)},
    {"used", get_used, set_used, "Bytes in use from the slot's start. Set it to publish fewer than the slot has.",
     nullptr},
    {"caps", get_caps, nullptr,
     "Of a frame that was read: its caps, as GStreamer writes them: \"video/x-raw, format=(string)NV12, …\"; \"\": "
     "none.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slot_slots[] = {
    {Py_tp_doc,
     const_cast<char*>("A slot of a ring, within its `with`: an Array to write, or a frame to read.\n\n"
                       "Written: published at the end of the `with`, given up when an exception leaves it. Read: kept "
                       "until the `with` has ended, the tensors and views of it are gone, and the stream is done.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(slot_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(slot_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(slot_clear)},
    {Py_tp_methods, slot_methods},
    {Py_tp_getset, slot_properties},
    {0, nullptr},
};
PyType_Spec slot_spec = {"gpumap.Slot", sizeof(SlotObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slot_slots};

PyObject* make_slot(PyObject* ring, bool writes, int64_t timeout_ns, PyObject* stream_object) {
  void* stream = nullptr;
  bool has_stream = false;
  if (!ring_open(reinterpret_cast<RingObject*>(ring)) || !read_stream(stream_object, has_stream, stream)) {
    return nullptr;
  }
  auto* slot = new_object<SlotObject>(slot_type);
  if (slot == nullptr) {
    return nullptr;
  }
  begin_array(&slot->array);
  slot->ring = reinterpret_cast<RingObject*>(new_ref(ring));
  slot->stream_object = has_stream ? new_ref(stream_object) : nullptr;
  slot->stream = stream;
  slot->has_stream = has_stream;
  slot->writes = writes;
  slot->timeout_ns = timeout_ns;
  slot->info = gpumap_frame_of(0);
  return reinterpret_cast<PyObject*>(slot);
}

}  // namespace

PyObject* ring_write(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"timeout", "stream", "drop_oldest", nullptr};
  PyObject* seconds = Py_None;
  PyObject* stream = Py_None;
  int drop_oldest = 0;
  int64_t timeout_ns = 0;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$Op", const_cast<char**>(names), &seconds, &stream,
                                  &drop_oldest) == 0 ||
      !read_timeout(seconds, timeout_ns)) {
    return nullptr;
  }
  PyObject* slot = make_slot(self, true, timeout_ns, stream);
  if (slot != nullptr && drop_oldest != 0) {
    as_slot(slot)->when_full = GPUMAP_WHEN_FULL_DROP_OLDEST;
  }
  return slot;
}

PyObject* ring_read(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"timeout", "stream", nullptr};
  PyObject* seconds = Py_None;
  PyObject* stream = Py_None;
  int64_t timeout_ns = 0;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$O", const_cast<char**>(names), &seconds, &stream) == 0 ||
      !read_timeout(seconds, timeout_ns)) {
    return nullptr;
  }
  return make_slot(self, false, timeout_ns, stream);
}

bool add_slot_type(PyObject* module) {
  slot_type = add_type(module, "Slot", slot_spec, array_type);
  return slot_type != nullptr;
}

}  // namespace gpumap::python
