#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Find waits that nothing ends but what they wait for: the GPU, or another thread.

A kernel may run for ever, and a pipeline has to stop all the same. So a wait takes a deadline or can be cancelled. The
others are listed, unless a comment between the statement before and the wait says why it ends: "// Ends: ...".
Statements are read whole, however their lines are broken.

  find_waits.py FILE...   prints "file:line: statement" of each; exits with 1 where there is one
"""
import re
import sys

COMMENT_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|->|::|\S")
# Calls that have no deadline, and calls whose arguments say that they have none.
BARE = re.compile(r"[cC]u(da)?(Stream|Ctx|Event|Device)Synchronize|[wW]aitIdle|vk(Queue|Device)WaitIdle|\w*[a-z]WaitIdle")
WITH_LIMIT = re.compile(r"\w*[wW]ait\w*(Fences|Semaphores)|wait|wait_for|wait_until")
NO_LIMIT = {"no_deadline", "UINT64_MAX", "INT64_MAX", "forever", "~"}
FUTURE = re.compile(r"\bfuture<[^;(){}]*>&?\s+(\w+)\s*[;{=,)]")


def blanked(text, ends):
    """`text` without comments and strings, its lines kept; where a comment says why a wait ends goes to `ends`."""

    def blank(match):
        found = match.group(0)
        if found.startswith("//") and re.match(r"// Ends: \S", found):
            ends.append(match.start())
        return re.sub(r"[^\n]", " ", found)

    return COMMENT_STRING.sub(blank, text)


def arguments(tokens, at):
    """What is between the parenthesis at `at` and its end."""
    depth = 0
    for end in range(at, len(tokens)):
        depth += (tokens[end] == "(") - (tokens[end] == ")")
        if depth == 0:
            return tokens[at + 1 : end]
    return tokens[at + 1 :]


def is_bare(tokens, at, futures):
    name = tokens[at]
    if at + 1 >= len(tokens) or tokens[at + 1] != "(":
        return False
    given = arguments(tokens, at + 1)
    member = at > 0 and tokens[at - 1] in (".", "->")
    if BARE.fullmatch(name):
        return True
    if name == "join" and member:
        return not given
    if name == "get" and member and not given:
        return at > 1 and tokens[at - 2] in futures
    if not WITH_LIMIT.fullmatch(name):
        return False
    if name == "wait" and member and given in ([], ["never"]):
        return True
    without_limit = any(one in NO_LIMIT for one in given)
    largest = any(given[i : i + 3] == ["max", "(", ")"] for i in range(len(given)))
    # A wait that can be cancelled needs no deadline.
    if name == "wait":
        return member and (without_limit or largest) and given[0] == "never"
    return (member or name.startswith("vk")) and (without_limit or largest)


def waits_in(text, futures):
    """Lines and statements."""
    ends = []
    code = blanked(text, ends)
    found = [(match.group(0), match.start()) for match in TOKEN.finditer(code)]
    tokens = [token for token, _ in found]
    begin = 0  # of the statement: its first token
    waits = []
    for at, token in enumerate(tokens):
        if token in (";", "{", "}"):
            begin = at + 1
        elif is_bare(tokens, at, futures):
            before = found[begin - 1][1] if begin > 0 else -1
            if any(before < place < found[at][1] for place in ends):
                continue
            end = code.find(";", found[at][1])
            statement = " ".join(code[found[begin][1] : end + 1 if end >= 0 else len(code)].split())
            waits.append((code.count("\n", 0, found[at][1]) + 1, statement))
    return waits


def check_self():
    """The check finds what it is for."""
    for bare in [
        "x.submit().wait();",
        "x.submit()\n  .wait(\n  );",
        "x\n->\nwait( /* for ever */ );",
        "driver.cuStreamSynchronize(\n    stream);",
        "check(driver\n  .cuCtxSynchronize\n  (), \"text\");",
        "device.waitIdle();",
        "vkDeviceWaitIdle(device);",
        "fence.wait(never);",
        "fence.wait(never,\n  no_deadline);",
        "fence.wait_for(std::chrono::nanoseconds::max());",
        "device.waitForFences(*fence, VK_TRUE,\n  UINT64_MAX);",
        "vkWaitSemaphores(device, &info, ~0ULL);",
        "for (auto& one : all) one.join();",
        "if (thread_.joinable())\n  thread_.join();",
        "a = loading_\n  .get();",
        "// Ends: of another statement.\na = b;\nfence.wait();",
        's = "// Ends: in a text"; fence.wait();',
    ]:
        assert waits_in("void f() { a(); " + bare + " }", {"loading_"}), bare
    for fine in [
        "// Ends: it is known to.\n  // In two lines.\n  x.submit()\n  .wait();",
        "fence.wait(cancel);",
        "fence.wait(cancel, no_deadline);",
        "fence.wait(never, end);",
        "changed_.wait(lock, [] { return true; });",
        "device.waitForFences(*fence, VK_TRUE, 1000);",
        "// x.wait();",
        's = "x.wait();";',
        "X(cuStreamSynchronize, cuStreamSynchronize, CUstream stream)",
        "a = pointer.get();",
        "fan.join(index, clients);",
        "path.join(other);",
    ]:
        assert not waits_in("void f() { a(); " + fine + " }", {"loading_"}), fine


def main():
    check_self()
    texts = {}
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            texts[path] = file.read()
    futures = {name for text in texts.values() for name in FUTURE.findall(text)}
    count = 0
    for path, text in texts.items():
        for line, statement in waits_in(text, futures):
            print(f"{path}:{line}: {statement}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
