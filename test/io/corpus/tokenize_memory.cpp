// Memory of ./tokenize: bounded whatever the text, and by the longest word.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "test/test.h"

using test::folder;

static const std::string kRanks = " --tokenizer=test/data/tokenizer/hf.tiktoken ";

// Largest resident memory of a command, in MB. The sanitizers' quarantine of freed memory is kept small.
static double peak_of(const std::string& command) {
    const pid_t child = fork();
    if (child == 0) {
        setenv("ASAN_OPTIONS", "quarantine_size_mb=1", 1);
        execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
        _exit(127);
    }
    int status = 0;
    rusage used = {};
    CHECK_INPUT(child > 0 && wait4(child, &status, 0, &used) == child, "no process");
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d of %s", status, command.c_str());
    return double(used.ru_maxrss) * 1024 / 1e6;
}

TEST(memory_does_not_grow_with_the_text) {
    // lines of words and numbers, which no cache holds all of
    const std::string line = "It was the best of times, it was the worst of times: ";
    const auto write = [&](const std::string& path, size_t megabytes) {
        NewFile f(path);
        uint64_t n = 1;
        for (size_t m = 0; m < megabytes; m++) {
            std::string block;
            while (block.size() < 1000000) {
                n = n * 6364136223846793005 + 1442695040888963407;
                for (int i = 0; i < 20; i++) block += line;
                block += std::to_string(n % 1000000) + "\n";
            }
            f.write(block.data(), block.size());
        }
        f.commit(false);
    };
    write(folder("small.txt"), 5), write(folder("large.txt"), 60);
    const std::string encode = "./tokenize encode --threads=2" + kRanks + "--out=" + folder("m") + " ";
    const double small = peak_of(encode + folder("small.txt") + " >/dev/null"),
                 large = peak_of(encode + folder("large.txt") + " >/dev/null"),
                 piped = peak_of(encode + "- >/dev/null <" + folder("large.txt"));
    EXPECT(large < small + 15 && piped < small + 15, "%.1f MB for 5 MB of text, %.1f and %.1f for 60", small,
           large, piped);
}

// Three words of 8 MB: the threads have one at a time.
TEST(memory_of_a_long_word) {
    if (test::kAddressSanitizer || test::kThreadSanitizer)
        return test::skip("a sanitizer has memory of its own");
    std::string word, short_text;
    while (word.size() < 8'000'000) word += "ab";
    for (int i = 0; i < 1000; i++) short_text += "hello world ";
    write_file(folder("words.txt"), word + " " + word + " " + word);
    write_file(folder("few.txt"), short_text);
    const std::string commands[] = {"encode" + kRanks + "--out=" + folder("w"),
                                    "train --vocab=300 --out=" + folder("w.json")};
    for (const std::string& command : commands) {
        const std::string run = "./tokenize " + command + " --threads=3 >/dev/null ";
        const double few = peak_of(run + folder("few.txt")), words = peak_of(run + folder("words.txt"));
        EXPECT(words < few + 16 * 8, "%s: %.0f MB, and %.0f for a short text", command.c_str(), words, few);
    }
}
