# shellcheck shell=bash
# Sourced by gpu_check.sh. Fills build/gpu_check: this checkout, the parts' programs, headers and libraries.
pack() {
    local to=build/gpu_check file
    make -j"$(nproc)" DEVICE=cuda DNNL=0 MPI=0 NCCL=0 CPU_ARCH=x86-64-v3 BIN=build/gpu_check_bin gpu-check ||
        exit 1
    make -j"$(nproc)" DEVICE=cuda DNNL=0 MPI=0 CPU_ARCH=x86-64-v3 BIN=build/gpu_check_bin gpu-check-nccl ||
        exit 1
    rm -rf "$to" && mkdir -p "$to/packed/include" "$to/packed/lib"
    git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$to"
    strip build/gpu_check_bin/*
    # each program has the same kernels for every GPU: a window over every program keeps a single copy
    tar -C build/gpu_check_bin -cf - . | xz -T1 --lzma2=preset=3,dict=512MiB >"$to/packed/bin.tar.xz" ||
        exit 1
    commit >"$to/packed/commit"
    for file in nlohmann cxxopts.hpp fmt zlib.h zconf.h zstd.h zstd_errors.h xxhash.h; do
        for folder in /usr/include "/usr/include/$(uname -m)-linux-gnu"; do
            if [ -e "$folder/$file" ]; then cp -rL "$folder/$file" "$to/packed/include/"; fi
        done
    done
    for file in z zstd xxhash; do
        cp -L "$(${CXX:-g++} -print-file-name=lib$file.a)" "$to/packed/lib/" || exit 1
    done
    # Debian has no libfmt.a: the shared library, under the linker's name and the name in programs
    local fmt
    fmt=$(${CXX:-g++} -print-file-name=libfmt.so)
    cp -L "$fmt" "$to/packed/lib/" && cp -L "$fmt" "$to/packed/lib/$(basename "$(readlink "$fmt")")" || exit 1
    local mb
    mb=$(du -sm "$to" | cut -f 1)
    echo "$to: $mb MB. Copy it to the machine with the GPU, and there: scripts/gpu_check.sh --run"
    if [ "$mb" -gt 60 ]; then echo "gpu_check: more than 60 MB" >&2; exit 1; fi
}
