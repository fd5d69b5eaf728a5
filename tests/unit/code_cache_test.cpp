// SPDX-License-Identifier: MIT
// The cache of compiled kernels with a stand-in for the compiler.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "gpumap/error.hpp"
#include "kernel/cache/code_cache.hpp"
#include "kernel/compile/compilers.hpp"
#include "temporary_folder.hpp"

namespace gpumap {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t nobody = 65534;

CacheKey key_of(std::string_view what) {
  CacheKey key;
  key.add(what);
  return key;
}

Compiled made_from(const std::string& what) {
  return {.code = "code of " + what + std::string(1000, '\0'), .listing = "listing of " + what};
}

/// What a new process would get: `what` compiled, and from where it came.
struct Start {
  Compiled compiled;
  CodeCache::Counts counts;
};
Start start(const CacheFolder& folder, const std::string& what) {
  CodeCache cache(folder);
  Compiled compiled = cache.get(key_of(what), [&] { return made_from(what); });
  return {std::move(compiled), cache.counts()};
}

void expect_compiled(const CacheFolder& folder, const std::string& what, bool anew) {
  const Start result = start(folder, what);
  EXPECT_EQ(result.compiled, made_from(what));
  EXPECT_EQ(result.counts.compiled, anew ? 1U : 0U) << what;
  EXPECT_EQ(result.counts.from_disk, anew ? 0U : 1U) << what;
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void fill(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

/// Run `body` in a process of its own; root's rights would make every folder writable.
template <typename Body>
bool as_ordinary_user(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setresuid(nobody, nobody, nobody) != 0)) _exit(2);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class CodeCacheTest : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path entry(const std::string& what) const { return folder_.path_of(key_of(what).digest()); }

  TemporaryFolder home_;
  CacheFolder folder_{home_.path() / "caches" / "gpumap"};
};

TEST_F(CodeCacheTest, KeepsInMemoryAndOnDisk) {
  CodeCache cache(folder_);
  for (const char* what : {"a", "b", "a", "b"}) {
    EXPECT_EQ(cache.get(key_of(what), [&] { return made_from(what); }), made_from(what));
  }
  EXPECT_EQ(cache.counts().compiled, 2U);
  EXPECT_EQ(cache.counts().from_memory, 2U);
  expect_compiled(folder_, "a", false);
  expect_compiled(folder_, "c", true);

  CodeCache without(std::nullopt);
  for (int i = 0; i < 2; ++i) static_cast<void>(without.get(key_of("a"), [] { return made_from("a"); }));
  EXPECT_EQ(without.counts().compiled, 1U);
  EXPECT_EQ(without.counts().from_memory, 1U);
}

TEST_F(CodeCacheTest, FailuresAreNotKept) {
  CodeCache cache(folder_);
  EXPECT_THROW(static_cast<void>(cache.get(key_of("a"), []() -> Compiled { throw std::runtime_error("syntax"); })),
               std::runtime_error);
  EXPECT_EQ(cache.get(key_of("a"), [] { return made_from("a"); }), made_from("a"));
  EXPECT_EQ(cache.counts().compiled, 2U);
}

TEST_F(CodeCacheTest, UnusableKeysAreNotKept) {
  CodeCache cache(folder_);
  CacheKey key;
  key.add_source("x.cu", "#include \"other.h\"\n", {});
  for (int i = 0; i < 2; ++i) static_cast<void>(cache.get(key, [] { return made_from("a"); }));
  EXPECT_EQ(cache.counts().compiled, 2U);
  EXPECT_FALSE(fs::exists(home_.path() / "caches"));
}

TEST_F(CodeCacheTest, ThreadsWithOneKeyCompileOnce) {
  CodeCache cache(folder_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const char* what : {"a", "b", "c"}) {
        EXPECT_EQ(cache.get(key_of(what), [&] { return made_from(what); }), made_from(what));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.counts().compiled, 3U);
}

TEST_F(CodeCacheTest, MemoryIsBounded) {
  CodeCache cache(std::nullopt);
  for (int i = 0; i < 40; ++i) {
    const auto compile = [] { return Compiled{.code = std::string(1 << 20, 'x'), .listing = {}}; };
    static_cast<void>(cache.get(key_of(std::to_string(i)), compile));
  }
  static_cast<void>(cache.get(key_of("0"), [] { return made_from("0"); }));
  EXPECT_EQ(cache.counts().compiled, 41U);
}

TEST_F(CodeCacheTest, DamagedFilesAreWrittenAnew) {
  expect_compiled(folder_, "a", true);
  expect_compiled(folder_, "b", true);
  const std::string whole = content_of(entry("a"));
  std::vector<std::string> damaged{"", "x", content_of(entry("b")), whole + '\0', std::string(whole.size(), '\xFF')};
  for (const std::size_t size : {1U, 63U, 64U, 95U, 96U, 200U}) damaged.push_back(whole.substr(0, size));
  damaged.push_back(whole.substr(0, whole.size() - 1));
  for (std::size_t at = 0; at < whole.size(); at += at < 96 ? 1 : 97) {
    damaged.push_back(whole);
    damaged.back()[at] ^= 1;
  }
  for (const std::string& bytes : damaged) {
    fill(entry("a"), bytes);
    expect_compiled(folder_, "a", true);
    ASSERT_EQ(content_of(entry("a")), whole);
  }
}

TEST_F(CodeCacheTest, OnlyTheUserMayReadIt) {
  expect_compiled(folder_, "a", true);
  struct stat info {};
  for (const auto& [path, mode] : {std::pair{entry("a").parent_path(), 0700U}, {entry("a"), 0600U}}) {
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777U, mode) << path;
  }
}

TEST_F(CodeCacheTest, WhatOthersMayWriteIsLeftAlone) {
  expect_compiled(folder_, "a", true);
  fs::permissions(entry("a"), fs::perms::group_write, fs::perm_options::add);
  expect_compiled(folder_, "a", true);
  expect_compiled(folder_, "a", false);

  fs::permissions(entry("a").parent_path(), fs::perms::others_write, fs::perm_options::add);
  expect_compiled(folder_, "a", true);
  expect_compiled(folder_, "b", true);
  EXPECT_FALSE(fs::exists(entry("b")));
  EXPECT_THAT(folder_.write(key_of("b").digest(), "x"), HasSubstr("chmod go-w"));
}

TEST_F(CodeCacheTest, LinksAndPipesAreNotFollowed) {
  expect_compiled(folder_, "a", true);
  const fs::path elsewhere = home_.path() / "elsewhere";
  fs::rename(entry("a"), elsewhere);
  fs::create_symlink(elsewhere, entry("a"));
  expect_compiled(folder_, "a", true);
  EXPECT_FALSE(fs::is_symlink(entry("a")));
  fs::remove(entry("a"));
  ASSERT_EQ(mkfifo(entry("a").c_str(), 0600), 0);
  expect_compiled(folder_, "a", true);
  expect_compiled(folder_, "a", false);

  const CacheFolder link(home_.path() / "link/");
  fs::create_directory_symlink(entry("a").parent_path(), home_.path() / "link");
  expect_compiled(link, "a", true);
}

TEST_F(CodeCacheTest, AnotherUsersCacheIsLeftAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  expect_compiled(folder_, "a", true);
  ASSERT_EQ(chown(entry("a").c_str(), nobody, nobody), 0);
  expect_compiled(folder_, "a", true);
  expect_compiled(folder_, "a", false);
  ASSERT_EQ(chown(entry("a").parent_path().c_str(), nobody, nobody), 0);
  expect_compiled(folder_, "a", true);
  EXPECT_THAT(folder_.write(key_of("a").digest(), "x"), HasSubstr("another user"));

  // Root makes no folder in a user's home either.
  const fs::path home = home_.path() / "home";
  fs::create_directory(home);
  ASSERT_EQ(chown(home.c_str(), nobody, nobody), 0);
  expect_compiled(CacheFolder(home / ".cache" / "gpumap"), "a", true);
  EXPECT_TRUE(fs::is_empty(home));
}

TEST_F(CodeCacheTest, CompilesWhereNothingCanBeWritten) {
  fill(home_.path() / "file", "");
  expect_compiled(CacheFolder(home_.path() / "file" / "gpumap"), "a", true);
  expect_compiled(CacheFolder(home_.path() / "file"), "a", true);

  expect_compiled(folder_, "a", true);
  const fs::path folder = entry("a").parent_path();
  for (const fs::path& path : {home_.path(), folder.parent_path(), folder, entry("a")}) {
    ASSERT_TRUE(geteuid() != 0 || chown(path.c_str(), nobody, nobody) == 0);
  }
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_TRUE(as_ordinary_user([&] {
    const Start old = start(folder_, "a");
    const Start fresh = start(folder_, "b");
    return old.counts.from_disk == 1 && fresh.counts.compiled == 1 && fresh.compiled == made_from("b") &&
           !folder_.write(key_of("b").digest(), "x").empty() &&
           // What kept it from being made, and not that it is missing.
           CacheFolder(folder / "new").write(key_of("b").digest(), "x").ends_with(std::strerror(EACCES));
  }));
  fs::permissions(folder, fs::perms::owner_all);
  EXPECT_EQ(files_in(folder), 1U);
}

// What is said once in a process about it has nowhere to go.
TEST_F(CodeCacheTest, CompilesWhereStandardErrorIsClosed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto compiles = [this] {
    fill(home_.path() / "file", "");
    close(STDERR_FILENO);
    _exit(start(CacheFolder(home_.path() / "file" / "gpumap"), "a").compiled == made_from("a") ? 0 : 1);
  };
  EXPECT_EXIT(compiles(), testing::ExitedWithCode(0), "");
}

TEST_F(CodeCacheTest, AFullDiskLeavesNothingBehind) {
  expect_compiled(folder_, "a", true);
  const pid_t child = fork();
  if (child == 0) {
    // Writing past the limit fails half-way, as on a full disk, and no signal ends the process.
    const rlimit limit{100, 100};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const Start result = start(folder_, "b");
    _exit(result.counts.compiled == 1 && result.compiled == made_from("b") ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(files_in(entry("a").parent_path()), 1U);
}

TEST_F(CodeCacheTest, SizeIsBounded) {
  const std::uint64_t one = format_entry(key_of("0").digest(), made_from("0")).size();
  const CacheFolder small(home_.path() / "small", 3 * one);
  const auto age = [&](const char* what, int hours) {
    const fs::path path = small.path_of(key_of(what).digest());
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  const fs::path foreign = home_.path() / "small" / "notes.txt";
  const fs::path abandoned = small.path_of(key_of("9").digest()).replace_extension(".0011.tmp");
  for (const char* what : {"0", "1", "2"}) expect_compiled(small, what, true);
  for (const fs::path& path : {foreign, abandoned}) {
    fill(path, std::string(3 * one, 'x'));
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(90));
  }
  age("0", 30);
  age("1", 20);
  age("2", 10);
  expect_compiled(small, "0", false);  // and is the last used now
  expect_compiled(small, "3", true);   // in the place of 1
  for (const char* what : {"0", "2", "3"}) expect_compiled(small, what, false);
  EXPECT_FALSE(fs::exists(small.path_of(key_of("1").digest())));
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_THAT(small.write(key_of("4").digest(), std::string(3 * one + 1, 'x')), HasSubstr("more than the cache"));
  EXPECT_EQ(files_in(home_.path() / "small"), 4U);
}

TEST_F(CodeCacheTest, ProcessesAtOnce) {
  // Room for two of four: what one process wants another removes.
  const CacheFolder shared(home_.path() / "shared", 2 * format_entry({}, made_from("0")).size());
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      bool right = true;
      for (int i = 0; i < 400; ++i) {
        const std::string what = std::to_string((i + process) % 4);
        const Start result = start(shared, what);
        right = right && result.compiled == made_from(what);
      }
      _exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  for (const auto& file : fs::directory_iterator(home_.path() / "shared")) {
    EXPECT_EQ(file.path().extension(), ".gpumap");
  }
}

TEST_F(CodeCacheTest, FolderFromTheEnvironment) {
  const auto folder = [](const char* own, const char* caches, const char* home) {
    const auto set = [](const char* name, const char* value) {
      value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    };
    set("GPUMAP_CACHE", own);
    set("XDG_CACHE_HOME", caches);
    set("HOME", home);
    const auto found = CacheFolder::of_user();
    return found ? found->path_of({}).parent_path().string() : std::string();
  };
  EXPECT_EQ(folder("/own", "/caches", "/home/u"), "/own");
  EXPECT_EQ(folder("own/", "/caches", "/home/u"), fs::current_path() / "own");
  EXPECT_THAT(folder("", "/caches", "/home/u"), IsEmpty());
  EXPECT_EQ(folder(nullptr, "/caches", "/home/u"), "/caches/gpumap");
  EXPECT_EQ(folder(nullptr, "caches", "/home/u"), "/home/u/.cache/gpumap");
  EXPECT_EQ(folder(nullptr, "", "/home/u"), "/home/u/.cache/gpumap");
  EXPECT_THAT(folder(nullptr, nullptr, nullptr), IsEmpty());
  setenv("GPUMAP_CACHE", "", 1);
}

// What the compilers' results depend on, and so what their place in the cache must depend on. No GPU needed.

namespace fs = std::filesystem;

constexpr std::array<OwnHeader, 2> own{{{"gpumap/kernel.h", "text"}, {"gpumap/grid.h", "more"}}};

TEST(CacheKeyTest, Sha256) {
  // FIPS 180-2, appendix B.1
  const Digest digest = sha256("abc");
  EXPECT_THAT(std::vector(digest.begin(), digest.begin() + 4), ::testing::ElementsAre(0xba, 0x78, 0x16, 0xbf));
}

TEST(CacheKeyTest, FieldsDoNotRunTogether) {
  std::vector<Digest> digests;
  for (const auto& fields : std::vector<std::vector<std::string>>{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {}}) {
    CacheKey key;
    for (const std::string& field : fields) key.add(field);
    EXPECT_TRUE(key.usable());
    digests.push_back(key.digest());
  }
  const auto source = [&](std::string_view name, std::string_view code, std::span<const OwnHeader> headers) {
    CacheKey key;
    key.add_source(name, code, headers);
    EXPECT_TRUE(key.usable());
    digests.push_back(key.digest());
  };
  source("a.cu", "x", own);
  source("b.cu", "x", own);
  source("a.cu", "y", own);
  source("a.cu", "x", std::span(own).first(1));
  const std::array<OwnHeader, 2> edited{own[0], {"gpumap/grid.h", "edited"}};
  source("a.cu", "x", edited);
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
}

TEST(CacheKeyTest, AnUnknownCompilerIsUnusable) {
  CacheKey key;
  key.add_compiler(identity_of_code(&own));
  EXPECT_TRUE(key.usable());
  key.add_compiler({});
  EXPECT_FALSE(key.usable());
}

TEST(CacheKeyTest, SourcesThatMayLookAtOtherFilesAreUnusable) {
  const auto usable = [](std::string_view code) {
    CacheKey key;
    key.add_source("x.cu", code, own);
    return key.usable();
  };
  for (const char* code : {
           "",
           "int x;",
           "#include <gpumap/kernel.h>",
           "\t#  include\t<gpumap/grid.h> // include\nint x;",
           "#\\\ninclude <gpumap/grid.h>\n",
           "// what to include: \"more.h\"\n",
           "int include = 1; int has_included;",
           "#include <gpumap/kernel.h>\r\n#include <gpumap/grid.h>\r\n",
           "int embedded(int included);",
       }) {
    EXPECT_TRUE(usable(code)) << code;
  }
  for (const char* code : {
           "#include \"mine.h\"",
           "#include <cuda_fp16.h>",
           "#include <gpumap/kernel.hpp>",
           "#include \"gpumap/grid.h\"",
           "#include <gpumap/grid.h.in>",
           "#include<stdint.h>",
           "# /* */ include <x.h>",
           "#\finclude <x.h>",
           "# \v include <x.h>",
           "# /*\n*/include <x.h>",
           "%:include <x.h>",
           "#\\\ninclude <x.h>",
           "#inc\\\nlude <x.h>",
           "#inc\\\r\nlude <x.h>",
           "#define H <x.h>\n#include H",
           "#if __has_include(<x.h>)",
           "#include_next <gpumap/grid.h>",
           "#include",
           "#embed \"table\"",
           "#if __has_embed(\"x\")",
           "asm(\".include \\\"x.ptx\\\"\");",
           "const char* built = __DATE__;",
           "__TIME__",
           "__TIMESTAMP__",
           "#include <gpumap/kernel.h>\n#include <x.h>\n",
       }) {
    EXPECT_FALSE(usable(code)) << code;
  }
}

class CompileCacheTest : public ::testing::Test {
 protected:
  /// How often a new process would compile.
  template <typename Build>
  std::uint64_t compilations(Build&& build) {
    CodeCache cache{CacheFolder(home_.path() / "cache")};
    build(cache);
    return cache.counts().compiled;
  }

  TemporaryFolder home_;
};

class GlslCacheTest : public CompileCacheTest {
 protected:
  std::uint64_t compilations(const KernelSource& source) {
    return CompileCacheTest::compilations([&](CodeCache& cache) {
      CodeCache none(std::nullopt);
      EXPECT_EQ(build_glsl(source, cache), build_glsl(source, none));
    });
  }
};

TEST_F(GlslCacheTest, BuiltInsAndUsersSources) {
  for (const Builtin& builtin : builtins()) {
    if (!builtin.kernels.empty()) continue;  // may share kernels with another
    const KernelSource source = source_of(builtin, Backend::vulkan);
    EXPECT_EQ(compilations(source), 1U) << source.name;
    EXPECT_EQ(compilations(source), 0U) << source.name;
  }
  KernelSource user = load_kernel_file(fs::path(GPUMAP_EXAMPLES) / "kernels" / "invert.comp");
  EXPECT_EQ(compilations(user), 1U);
  EXPECT_EQ(compilations(user), 0U);
  user.code += "\n";
  EXPECT_EQ(compilations(user), 1U);
  user.name += "2";
  EXPECT_EQ(compilations(user), 1U);
}

TEST_F(GlslCacheTest, AnEditedIncludeIsSeen) {
  const KernelSource source{.language = Language::glsl,
                            .name = home_.path() / "x.comp",
                            .code =
                                "#version 460\n#include <gpumap.glsl>\n#include \"value.glsl\"\n"
                                "void main() { store_u8(frame.result, VALUE); }\n",
                            .function = {}};
  std::vector<std::string> built;
  for (const char* value : {"1u", "2u"}) {
    std::ofstream(home_.path() / "value.glsl") << "#define VALUE " << value << '\n';
    CodeCache cache{CacheFolder(home_.path() / "cache")};
    built.push_back(build_glsl(source, cache));
    EXPECT_EQ(cache.counts().compiled, 1U);
  }
  EXPECT_NE(built[0], built[1]);
}

TEST_F(GlslCacheTest, ErrorsComeEveryTime) {
  const KernelSource source{
      .language = Language::glsl, .name = "x.comp", .code = "#version 460\nerror", .function = {}};
  CodeCache cache{CacheFolder(home_.path() / "cache")};
  for (int i = 0; i < 2; ++i) EXPECT_THROW(static_cast<void>(build_glsl(source, cache)), Error);
  EXPECT_FALSE(fs::exists(home_.path() / "cache"));
}

class CudaCacheTest : public CompileCacheTest {
 protected:
  void SetUp() override {
    try {
      static_cast<void>(compile_cuda(source_of(*find_builtin("identity"), Backend::cuda), "sm_90"));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::no_driver) throw;
      GTEST_SKIP() << error.what();
    }
  }

  std::uint64_t compilations(const KernelSource& source, std::string_view architecture = "sm_90") {
    return CompileCacheTest::compilations([&](CodeCache& cache) {
      CodeCache none(std::nullopt);
      const CudaBinary kept = build_cuda(source, architecture, cache);
      const CudaBinary fresh = build_cuda(source, architecture, none);
      EXPECT_EQ(kept.code.size(), fresh.code.size());
      EXPECT_EQ(kept.function, fresh.function);
    });
  }
};

TEST_F(CudaCacheTest, SourceArchitectureAndName) {
  KernelSource source = source_of(*find_builtin("identity"), Backend::cuda);
  EXPECT_EQ(compilations(source), 1U);
  EXPECT_EQ(compilations(source), 0U);
  EXPECT_EQ(compilations(source, "sm_80"), 1U);
  EXPECT_EQ(compilations(source, "sm_999"), 1U);  // PTX for the newest that NVRTC knows
  EXPECT_EQ(compilations(source, "sm_999"), 0U);
  EXPECT_EQ(compilations(source), 0U);
  source.code += "\n";
  EXPECT_EQ(compilations(source), 1U);
  source.name = "other.cu";
  EXPECT_EQ(compilations(source), 1U);
}

TEST_F(CudaCacheTest, OptionsCount) {
  const KernelSource source = source_of(*find_builtin("identity"), Backend::cuda);
  EXPECT_EQ(compilations(source), 1U);
  const char* before = std::getenv("CUDA_PATH");
  const std::string kept = before == nullptr ? "" : before;
  setenv("CUDA_PATH", home_.path().c_str(), 1);
  EXPECT_EQ(compilations(source), 1U);
  before == nullptr ? unsetenv("CUDA_PATH") : setenv("CUDA_PATH", kept.c_str(), 1);
  EXPECT_EQ(compilations(source), 0U);
}

TEST_F(CudaCacheTest, OneCompilationServesAllFunctionsOfAFile) {
  KernelSource source{.language = Language::cuda,
                      .name = "two.cu",
                      .code =
                          "#include <gpumap/kernel.h>\n"
                          "extern \"C\" __global__ void one(gpumap_frame frame) {}\n"
                          "extern \"C\" __global__ void two(gpumap_frame frame) {}\n",
                      .function = "one"};
  EXPECT_EQ(compilations(source), 1U);
  source.function = "two";
  EXPECT_EQ(compilations(source), 0U);
  source.function = "three";
  EXPECT_THROW(compilations(source), Error);
}

TEST_F(CudaCacheTest, AnEditedIncludeIsSeen) {
  const fs::path file = home_.path() / "x.cu";
  std::ofstream(file) << "#include <gpumap/kernel.h>\n#include \"value.h\"\n"
                         "extern \"C\" __global__ void x(gpumap_frame frame) { *(int*)frame.result = VALUE; }\n";
  const KernelSource source = load_kernel_file(file);
  std::vector<std::string> built;
  for (const char* value : {"11", "22"}) {
    std::ofstream(home_.path() / "value.h") << "#define VALUE " << value << '\n';
    CodeCache cache{CacheFolder(home_.path() / "cache")};
    built.push_back(build_cuda(source, "sm_90", cache).code);
    EXPECT_EQ(cache.counts().compiled, 1U);
  }
  EXPECT_NE(built[0], built[1]);
}

// Were a file of that name on disk taken, what the key calls known text would not be.
TEST_F(CudaCacheTest, OwnHeadersComeFromMemory) {
  fs::create_directory(home_.path() / "gpumap");
  std::ofstream(home_.path() / "gpumap" / "kernel.h") << "#error from disk\n";
  const fs::path file = home_.path() / "x.cu";
  std::ofstream(file) << "#include <gpumap/kernel.h>\nextern \"C\" __global__ void x(gpumap_frame frame) {}\n";
  CodeCache cache(std::nullopt);
  EXPECT_EQ(build_cuda(load_kernel_file(file), "sm_90", cache).function, "x");
}

}  // namespace
}  // namespace gpumap
