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
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|->|::|\S")
# Calls that have no deadline: of the GPU; of the driver, which waits until the GPU runs nothing, or copies at once; of
# threads.
BARE = re.compile(
    r"[cC]u(da)?(Stream|Ctx|Event|Device)Synchronize|[wW]aitIdle|vk(Queue|Device)WaitIdle|\w*[a-z]WaitIdle"
    r"|cuMemFree(Host)?|cuMemHostUnregister|cuDestroyExternalMemory|cuModule(Unload|LoadData(Ex)?)|cuCtxDestroy"
    r"|cuDevicePrimaryCtx(Release|Reset)|cuMemcpy(HtoD|DtoH|DtoD)?"
    r"|g_thread_join|pthread_join|gst_task_join|g_cond_wait|pthread_cond_wait|sem_wait|g_async_queue_pop"
)
# Those of objects, without an argument.
BARE_MEMBER = {"wait", "join", "arrive_and_wait"}
# Calls whose arguments say whether there is an end.
WITH_LIMIT = re.compile(
    r"\w*[wW]ait\w*(Fences|Semaphores)|wait|wait_for|wait_until|gst_element_get_state|gst_bus_timed_pop(_filtered)?"
    r"|(e|p)?poll|epoll_wait"
)
NO_LIMIT = {"no_deadline", "UINT64_MAX", "INT64_MAX", "GST_CLOCK_TIME_NONE", "forever", "~", "-"}
# Wherever they stand.
BARE_WORDS = {"eWait", "VK_QUERY_RESULT_WAIT_BIT", "jthread"}
FUTURE = re.compile(r"future<[^;(){}]*>&?\s+(\w+)\s*[;{=,)]|\b(\w+)\s*=\s*[^;{}]*?(?:\basync|\bget_future)\s*\(")
NEVER = re.compile(r"\bconst\s+(?:static\s+)?(?:std::)?atomic<bool>\s+(\w+)\s*[;{=(]")
LOCK = re.compile(r"\bunique_lock(?:<[^;(){}]*>)?\s+(\w+)\s*[;{(]")
RANGE = re.compile(r"\bfor\s*\([^;(){}]*?(\w+)\s*:\s*(\w+)\s*\)")


def blanked(text, ends):
    """`text` without comments and strings, its lines kept; where a comment says why a wait ends goes to `ends`."""

    def blank(match):
        found = match.group(0)
        if found.startswith("//") and re.match(r"// Ends: \S", found):
            ends.append(match.start())
        return re.sub(r"[^\n]", " ", found)

    return COMMENT_STRING.sub(blank, text)


class Names:
    """What files declare that waits are known by. Of all files together, for headers declare what others use."""

    def __init__(self, texts):
        codes = [blanked(text, []) for text in texts]
        self.futures = {one or other for code in codes for one, other in FUTURE.findall(code)} | {"async", "get_future"}
        for one, many in [pair for code in codes for pair in RANGE.findall(code)]:
            if many in self.futures:
                self.futures.add(one)
        self.nevers = {"never"} | {name for code in codes for name in NEVER.findall(code)}
        self.locks = {name for code in codes for name in LOCK.findall(code)}


def arguments(tokens, at):
    """What is between the parenthesis at `at` and its end, each one."""
    depth = 0
    made = [[]]
    for token in tokens[at:]:
        depth += (token in "([{") - (token in ")]}")
        if depth == 0:
            break
        if token == "," and depth == 1:
            made.append([])
        elif depth > 1 or token != "(" or made != [[]]:
            made[-1].append(token)
    return [one for one in made if one]


def object_of(tokens, at):
    """The names in what stands before the point or arrow at `at`: of a.b().c[1]-> these are a, b and c."""
    names = []
    at -= 1
    while at >= 0:
        if tokens[at] in ")]":
            depth = 0
            while at >= 0:
                depth += (tokens[at] in ")]") - (tokens[at] in "([")
                at -= 1
                if depth == 0:
                    break
            if at >= 0 and re.match(r"\w", tokens[at]) and tokens[at] not in ("return", "if", "while", "for"):
                continue
            return names
        names.append(tokens[at])
        if at == 0 or tokens[at - 1] not in (".", "->", "::"):
            return names
        at -= 2
    return names


def has_no_limit(argument):
    largest = any(argument[i : i + 3] == ["max", "(", ")"] for i in range(len(argument)))
    return largest or argument[0] in NO_LIMIT or argument[-1] in NO_LIMIT


def never_cancels(argument, names):
    return (len(argument) == 1 and argument[0] in names.nevers) or (
        argument[-1] in ")}" and "atomic" in argument and "bool" in argument
    )


def is_bare_loop(tokens, at):
    """It goes on until the GPU is done, whatever else happens."""
    end = at + 2
    depth = 1
    while end < len(tokens) and depth != 0:
        depth += (tokens[end] == "(") - (tokens[end] == ")")
        end += 1
    condition = tokens[at + 2 : end - 1]
    return any(one in ("signalled", "completed") for one in condition) and not {"&", "|"} & set(condition)


def is_bare(tokens, at, names):
    name = tokens[at]
    if name in BARE_WORDS:
        return True
    if name == "join" and tokens[at - 2 : at] == ["thread", "::"]:
        return True
    if at + 1 >= len(tokens) or tokens[at + 1] != "(":
        return False
    if name == "while":
        return is_bare_loop(tokens, at)
    # Its future waits for it in the end, if nobody else does.
    if BARE.fullmatch(name) or (name == "async" and tokens[at - 2 : at] == ["std", "::"]):
        return True
    given = arguments(tokens, at + 1)
    member = at > 0 and tokens[at - 1] in (".", "->")
    if name == "get" and member and not given:
        return bool(names.futures & set(object_of(tokens, at - 1)))
    if member and name in BARE_MEMBER and not given:
        return True
    if member and name == "acquire" and not given:
        return any("sem" in one for one in object_of(tokens, at - 1))
    if not given or not WITH_LIMIT.fullmatch(name):
        return False
    if name != "wait":
        return (member or "_" in name or name.startswith("vk") or name == "poll") and any(map(has_no_limit, given))
    if not member:
        return False
    # A lock without what is waited for; or a word of memory.
    if len(given) == 1 and (given[0][0] in names.locks or re.match(r"true|false|\d", given[0][0])):
        return True
    if any(one.startswith("memory_order") for one in given[-1]):
        return True
    # A wait that can be cancelled needs no deadline.
    for i, one in enumerate(given):
        if never_cancels(one, names):
            return i + 1 == len(given) or has_no_limit(given[i + 1])
    return False


def waits_in(text, names):
    """Lines and statements."""
    ends = []
    code = blanked(text, ends)
    found = [(match.group(0), match.start()) for match in TOKEN.finditer(code)]
    tokens = [token for token, _ in found]
    begin = 0  # of the statement: its first token
    inside = []  # of what it stands: parentheses and braces
    waits = []
    for at, token in enumerate(tokens):
        if token in ("(", "{"):
            inside.append(token)
        elif token in (")", "}") and inside:
            inside.pop()
        if token in ("{", "}") or (token == ";" and inside[-1:] != ["("]):
            begin = at + 1
        elif is_bare(tokens, at, names):
            before = found[begin - 1][1] if begin > 0 else -1
            if any(before < place < found[at][1] for place in ends):
                continue
            end = code.find(";", found[at][1])
            statement = " ".join(code[found[begin][1] : end + 1 if end >= 0 else len(code)].split())
            waits.append((code.count("\n", 0, found[at][1]) + 1, statement))
    return waits


def check_self():
    """The check finds what it is for."""
    declared = """
        std::future<News> loading_; std::shared_future<int> shared_; std::vector<std::future<int>> parts;
        void g(std::vector<std::future<int>>& all) { for (auto& part : all) auto made = std::async(run); }
        const std::atomic<bool> nobody{false}; std::unique_lock lock(mutex_);
    """
    names = Names([declared])
    for bare in [
        "x.submit().wait();",
        "x.submit()\n  .wait(\n  );",
        "x\n->\nwait( /* for ever */ );",
        "driver.cuStreamSynchronize(\n    stream);",
        "check(driver\n  .cuCtxSynchronize\n  (), \"text\");",
        "driver.cuMemFreeHost(memory);",
        "driver_.cuModuleUnload(handle_);",
        "driver.cuMemcpyDtoH(to, from, bytes);",
        "device.waitIdle();",
        "vkDeviceWaitIdle(device);",
        "fence.wait(never);",
        "fence.wait(never,\n  no_deadline);",
        "fence.wait(never, Deadline::max());",
        "fence.wait(nobody);",
        "fence.wait(std::atomic<bool>{false});",
        "fence.wait(std::atomic<bool>(false), no_deadline);",
        "queue->wait(fence, never);",
        "queue->wait({timeline, 1}, nobody);",
        "while (!fence.signalled()) std::this_thread::yield();",
        "while (timeline->completed() < value) {\n}",
        "fence.wait_for(std::chrono::nanoseconds::max());",
        "device.waitForFences(*fence, VK_TRUE,\n  UINT64_MAX);",
        "device.waitSemaphores(info, -1);",
        "vkWaitSemaphores(device, &info, ~0ULL);",
        "times.getResult<T>(0, 2, 8, Flag::e64 | Flag::eWait);",
        "for (auto& one : all) one.join();",
        "if (thread_.joinable())\n  thread_.join();",
        "std::ranges::for_each(all, &std::thread::join);",
        "std::jthread thread(run);",
        "g_thread_join(thread);",
        "a = loading_\n  .get();",
        "a = shared_.get();",
        "a = made.get();",
        "part.get();",
        "parts[i + f(1)].get();",
        "parts.front().get();",
        "promise.get_future().get();",
        "std::async(run);",
        "changed_.wait(lock);",
        "word_.wait(seen, std::memory_order_acquire);",
        "done_.wait(false);",
        "semaphore_.acquire();",
        "g_cond_wait(&cond, &mutex);",
        "gst_element_get_state(pipeline, nullptr, nullptr, GST_CLOCK_TIME_NONE);",
        "poll(&one, 1, -1);",
        "f(1'000), fence.wait(), g(2'000);",
        "// Ends: of another statement.\n  f([&] { a = b; fence.wait(); });",
        "// Ends: of another statement.\na = b;\nfence.wait();",
        's = "// Ends: in a text"; fence.wait();',
    ]:
        assert waits_in("void f() { a(); " + bare + " }", names), bare
    for fine in [
        "// Ends: it is known to.\n  // In two lines.\n  x.submit()\n  .wait();",
        "fence.wait(cancel);",
        "fence.wait(cancel, no_deadline);",
        "fence.wait(never, end);",
        "queue->wait(fence, cancel);",
        "changed_.wait(lock, [] { return true; });",
        "device.waitForFences(*fence, VK_TRUE, 1000);",
        "while (!fence.signalled() && Clock::now() < end) {\n}",
        "// x.wait();",
        's = "x.wait();";',
        "X(cuStreamSynchronize, cuStreamSynchronize, CUstream stream)",
        "driver.cuMemcpyAsync(to, from, bytes, stream);",
        "// Ends: it is known to.\n  if (const Scope scope(x); scope) fence.wait();",
        "a = pointer.get();",
        "a = f(parts).get();",
        "fan.join(index, clients);",
        "path.join(other);",
        "ring.acquire(lease, when_full);",
        "served.acquire();",
        "poll(&one, 1, 100);",
    ]:
        assert not waits_in("void f() { a(); " + fine + " }", names), fine


def main():
    check_self()
    texts = {}
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            texts[path] = file.read()
    names = Names(texts.values())
    count = 0
    for path, text in texts.items():
        for line, statement in waits_in(text, names):
            print(f"{path}:{line}: {statement}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
