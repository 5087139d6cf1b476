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
    echo "$to: $mb MB. Copy it to the machine with the GPU, and there: scripts/gpu_check.sh --run, or --lease"
    # a lent machine takes 64 MiB, this checkout included
    mb=$((mb + $(git ls-files -z | xargs -0 du -cb | tail -n 1 | cut -f 1) / 1048576))
    if [ "$mb" -gt 62 ]; then
        echo "gpu_check: $mb MB with this checkout, more than 62: pack for one kind of GPU (ARCH=90)" >&2
        exit 1
    fi
}
