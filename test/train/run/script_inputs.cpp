// The scripts with accidental inputs: damaged packages and rows, control characters, no network.
#include "test/script_helpers.h"

// A database of R with a damaged index or novel: a single line names the package.
TEST(austen_refuses_broken_packages) {
    const std::string f = made("broken_package");
    const auto ran = test::run("cd " + f + "; PYTHONPATH=$OLDPWD/data " + python() + R"py( - <<'EOF'
import gzip, struct, zlib, austen
I = lambda *x: struct.pack(">%di" % len(x), *x)
text = lambda s: I(0x40009, len(s)) + s
names = lambda *n: I(0x402) + I(1) + text(b"names") + I(16, len(n)) + b"".join(map(text, n)) + I(254)
head = b"X\n" + I(2, 0, 0)
def index(value):
    return zlib.compress(head + I(19 | 0x200, 1) + value + names(b"variables"))
variables = [v.encode() for _, v, _, _ in austen.NOVELS]
novel = zlib.compress(head + I(14, 1) + struct.pack(">d", 0.5))
blob = struct.pack(">I", 18 + 8) + novel
places = I(19 | 0x200, 6) + I(13, 2, 0, len(blob)) * 6 + names(*variables)
broken = [(zlib.compress(head + I(254)), b""), (zlib.compress(head + I(13, 0)), b""),
          (zlib.compress(head + I(*[1] * 5000)), b""), (b"\x1f\x8b\x08" + bytes(5), b""), (b"", b""),
          (index(I(254)), b""), (index(I(13, 1, 7)), b""), (index(places), b""), (index(places), blob),
          (index(I(19 | 0x200, 1) + I(13, 2, 0, 9) + names(b"\x1b[2J")), blob)]
for at, (rdx, rdb) in enumerate(broken):
    open("Rdata.rdx", "wb").write(rdx), open("Rdata.rdb", "wb").write(rdb)
    try:
        austen.novels_of(".", "x.deb")
        assert False, at
    except SystemExit as e:
        said = str(e.code)
        assert said.startswith("error: x.deb: the novels in it") and said.isprintable(), (at, said)
EOF)py");
    EXPECT(ran.code == 0, "%s", ran.err.c_str());
}

// A single line and no second try: nobody listens, the server is silent, or answers with garbage.
TEST(fineweb_without_a_network) {
    const auto ran =
        test::run("timeout 60 data/fineweb.py --shards 2 --base-url=http://127.0.0.1:1/x --out " +
                  made("no_network"));
    expect_error(ran, {"error: 127.0.0.1:1 cannot be reached: Connection refused", "--base-url"});
    EXPECT(ran.out.empty() && ran.err.find('\n') == ran.err.size() - 1, "'%s' '%s'", ran.out.c_str(),
           ran.err.c_str());
    const auto asked = test::run("PYTHONPATH=data " + python() + R"py( - <<'EOF'
import socket, threading, fineweb
server = socket.create_server(("127.0.0.1", 0))
url = "http://127.0.0.1:%d/x" % server.getsockname()[1]
try:
    fineweb.look_for_server(url, 0.3, "task files")
    assert False, "a silent server"
except fineweb.Wrong as e:
    assert "cannot be reached" in str(e) and "copy task files from" in str(e), e
def answer():
    while True:
        peer = server.accept()[0]
        peer.recv(4096)
        peer.sendall(b"HTTP/1.0 404 \x1b[2J\r\n\r\n")
        peer.close()
threading.Thread(target=answer, daemon=True).start()
fineweb.look_for_server(url, 60, "shards")
assert fineweb.printable("\x1b\ud800\u00e9") == "\\x1b\\ud800\u00e9"
EOF)py");
    EXPECT(asked.code == 0, "%s", asked.err.c_str());
}

// Where only step 0 is validated, too.
TEST(the_plot_has_each_validation_loss) {
    const auto ran = test::run("PYTHONPATH=scripts " + python() + R"py( - <<'EOF'
import plot
training = [3.5 + 4.8 / (1 + i / 9) for i in range(800)]
for validation in ([8.357], [8.357, 4.0, 5.2], [], [9.0, 0.5]):
    low, high = plot.loss_limits(training, validation)
    assert all(low < loss < high for loss in validation + training[20:]), (low, high, validation)
assert plot.last_of([0], [8.357]) == ", 8.357 at the start" and plot.last_of([], []) == ""
assert plot.last_of([0, 5], [8.357, 4]) == ", 4.000 at the end"
EOF)py");
    EXPECT(ran.code == 0, "%s", ran.err.c_str());
}

TEST(rows_that_no_run_writes) {
    const std::string f = made("rows"), huge(400, '9');
    const std::string row = "{\"event\":\"val\",\"step\":1,\"loss\":" + huge + "}\n",
                      sample =
                          "{\"event\":\"sample\",\"step\":1,\"text\":\"\\u001b[2J \\ud800 \\u009b\\nb\"}\n";
    write(f + "/metrics.jsonl", row + sample);
    const auto ran = test::run(python() + " scripts/summary.py " + f);
    EXPECT(ran.code == 0 && has(ran.out, "\\x1b[2J \\ud800 \\x9b") && ran.out.find('\x1b') == ran.out.npos,
           "%d %s%s", ran.code, ran.out.c_str(), ran.err.c_str());
    for (const std::string& line : {"{\"event\":\"val\",\"step\":" + huge + "}\n",
                                    std::string(100000, '[') + "\n", std::string("\x1b[2J\n")}) {
        write(f + "/metrics.jsonl", line);
        for (const char* script : {"plot.py ", "summary.py "}) {
            const auto refused = test::run(python() + " scripts/" + script + f);
            expect_error(refused, {"metrics.jsonl:1"});
            EXPECT(refused.err.find('\x1b') == refused.err.npos, "%s", refused.err.c_str());
        }
    }
}
