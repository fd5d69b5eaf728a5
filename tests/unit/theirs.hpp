// SPDX-License-Identifier: MIT
//
// Compares declarations of gpumap's own with those of another's header, which stand outside of all namespaces. So does
// who uses this, in namespace theirs: within gpumap a name would be ours. It says first in which namespace ours are:
// #define OURS gpumap.
#pragma once

#include <cstddef>
#include <type_traits>

namespace theirs {

/// One of our types in the header's words: THEIRS() says it of each struct and enum. Where one is forgotten, the
/// functions that take it differ.
template <typename Type>
struct Theirs {
  using type = Type;
};
template <typename Type>
struct Theirs<Type*> {
  using type = typename Theirs<Type>::type*;
};
template <typename Type>
struct Theirs<const Type> {
  using type = const typename Theirs<Type>::type;
};
template <typename Result, typename... Parameters>
struct Theirs<Result(Parameters...)> {
  using type = typename Theirs<Result>::type(typename Theirs<Parameters>::type...);
};

}  // namespace theirs

#define THEIRS(name)          \
  template <>                 \
  struct Theirs<OURS::name> { \
    using type = ::name;      \
  };
#define SAME_ENUM(name) \
  THEIRS(name)          \
  static_assert(std::is_same_v<std::underlying_type_t<OURS::name>, std::underlying_type_t<::name>>, #name);
#define SAME_ALIAS(name) static_assert(std::is_same_v<Theirs<OURS::name>::type, ::name>, #name);
// A struct, then each of its members. Of a struct that is longer than ours, the members alone.
#define SAME_STRUCT(name) \
  THEIRS(name)            \
  static_assert(sizeof(OURS::name) == sizeof(::name) && alignof(OURS::name) == alignof(::name), #name);
#define SAME_MEMBER(name, member)                                           \
  static_assert(offsetof(OURS::name, member) == offsetof(::name, member) && \
                    sizeof(OURS::name::member) == sizeof(::name::member),   \
                #name "::" #member " lies elsewhere in the header");
#define SAME_PLACE(name, member) \
  static_assert(offsetof(OURS::name, member) == offsetof(::name, member), #name "::" #member);
