// SPDX-License-Identifier: MIT
// Two libraries may unwind exceptions in one process: libgcc_s, and libunwind, which Debian's GStreamer brings along.
// Which one an object gets is decided when it is loaded, by what was loaded before. A program in Python that imports
// OpenCV, and then initialises GStreamer, has a libstdc++ that throws by libgcc_s, and plugins that would go on by
// libunwind: the first error of one of theirs ended the process. So what gpumap is made of goes on by the library by
// which libstdc++ throws.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unwind.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using Resume = void (*)(_Unwind_Exception*);

/// Where calls from libstdc++ to a function go that was called before; null: unknown. As the dynamic linker does, by
/// libstdc++'s relocations.
void* called_by_libstdcxx(std::string_view function) {
  auto* const library = static_cast<link_map*>(dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD));
  if (library == nullptr) return nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela)* slots = nullptr;
  std::size_t bytes = 0;
  for (const ElfW(Dyn)* entry = library->l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto at = entry->d_un.d_ptr;
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(at);
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(at);
    if (entry->d_tag == DT_JMPREL) slots = reinterpret_cast<const ElfW(Rela)*>(at);
    if (entry->d_tag == DT_PLTRELSZ) bytes = entry->d_un.d_val;
  }
  if (symbols == nullptr || names == nullptr || slots == nullptr) return nullptr;
  for (std::size_t i = 0; i < bytes / sizeof *slots; ++i) {
    if (names + symbols[ELF64_R_SYM(slots[i].r_info)].st_name == function) {
      return *reinterpret_cast<void**>(library->l_addr + slots[i].r_offset);
    }
  }
  return nullptr;
}

Resume resume_of_libstdcxx() {
  Dl_info thrower{};
  void* const raise = called_by_libstdcxx("_Unwind_RaiseException");
  void* const library =
      raise != nullptr && dladdr(raise, &thrower) != 0 ? dlopen(thrower.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  void* const resume = dlsym(library != nullptr ? library : RTLD_DEFAULT, "_Unwind_Resume");
  return reinterpret_cast<Resume>(resume != nullptr ? resume : dlsym(RTLD_DEFAULT, "_Unwind_Resume"));
}

}  // namespace

// Called by the compiler, where an exception that has run a destructor goes on.
// Hidden, which <unwind.h> does not let one of that name be.
extern "C" __attribute__((visibility("hidden"))) void gpumap_resume(_Unwind_Exception* exception) __asm__(
    "_Unwind_Resume");

extern "C" void gpumap_resume(_Unwind_Exception* exception) {
  static const Resume resume = resume_of_libstdcxx();
  if (resume != nullptr) resume(exception);
  std::abort();  // it does not return
}
