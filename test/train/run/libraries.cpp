// Libraries that a build finds and reports; for GPUs, with a made-up toolkit and NCCL.
#include <algorithm>

#include "test/script_helpers.h"

// A bin/nvcc for these GPUs. The compiler finds every header, but NCCL only in its folder.
static std::string toolkit(const std::string& name, const std::string& gpus) {
    const std::string root = made(name);
    write_program(root + "/bin/nvcc",
                  "case $1 in --list-gpu-code) printf '%s\\n' " + gpus +
                      ";; --version) echo 'Cuda compilation tools, release 12.4, V12';; esac");
    write_program(root + "/bin/c++", "[[ $* != *-lnccl* ]] || exec g++ \"$@\"");
    write(root + "/include/nccl.h", "#error none here");
    return root;
}

// NCCL 2.minor, whose library has ncclCommSplit.
static std::string nccl(const std::string& name, int minor) {
    const std::string root = made(name), split = "int ncclCommSplit(int, int, int, int, int)";
    write(root + "/include/nccl.h",
          "#define NCCL_VERSION(a, b, c) ((a) * 10000 + (b) * 100 + (c))\n"
          "#define NCCL_VERSION_CODE NCCL_VERSION(2, " + std::to_string(minor) + ", 1)\n" + split + ";\n");
    const test::Ran ran = test::run(
        "mkdir " + root + "/lib && cd " + root + "/lib && echo '" + split + " { return 0; }' | "
        "g++ -c -x c++ - -o nccl.o && ar rcs libnccl.a nccl.o && ar rcs libcudart.a");
    EXPECT(ran.code == 0, "%s", ran.err.c_str());
    return root;
}

// found.txt and found.mk of such a build.
static std::string found(const std::string& name, const std::string& toolkit, const std::string& more) {
    const std::string build = made(name);
    const test::Ran ran = test::run("env -u MAKEFLAGS -u MAKELEVEL make DEVICE=cuda MPI=0 BUILD=" + build +
                                    " CUDA_HOME=" + toolkit + " CXX=" + toolkit + "/bin/c++ " + more + " " +
                                    build + "/found.mk");
    EXPECT(ran.code == 0, "exit %d: %s", ran.code, ran.err.c_str());
    return read(build + "/found.txt") + read(build + "/found.mk");
}

TEST(make_alone_builds_both_programs) {
    for (const char* how : {"", " UNITY=0"}) {
        const std::string build = made("alone");
        const test::Ran ran =
            test::run("env -u MAKEFLAGS -u MAKELEVEL make -n DEVICE=cpu BUILD=" + build + how);
        EXPECT(ran.code == 0, "exit %d: %s", ran.code, ran.err.c_str());
        for (const char* program : {"train_gpt", "tokenize"})
            EXPECT(has(ran.out, "link  " + build + "/" + program), "make%s does not link %s", how, program);
    }
}

// Written anew, it would be compiled anew by each make.
TEST(a_file_of_files_is_written_where_they_are_others) {
    const std::string build = made("united"), file = build + "/unity/llmc/base/unity_cold_1.cpp";
    const auto make = [&](const char* files) {
        const test::Ran ran = test::run("env -u MAKEFLAGS -u MAKELEVEL make DEVICE=cpu BUILD=" + build +
                                        " UNITY_SIZE=" + files + " " + file);
        EXPECT(ran.code == 0, "exit %d: %s", ran.code, ran.err.c_str());
        return read(file);
    };
    const std::string eight = make("8");
    EXPECT(std::ranges::count(eight, '\n') == 8 && has(eight, "#include\"llmc/base/check.cpp\""), "%s",
           eight.c_str());
    const auto first = std::filesystem::last_write_time(file);
    for (int again = 0; again < 3; again++)
        EXPECT(make("8") == eight && std::filesystem::last_write_time(file) == first, "it was written again");
    EXPECT(std::ranges::count(make("4"), '\n') == 4, "%s", read(file).c_str());
}

TEST(flags_of_a_user_come_after_our_own) {
    const test::Ran ran =
        test::run("env -u MAKEFLAGS -u MAKELEVEL make -n DEVICE=cpu CXXFLAGS=-DTHEIRS=1 BUILD=" +
                  made("flags") + " | grep -c 'std=c++20 .*-fopenmp .*-DTHEIRS=1 .*-c '");
    EXPECT(std::stoi("0" + ran.out) > 30, "%s%s", ran.out.c_str(), ran.err.c_str());
}

TEST(nccl_is_found_from_its_version_on) {
    const std::string cuda = toolkit("cuda", "sm_80 sm_90"), fit = nccl("fit", 18), old = nccl("old", 17);
    const std::string with = found("with", cuda, "NCCL_HOME=" + fit);
    for (const std::string& part : {std::string("NCCL      found: ranks have a GPU each"),
                                    "-DHAVE_NCCL -I" + fit + "/include", "NCCL_LIBS := -L" + fit + "/lib"})
        EXPECT(has(with, part), "no '%s' in:\n%s", part.c_str(), with.c_str());
    const std::string none = "NCCL      not found, 2.18 or newer: one GPU (apt-get install libnccl-dev";
    for (const std::string& without : {found("too_old", cuda, "NCCL_HOME=" + old), found("none", cuda, "")})
        EXPECT(has(without, none) && !has(without, "HAVE_NCCL"), "%s", without.c_str());
    const std::string left_out = found("left_out", cuda, "NCCL=0 NCCL_HOME=" + fit);
    EXPECT(has(left_out, "NCCL      left out by NCCL=0") && !has(left_out, "HAVE_NCCL"), "%s",
           left_out.c_str());
}

// Each make looks again for missing libraries, and for found libraries whose header is gone. Unchanged
// libraries recompile nothing.
TEST(a_library_that_comes_later_is_found_and_one_that_goes_is_missed) {
    const std::string root = made("later"), build = root + "/build";
    write_program(root + "/without", "[[ $* != *-ldnnl* ]]");
    // finds every header, below root
    write_program(root + "/with", "[[ $* = *-M* ]] || exit 0\nread -r _ name\nheader=" + root +
                  "/${name:1:-1}\nmkdir -p ${header%/*} && touch $header && echo \"-: $header\"");
    const auto make = [&](const char* compiler) {
        const test::Ran ran = test::run("env -u MAKEFLAGS -u MAKELEVEL make DEVICE=cpu MPI=0 BUILD=" + build +
                                        " CXX=" + root + "/" + compiler + " " + build + "/found.mk");
        EXPECT(ran.code == 0, "exit %d: %s", ran.code, ran.err.c_str());
        return read(build + "/found.txt") + read(build + "/found.mk");
    };
    EXPECT(has(make("without"), "oneDNN    not found"), "%s", read(build + "/found.txt").c_str());
    const auto first = std::filesystem::last_write_time(build + "/found.mk");
    EXPECT(!has(make("without"), "HAVE_DNNL"), "%s", read(build + "/found.mk").c_str());
    EXPECT(std::filesystem::last_write_time(build + "/found.mk") == first, "all would be compiled again");
    EXPECT(has(make("with"), "HAVE_DNNL := 1"), "%s", read(build + "/found.mk").c_str());
    EXPECT(!has(read(build + "/found.txt"), "not found"), "%s", read(build + "/found.txt").c_str());
    EXPECT(has(make("without"), "HAVE_DNNL := 1"), "what is there is looked for again");
    std::filesystem::remove(root + "/oneapi/dnnl/dnnl.h");
    EXPECT(!has(make("without"), "HAVE_DNNL"), "%s", read(build + "/found.mk").c_str());
}

TEST(what_the_toolkit_does_not_know_is_dropped_with_a_line) {
    const std::string text = found("dropped", toolkit("older", "sm_80 sm_86 sm_89 sm_90"), "NCCL=0");
    EXPECT(has(text, "CUDA      12.4: sm_80 sm_86 sm_89 sm_90, PTX for newer ones\n"), "%s", text.c_str());
    EXPECT(has(text, "CUDA      left out: sm_100 sm_120, which this toolkit does not know\n"), "%s",
           text.c_str());
}

// README names CUDA 12.4, which finds functions of the driver by another name than CUDA 13 does.
TEST(the_oldest_toolkit_has_what_finds_functions_of_the_driver) {
    const std::string older = made("older_toolkit") + "/older.h";
    write(older, "#include <cuda_runtime.h>\n#pragma GCC poison cudaGetDriverEntryPointByVersion\n"
                 "cudaError_t cudaGetDriverEntryPoint(const char*, void**, unsigned long long,\n"
                 "                                    cudaDriverEntryPointQueryResult*);\n");
    for (const std::string& toolkit : {std::string(), "-DCUDART_VERSION=12040 -include " + older}) {
        const test::Ran ran = test::run("g++ -std=c++20 -fsyntax-only -I. -Itest/emulator/include -DCUDA_EMU "
                                        "-DPRECISION=bf16 -DBACKEND=cuda " + toolkit +
                                        " -x c++ llmc/ops/cuda/tensor_map.cu");
        EXPECT(ran.code == 0, "%s: %s", toolkit.c_str(), ran.err.c_str());
    }
}

// Code of 90a differs from code of 90: instructions of a single GPU, absent from PTX of compute_80.
TEST(code_is_compiled_for_the_gpus_of_ARCH) {
    const std::string cuda = toolkit("archs", "sm_80 sm_86 sm_89 sm_90 sm_100 sm_120");
    const struct { const char *arch, *options, *held; } cases[] = {
        {"", "-gencode arch=compute_80,code=[compute_80,sm_80,sm_86,sm_89,sm_90,sm_100,sm_120]  ",
         "sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, PTX of compute_80"},
        {"ARCH=90a", "code=[compute_80] -gencode arch=compute_90a,code=sm_90a ", "\"sm_90a, PTX"},
        {"ARCH='80 90a'", "code=[compute_80,sm_80] -gencode arch=compute_90a,code=sm_90a ",
         "\"sm_80, sm_90a, PTX"},
        {"ARCH='100a 86 120a'", "code=[compute_80,sm_86] -gencode arch=compute_100a,code=sm_100a "
         "-gencode arch=compute_120a,code=sm_120a ", "\"sm_100a, sm_86, sm_120a, PTX"},
        {"ARCH=100f", "code=[compute_80] -gencode arch=compute_100f,code=sm_100f ", "\"sm_100f, PTX"}};
    int count = 0;
    for (const auto& [arch, options, held] : cases) {
        const std::string build = made(fmt::format("arch{}", count++));
        const std::string object = build + "/common/llmc/ops/cuda/device/guard.o";
        const test::Ran ran = test::run("env -u MAKEFLAGS -u MAKELEVEL make -n DEVICE=cuda MPI=0 NCCL=0 " +
                                        ("BUILD=" + build) + " CUDA_HOME=" + cuda + " CXX=" + cuda +
                                        "/bin/c++ " + arch + " " + object + " | grep 'nvcc.*-c '");
        EXPECT(ran.code == 0 && has(ran.out, options) && has(ran.out, held), "%s: '%s' '%s'", arch,
               ran.out.c_str(), ran.err.c_str());
    }
    EXPECT(has(found("dropped_a", toolkit("old", "sm_80 sm_90"), "NCCL=0 ARCH='90a 100a'"),
               "CUDA      left out: sm_100a, which this toolkit does not know\n"));
}

// Debian 12 has version 2; headers of version 3 come from PyPI.
TEST(fuzzers_are_skipped_with_a_line_where_there_is_no_clang) {
    const std::string bin = made("without_clang"), seen = "PATH=" + bin + " test/fuzz/build_and_run.sh";
    test::run("for p in bash dirname basename mkdir; do ln -s $(command -v $p) " + bin + "/$p; done");
    const auto none = test::run(seen);
    EXPECT(none.code == 0 && has(none.out, "no clang++ (apt-get install clang-14)") &&
           none.out.ends_with("\n0 passed, 0 failed, 9 skipped\n"), "%d '%s' '%s'", none.code,
           none.out.c_str(), none.err.c_str());
    write_program(bin + "/clang++-14", "exit 1");
    const auto no_runtime = test::run(seen);
    EXPECT(no_runtime.code == 0 && has(no_runtime.out, "libclang-rt-14-dev"), "'%s'", no_runtime.out.c_str());
}

TEST(products_compile_with_oneDNN_3) {
    const std::string root = made("onednn"),
                      include = root + "/onednn_devel_cpu_gomp-2023.2.0.data/data/include";
    test::run(python() + " dev/pypi.py " + root + " onednn-devel-cpu-gomp==2023.2.0");
    if (!std::filesystem::exists(include)) return test::skip("oneDNN 3 cannot be downloaded");
    const test::Ran ran = test::run(
        "printf '%s\\n' '#include \"llmc/ops/cpu/products/dnnl.cpp\"' "
        "'static_assert(DNNL_VERSION_MAJOR == 3);' | "
        "g++ -std=c++20 -fsyntax-only -fopenmp -Wall -Wextra -Werror -DHAVE_DNNL -I. -I" + include +
        " -x c++ -");
    EXPECT(ran.code == 0, "%s", ran.err.substr(0, 1000).c_str());
}
