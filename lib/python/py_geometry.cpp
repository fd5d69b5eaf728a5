// SPDX-License-Identifier: MIT
//
// Data types, shapes and strides.
#include <cstring>

#include "py_array.hpp"

namespace gpumap::python {

namespace {

// DLPack's codes: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool. NumPy has no bfloat16: it sees its bits.
constexpr DataType types[] = {
    {"uint8", "|u1", "B", 1, 1},   {"int8", "|i1", "b", 0, 1},       {"bool", "|b1", "?", 6, 1},
    {"uint16", "<u2", "H", 1, 2},  {"int16", "<i2", "h", 0, 2},      {"uint32", "<u4", "I", 1, 4},
    {"int32", "<i4", "i", 0, 4},   {"uint64", "<u8", "Q", 1, 8},     {"int64", "<i8", "q", 0, 8},
    {"float16", "<f2", "e", 2, 2}, {"bfloat16", "<V2", "H", 4, 2},   {"float32", "<f4", "f", 2, 4},
    {"float64", "<f8", "d", 2, 8}, {"complex64", "<c8", "Zf", 5, 8}, {"complex128", "<c16", "Zd", 5, 16},
};

Ref dtype_text(PyObject* dtype) {
  if (PyUnicode_Check(dtype) != 0) {
    return Ref(new_ref(dtype));
  }
  for (const char* attribute : {"name", "__name__"}) {
    Ref text(PyObject_GetAttrString(dtype, attribute));
    if (text && PyUnicode_Check(text.get()) != 0) {
      return text;
    }
    PyErr_Clear();
  }
  return Ref(PyObject_Str(dtype));
}

}  // namespace

const DataType* dtype_named(const char* name) {
  for (const DataType& type : types) {
    if (std::strcmp(type.name, name) == 0) {
      return &type;
    }
  }
  return nullptr;
}

const DataType* read_dtype(PyObject* dtype) {
  const Ref text = dtype_text(dtype);
  const char* name = text ? read_text(text.get()) : nullptr;
  if (name == nullptr) {
    return nullptr;
  }
  const char* point = std::strrchr(name, '.');  // "torch.uint8"
  const DataType* type = dtype_named(point == nullptr ? name : point + 1);
  if (type == nullptr) {
    raise_invalid(
        "unknown data type %.100s: uint8 to uint64, int8 to int64, float16 to float64, bfloat16, complex64, "
        "complex128 or bool",
        name);
  }
  return type;
}

int64_t Geometry::elements() const {
  int64_t count = 1;
  for (int dim = 0; dim < dims; ++dim) {
    count *= shape[dim];
  }
  return count;
}

int64_t Geometry::span() const {
  if (elements() == 0) {
    return 0;
  }
  int64_t last = 0;
  for (int dim = 0; dim < dims; ++dim) {
    last += (shape[dim] - 1) * stride[dim];
  }
  return last + type->bytes;
}

bool Geometry::contiguous() const {
  int64_t expected = type->bytes;
  for (int dim = dims - 1; dim >= 0; --dim) {
    if (shape[dim] != 1 && stride[dim] != expected) {
      return elements() == 0;
    }
    expected *= shape[dim];
  }
  return true;
}

bool set_shape(Geometry& geometry, const DataType* type, const int64_t* shape, int dims) {
  if (dims > max_dims) {
    raise_invalid("%d dimensions: %d are the most", dims, max_dims);
    return false;
  }
  geometry.type = type;
  geometry.dims = dims;
  int64_t bytes = type->bytes;
  for (int dim = dims - 1; dim >= 0; --dim) {
    geometry.shape[dim] = shape[dim];
    geometry.stride[dim] = bytes;
    if (shape[dim] < 0 || (shape[dim] > 0 && __builtin_mul_overflow(bytes, shape[dim], &bytes))) {
      raise_invalid("dimension %d is %lld: 0 or more, and less than 2^63 bytes in all", dim,
                    static_cast<long long>(shape[dim]));
      return false;
    }
  }
  return true;
}

bool read_shape(PyObject* shape, const DataType* type, Geometry& geometry) {
  int64_t sizes[max_dims] = {};
  Py_ssize_t dims = 1;
  if (PyLong_Check(shape) != 0) {
    sizes[0] = PyLong_AsLongLong(shape);
  } else {
    dims = PySequence_Size(shape);
    if (dims > max_dims) {
      raise_invalid("%zd dimensions: %d are the most", dims, max_dims);
      return false;
    }
    for (Py_ssize_t dim = 0; dim < dims; ++dim) {
      const Ref size(PySequence_GetItem(shape, dim));
      const Ref number(size ? PyNumber_Index(size.get()) : nullptr);
      sizes[dim] = number ? PyLong_AsLongLong(number.get()) : -1;
      if (PyErr_Occurred() != nullptr) {
        return false;
      }
    }
  }
  return PyErr_Occurred() == nullptr && set_shape(geometry, type, sizes, static_cast<int>(dims));
}

namespace {

struct PlaneType {
  const char* dtype;
  int channels;  // 1: no dimension of their own
  bool half_width;
  bool half_height;
};

Geometry picture(uint32_t width, uint32_t height, int32_t stride, const PlaneType& plane) {
  Geometry geometry;
  geometry.type = dtype_named(plane.dtype);
  const int64_t columns = plane.half_width ? (int64_t{width} + 1) / 2 : int64_t{width};
  const int64_t rows = plane.half_height ? (int64_t{height} + 1) / 2 : int64_t{height};
  geometry.shape[0] = rows;
  geometry.stride[0] = stride;
  geometry.shape[1] = columns;
  geometry.stride[1] = int64_t{geometry.type->bytes} * plane.channels;
  geometry.dims = 2;
  if (plane.channels > 1) {
    geometry.shape[2] = plane.channels;
    geometry.stride[2] = geometry.type->bytes;
    geometry.dims = 3;
  }
  return geometry;
}

/// How the elements of a plane are to be seen; without a dtype where they are no whole elements (v210).
PlaneType plane_type(uint32_t format, uint32_t index) {
  const bool chroma = index > 0;
  switch (format) {
    case GPUMAP_FORMAT_NV12:
      return {"uint8", chroma ? 2 : 1, chroma, chroma};
    case GPUMAP_FORMAT_P010:
    case GPUMAP_FORMAT_P016:
      return {"uint16", chroma ? 2 : 1, chroma, chroma};
    case GPUMAP_FORMAT_I420:
      return {"uint8", 1, chroma, chroma};
    case GPUMAP_FORMAT_I420_10:
      return {"uint16", 1, chroma, chroma};
    case GPUMAP_FORMAT_Y42B:
      return {"uint8", 1, chroma, false};
    case GPUMAP_FORMAT_Y444:
    case GPUMAP_FORMAT_GRAY8:
    case GPUMAP_FORMAT_BAYER8_BGGR:
    case GPUMAP_FORMAT_BAYER8_GBRG:
    case GPUMAP_FORMAT_BAYER8_GRBG:
    case GPUMAP_FORMAT_BAYER8_RGGB:
      return {"uint8", 1, false, false};
    case GPUMAP_FORMAT_Y444_10:
    case GPUMAP_FORMAT_GRAY16:
    case GPUMAP_FORMAT_BAYER16_BGGR:
    case GPUMAP_FORMAT_BAYER16_GBRG:
    case GPUMAP_FORMAT_BAYER16_GRBG:
    case GPUMAP_FORMAT_BAYER16_RGGB:
      return {"uint16", 1, false, false};
    case GPUMAP_FORMAT_YUY2:
    case GPUMAP_FORMAT_UYVY:
      return {"uint8", 2, false, false};
    case GPUMAP_FORMAT_Y210:
      return {"uint16", 2, false, false};
    case GPUMAP_FORMAT_RGB:
    case GPUMAP_FORMAT_BGR:
    case GPUMAP_FORMAT_RGB_U8:
      return {"uint8", 3, false, false};
    case GPUMAP_FORMAT_RGBA:
    case GPUMAP_FORMAT_BGRA:
      return {"uint8", 4, false, false};
    case GPUMAP_FORMAT_RGB_F32:
      return {"float32", 3, false, false};
    case GPUMAP_FORMAT_RGB_F16:
      return {"float16", 3, false, false};
    case GPUMAP_FORMAT_RGB_F32_PLANAR:
      return {"float32", 1, false, false};
    case GPUMAP_FORMAT_RGB_F16_PLANAR:
      return {"float16", 1, false, false};
    case GPUMAP_FORMAT_RGB_U8_PLANAR:
      return {"uint8", 1, false, false};
    default:
      return {nullptr, 1, false, false};
  }
}

Geometry flat(const char* dtype, int64_t count) {
  Geometry geometry;
  geometry.type = dtype_named(dtype);
  geometry.dims = 1;
  geometry.shape[0] = count;
  geometry.stride[0] = geometry.type->bytes;
  return geometry;
}

/// Interleaved samples: one row for each sample frame.
Geometry samples(const char* dtype, uint32_t channels, uint64_t bytes) {
  Geometry geometry = flat(dtype, 0);
  geometry.dims = 2;
  geometry.shape[1] = channels > 0 ? channels : 1;
  geometry.stride[1] = geometry.type->bytes;
  geometry.stride[0] = geometry.shape[1] * geometry.stride[1];
  geometry.shape[0] = static_cast<int64_t>(bytes) / geometry.stride[0];
  return geometry;
}

}  // namespace

Geometry plane_of(const gpumap_layout& layout, uint32_t index) {
  const PlaneType plane = plane_type(layout.format, index);
  if (plane.dtype != nullptr) {
    return picture(layout.width, layout.height, layout.stride[index], plane);
  }
  // Rows of bytes.
  return picture(static_cast<uint32_t>(layout.stride[index]), layout.height, layout.stride[index],
                 {"uint8", 1, false, false});
}

bool lies_in(const gpumap_layout& layout, uint64_t bytes) {
  for (uint32_t plane = 0; plane < layout.planes; ++plane) {
    const bool inside = plane < GPUMAP_MAX_PLANES && layout.stride[plane] >= 0 && layout.offset[plane] <= bytes &&
                        static_cast<uint64_t>(plane_of(layout, plane).span()) <= bytes - layout.offset[plane];
    if (!inside) {
      return false;
    }
  }
  return true;
}

Geometry geometry_of(const gpumap_layout& layout, uint64_t bytes) {
  switch (layout.format) {
    case GPUMAP_FORMAT_U8:
      return samples("uint8", layout.channels, bytes);
    case GPUMAP_FORMAT_S8:
      return samples("int8", layout.channels, bytes);
    case GPUMAP_FORMAT_S16:
      return samples("int16", layout.channels, bytes);
    case GPUMAP_FORMAT_F32:
      return samples("float32", layout.channels, bytes);
    default:
      break;
  }
  if (layout.planes == 1 && layout.width > 0 && layout.height > 0) {
    return plane_of(layout, 0);
  }
  const bool planar_tensor =
      layout.format >= GPUMAP_FORMAT_RGB_F32_PLANAR && layout.format <= GPUMAP_FORMAT_RGB_U8_PLANAR;
  if (planar_tensor && layout.planes == 3 && layout.offset[1] >= layout.offset[0] &&
      layout.offset[2] - layout.offset[1] == layout.offset[1] - layout.offset[0]) {
    Geometry geometry = plane_of(layout, 0);
    for (int dim = 2; dim > 0; --dim) {
      geometry.shape[dim] = geometry.shape[dim - 1];
      geometry.stride[dim] = geometry.stride[dim - 1];
    }
    geometry.dims = 3;
    geometry.shape[0] = 3;
    geometry.stride[0] = static_cast<int64_t>(layout.offset[1] - layout.offset[0]);
    return geometry;
  }
  return flat("uint8", static_cast<int64_t>(bytes));
}

}  // namespace gpumap::python
