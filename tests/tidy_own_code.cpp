// SPDX-License-Identifier: MIT
//
// A plugin of clang-tidy: its checks walk through this project's declarations only. By itself clang-tidy also walks
// through each header of Vulkan, GStreamer and GoogleTest that a file includes, finds thousands of faults there and
// throws them away, which takes longer than everything else. Nothing that it would print is lost.
#include <clang-tidy/ClangTidyCheck.h>
#include <clang-tidy/ClangTidyModule.h>
#include <clang-tidy/ClangTidyModuleRegistry.h>
#include <clang/AST/ASTContext.h>
#include <clang/ASTMatchers/ASTMatchFinder.h>

#include <vector>

namespace {

class OwnCodeCheck : public clang::tidy::ClangTidyCheck {
 public:
  using ClangTidyCheck::ClangTidyCheck;

  void registerMatchers(clang::ast_matchers::MatchFinder* finder) override {
    finder->addMatcher(clang::ast_matchers::translationUnitDecl(), this);
  }

  // The whole file is matched before what is in it: the walk then goes only where this says.
  void check(const clang::ast_matchers::MatchFinder::MatchResult& result) override {
    std::vector<clang::Decl*> own;
    for (clang::Decl* declaration : result.Context->getTranslationUnitDecl()->noload_decls()) {
      const auto location = result.SourceManager->getExpansionLoc(declaration->getLocation());
      if (!result.SourceManager->isInSystemHeader(location)) own.push_back(declaration);
    }
    result.Context->setTraversalScope(own);
  }
};

class OwnCodeModule : public clang::tidy::ClangTidyModule {
 public:
  void addCheckFactories(clang::tidy::ClangTidyCheckFactories& factories) override {
    factories.registerCheck<OwnCodeCheck>("gpumap-own-code");
  }
};

const clang::tidy::ClangTidyModuleRegistry::Add<OwnCodeModule> own_code("gpumap", "this project's declarations only");

}  // namespace
