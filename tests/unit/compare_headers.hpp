// SPDX-License-Identifier: MIT
//
// Compares declarations of gpumap's own with those of another's header, which stand outside of all namespaces. So does
// who uses this, in namespace theirs: within gpumap a name would be ours. It says first in which namespace ours are:
// #define OURS gpumap.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

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
template <typename Type, std::size_t count>
struct Theirs<Type[count]> {
  using type = typename Theirs<Type>::type[count];
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
#define SAME_MEMBER(name, member)                                                                     \
  SAME_PLACE(name, member)                                                                            \
  static_assert(std::is_same_v<Theirs<decltype(OURS::name::member)>::type, decltype(::name::member)>, \
                #name "::" #member " has another type in the header");
// Of a member that has no name of its own type, such as a union: the place and the size. Its members are in it.
#define SAME_PLACE(name, member)                                                                          \
  static_assert(offsetof(OURS::name, member) == offsetof(::name, member) &&                               \
                    sizeof(std::declval<OURS::name&>().member) == sizeof(std::declval<::name&>().member), \
                #name "::" #member " lies elsewhere in the header");
// The same, and its type: of a member of such a union.
#define SAME_PART(name, member)                                                                                       \
  SAME_PLACE(name, member)                                                                                            \
  static_assert(std::is_same_v<Theirs<std::remove_reference_t<decltype((std::declval<OURS::name&>().member))>>::type, \
                               std::remove_reference_t<decltype((std::declval<::name&>().member))>>,                  \
                #name "::" #member " has another type in the header");
